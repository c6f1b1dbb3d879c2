"""Random sequences of steps that move, link, hide and flood, with protected names among what they make."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Way = Literal["command", "session", "job"]


@dataclass(frozen=True)
class Step:
    """One call."""

    way: Way
    """A command of its own; an evaluation in the live session of the sequence; a background command."""
    script: str


FOLDERS = (
    *("a", "a/b", "a/b/c/d", "proj", "proj/sub", "work", "work/x/y", "old", "kept/new", "kept/sub/new"),
    *("node_modules", "node_modules/q", "node_modules/dep/in", ".venv/lib", "__pycache__", "hostile/new"),
    *("build/.cache", "target", "dist/z", "with space", "$'odd\\xff'", "d" * 200, "tree/in"),
)
NAMES = (
    *(".git", ".git", ".git", ".GIT", ".Git", ".git.", "'.git '", "$'.g\\u200cit'", "git~1", ".git:x"),
    *(".vscode", ".Vscode", ".envrc", ".ENVRC", ".bashrc", ".mcp.json", ".claude", ".husky", ".idea"),
    *(".gitmodules", ".profile", ".cursor", ".devcontainer"),
)
PRESENT = (
    *(".git", ".git/hooks", ".git/config", ".mcp.json", ".vscode", ".vscode/settings.json", "hostile"),
    *("hostile/.git", "kept", "kept/sub", "kept/sub/.envrc", "kept/.claude", "node_modules", "tree/.git"),
    *("node_modules/dep", "tree"),
)
EXCHANGE = (
    "python3 -c 'import ctypes, os, sys; a, b = map(os.fsencode, sys.argv[1:]); "
    "ctypes.CDLL(None).renameat2(-100, a, -100, b, 2)' {p} {q}"
)
DEEP = (
    "python3 -c 'import os, sys\n"
    "os.makedirs(sys.argv[1], exist_ok=True); os.chdir(sys.argv[1])\n"
    'for _ in range(int(sys.argv[2])): os.mkdir("n" * {wide}); os.chdir("n" * {wide})\n'
    "os.mkdir(sys.argv[3])' {f} {depth} {n}"
)
REPOSITORY = "mkdir -p {f}/{n}/hooks && echo run > {f}/{n}/hooks/pre-commit && echo x > {f}/{n}/config"

PLAIN = (
    "mkdir -p {f}",
    "mkdir -p {f} && echo run > {f}/{n}",
    "mkdir -p {f}/{n} && echo run > {f}/{n}/tasks.json",
    "echo run > {n}",
    "mkdir {n}",
    REPOSITORY,
    REPOSITORY,
    "mkdir -p {f} && ln -s {g} {f}/{n}",
    "mkdir -p {f} && ln -s / {f}/{n}",
    "mkdir -p {f} && ln {g} {f}/{n}",
    "mkdir -p {f} && mkfifo {f}/{n}",
    "mkdir -p {f} && mv {f} {g}",
    "mv {f} {g}",
    "mv {f} {g}",
    "mv {g}/* {f}",
    "mv -T {f} {g}/{n}",
    "mv -T {f} {n}",
    "mv {p} {g}",
    "mv {p} {f}/{n}",
    "mv -T {f} {p}",
    "cp -a {p} {g}",
    "cp -a {p} {f}/{n}",
    "cp -al {p} {g}",
    "cp -a {f} {g}",
    "rm -rf {f}",
    "rm -rf {p}",
    "echo run >> {p}",
    "echo run > {p}/new",
    "rmdir {f}; ln -s {g} {f}",
    "ln -sfn {p} link && echo run > link/new",
    "ln -sfn {f} link && mkdir -p link/{n}",
    "chmod 0 {f}",
    "chmod 311 {f}",
    "chmod 555 {f} && chmod 0 $(dirname {f})",
    "chmod -R 0 {g}",
    "chmod 0 {p}",
    "chmod 755 {f}",
    "mkdir -p {f}/{n} && chmod 0 {f}/{n} {f}",
    "mkdir -p {f}/in/{n} && chmod 0 {f}/in && mv {f} {g}",
    "touch -d @0 {f} {f}/* .",
    EXCHANGE.replace("{q}", "{f}"),
    EXCHANGE.replace("{p}", "{g}").replace("{q}", "{f}"),
    "git init -q {f}",
    "git init -q --bare {f}",
    "git init -q --separate-git-dir={g} {f}",
    "git clone -q . {f}",
    "git worktree add -q {f}",
    "git -C hostile submodule add -q ../ sub",
    "git -C {f} config core.fsmonitor x",
    "mkdir -p {f} && echo 'gitdir: ../{g}' > {f}/.git && mkdir -p {g} && echo x > {g}/config",
    "git mv kept {g}; git stash -q; git checkout -q HEAD~1; git clean -qfdx",
    "git -C {f} -c user.name=A -c user.email=a@b commit -q --allow-empty -m x",
    "git -c user.name=A -c user.email=a@b stash -q; git stash pop -q; git gc -q",
    "git -C hostile replace HEAD HEAD~1; git -C hostile pack-refs --all",
    "git clone -q hostile {f}; git -C {f} remote add x {g}",
    "git clone -q --bare hostile {f}; echo run > {f}/hooks/post-receive",
    "mkdir -p {f}/.git/rebase-merge && echo 'exec run' > {f}/.git/rebase-merge/git-rebase-todo",
    "ln -sfn / {f}/.git/logs; ln -sf ../../x {f}/.git/COMMIT_EDITMSG",
    "echo run > {f}/.git/hooks/pre-push; mv {f} {g}",
    "rm -rf node_modules; mkdir -p node_modules/dep/.vscode node_modules/{n}; mv node_modules/dep {f}",
    "rm -rf .git/objects .git/refs",
    "tar cf t.tar {p} {f}; mkdir -p {g}; tar xf t.tar -C {g}",
)
RARE = (
    "mkdir -p {f} && cd {f} && mkdir empty-{{1..2101}}",
    "for n in {{1..300}}; do mkdir -p {f}/s-$n; echo run > {f}/s-$n/.envrc; done",
    "mkdir -p {f}/{{1..40}}/{{1..40}} && mkdir {f}/40/40/{n} && mv {f} {g}",
    DEEP.replace("{wide}", "200").replace("{depth}", "25"),
    DEEP.replace("{wide}", "2").replace("{depth}", "1300"),
    f"{DEEP.replace('{wide}', '100').replace('{depth}', '40')}; mv {{f}} {{g}}",
)
RARE_EVERY = 40
"""Of so many operations one makes a flood or a deep tree."""

Filled = Callable[[str], str]


def random_sequence(chance: random.Random) -> Sequence[Step]:
    """One to five calls of one to five operations each."""
    mix: tuple[Way, ...] = chance.choice(
        (("command",), ("command",), ("command",), ("session", "session", "command"), ("command", "session"))
    )
    steps = [Step(chance.choice(mix), _script(chance)) for _ in range(chance.randint(1, 5))]
    if chance.random() < 0.15:
        meanwhile = "; ".join(_operation(chance) for _ in range(3))
        repeated = (
            f"for n in {{1..200}}; do {{ {meanwhile}; }} 2>/dev/null; sleep 0.0{chance.randint(1, 9)}; done"
        )
        steps.insert(0, Step("job", repeated))
    return steps


def _script(chance: random.Random) -> str:
    operations = [_operation(chance) for _ in range(chance.randint(1, 5))]
    # A folder that one operation enters is not that of the next.
    return "\n".join(f"( {operation} ) 2>/dev/null" for operation in operations)


def _operation(chance: random.Random) -> str:
    kinds = RARE if chance.randrange(RARE_EVERY) == 0 else PLAIN
    return chance.choice(kinds).format(
        f=_folder(chance), g=_folder(chance), n=chance.choice(NAMES), p=chance.choice(PRESENT)
    )


def _folder(chance: random.Random) -> str:
    """Mostly one of a few, so that operations meet."""
    name = chance.choice(FOLDERS[:10] if chance.random() < 0.6 else FOLDERS)
    return f"'{name}'" if " " in name else name
