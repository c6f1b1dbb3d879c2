"""Git in workspace-write with default settings: real work, attacks, and what git takes for a repository.

Work gives the same answers and files as without a sandbox; `real_work.txt` has the calls of each case. What a
command leaves in a repository, and in the folders of installed packages, does nothing when the user works
there. `git_attacks.txt` has the calls of each attack; after `later:` what the user runs afterwards; after
`harms:` the path that it makes where nothing stops it (`ran`), which is tried as well; after `stays:` a path
that has to be there in spite of it. Our answer whether a folder of any name is a repository is that of git:
commands leave none behind, and no tool completes one, in whatever order the parts come.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from itertools import permutations
from pathlib import Path

import pytest

from mcp_toolserver.runtime.sandbox.protected.git_dir import is_git_directory
from tests.sandbox.test_protected_served import user_runs
from tests.support.cases import collected, rows, table, until
from tests.support.confinement import (
    AS_NOBODY,
    AS_ROOT_IN_LONG,
    AS_UNPRIVILEGED_IN_LONG,
    PROTECTED_GIT,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Servers,
    copy_of,
    free,
    git,
    put,
    scene,
    serving,
)
from tests.support.extent import rounds

FIXED = (
    "export GIT_AUTHOR_DATE=2026-01-02T03:04:05Z GIT_COMMITTER_DATE=2026-01-02T03:04:05Z GIT_AUTHOR_NAME=A "
    "GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.com LC_ALL=C "
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; "
)
NEW = "git init -q -b main . && echo 1 > a && git add a && git commit -qm one"
TWO = f"{NEW} && git switch -qc side && echo 2 > b && git add -A && git commit -qm two && git switch -q main"
CLASH = (
    f"{TWO} && git switch -q side && echo s > a && git add -A && git commit -qm s && git switch -q main && "
    "echo m > a && git add -A && git commit -qm m"
)
WORK = rows(Path(__file__).with_name("real_work.txt"), {"NEW": NEW, "TWO": TWO, "CLASH": CLASH})


def tree(root: Path, folder: str) -> dict[str, str]:
    """Every path below, files with their content; of a repository only its branches and its HEAD."""
    found: dict[str, str] = {}
    for top, folders, files in os.walk(root / folder):
        for name in files:
            file = Path(top) / name
            at = str(file.relative_to(root))
            is_plain = not file.is_symlink() and file.is_file()
            if "/refs/heads/" in at or name == "HEAD" or ".git/" not in f"/{at}":
                text = file.read_bytes().decode("latin-1") if is_plain else "special"
                found[at] = text.replace(str(root), "ROOT")
        # What a build leaves, and what git keeps of what was, have absolute paths and times in them.
        folders[:] = [name for name in folders if name not in ("target", "build", "logs", "objects", "hooks")]
    return found


def same(said: str, at: Scene) -> str:
    """What a command printed, without what differs in any case."""
    lines = said.replace(str(at.root), "ROOT").replace("\x1b[K", "").splitlines()
    return "\n".join(line for line in lines if not line.startswith(("[exit status", "(no output)"))).strip()


@pytest.mark.rounds
@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_work_gives_the_same_answers_and_files_as_without_a_sandbox(user: str) -> None:
    with scene(user) as at:
        put(at.root / "nm/node_modules/p/.vscode/settings.json", "{}\n")
        at.own()
        with copy_of(at, at.base) as outside, serving(at, WORKSPACE_WRITE) as server, collected() as case:
            server.start("exec sleep 600")
            for number, (name, calls) in enumerate(list(WORK.items())[:: rounds(11, 1)]):
                folder = "." if name.startswith("in the root") else f"case-{number}"
                program = name.rpartition(": ")[2] if name.startswith("where") else "git"
                # A shim of a version manager may be there without what it stands for.
                if free(outside, f"{program} --version").returncode:
                    continue
                with case(name):
                    for call in calls:
                        script = f"{FIXED}mkdir -p {folder} && cd {folder} && {call}"
                        said = same(server.bash(script, timeout=20_000), at)
                        assert said == same(free(outside, script).stdout, outside)
                    assert tree(at.root, folder) == tree(outside.root, folder)


def test_git_that_cannot_write_a_protected_file_says_which_and_the_advice_works() -> None:
    editing = "mkdir -p .vscode && echo 1 > .vscode/s && git add . && git commit -qm v"
    changing = (
        "git switch -qc side && echo 2 > .vscode/s && echo 2 > a && git commit -qam s && git switch -q main"
    )
    with scene(USERS[0]) as at:
        shutil.rmtree(at.root / ".git")
        assert free(at, f"{FIXED}{NEW} && {editing} && {changing}").returncode == 0
        with serving(at, WORKSPACE_WRITE) as server:
            switched = server.bash(f"{FIXED}git switch side && git status --short && cat a")
            assert "Git did not change .vscode/s:" in switched
            assert "\n M .vscode/s\n2\n" in switched
            server.bash(f"{FIXED}git switch -f main")
            assert "git stopped halfway" in server.bash(f"{FIXED}git merge side; git status --short")
            assert "no output" in server.bash(f"{FIXED}git stash -q -u; git status --short")


TODO = ".git/rebase-merge/git-rebase-todo"
WORDS = {
    "AS_USER": "git -c user.name=A -c user.email=a@example.com",
    "RUNS": "'touch ../ran; false'",
    "SCRIPT": "printf '#!/bin/sh\\ntouch ../ran\\n'",
    "EVIL_CONFIG": "printf '[core]\\n\\tfsmonitor = ./evil\\n'",
    "REBASING": "GIT_SEQUENCE_EDITOR='sed -i 1s/^pick/edit/' git rebase -q -i HEAD~1 2> /dev/null",
    "TODO": TODO,
}
ATTACKS = rows(Path(__file__).with_name("git_attacks.txt"), WORDS)
MARKED = ("later: ", "harms: ", "stays: ")
PREPARED = """
git init -q -b main r && cd r && git config user.name A && git config user.email a@example.com
git config filter.x.clean 'touch ../ran; cat'
echo 1 > a && git add a && git commit -qm one && echo 2 > a && git commit -qam two && git branch side HEAD~1
"""
"""The repository of the user."""


@pytest.mark.rounds
@pytest.mark.parametrize("user", AS_UNPRIVILEGED_IN_LONG)
def test_what_a_command_leaves_in_a_repository_does_no_harm_later(user: str) -> None:
    assert len(ATTACKS) >= 80
    with scene(user) as at, copy_of(at, at.base) as outside, serving(at, WORKSPACE_WRITE) as server:
        put(at.base / "run/pattern/node_modules/p/.vscode/tasks.json", "{}\n")
        at.own()
        user_runs(at, f"cd ../run/pattern && {PREPARED}")
        scenes = (at, outside) if user == USERS[0] else (at,)
        with collected() as case:
            for number, (name, lines) in enumerate(list(ATTACKS.items())[:: rounds(4, 1)]):
                named = dict(line.split(": ", 1) for line in lines if line.startswith(MARKED))
                calls = [line for line in lines if not line.startswith(MARKED)]
                target, stays = f"a{number}/{named.get('harms', 'ran')}", named.get("stays")
                for where in scenes:
                    user_runs(where, f"cp -a {at.base}/run/pattern a{number}")
                for script in (f"cd a{number}; {call}" for call in calls):
                    server.bash(script, timeout=30_000)
                    if len(scenes) > 1:
                        free(outside, script)
                later = f"cd a{number}; ({named.get('later', 'true')}) > /dev/null 2>&1; true"
                for where in scenes:
                    user_runs(where, later)
                with case(name):
                    assert not os.path.lexists(at.root / target)
                    assert not stays or (at.root / f"a{number}" / stays).exists()
                    assert os.path.lexists(scenes[-1].root / target) == (len(scenes) > 1), (
                        "nothing stops it here"
                    )
                for where in scenes:
                    # Where nothing confines it, root made what the user may not remove.
                    subprocess.run(["rm", "-rf", where.root / f"a{number}"], check=True)


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_a_command_that_changes_a_new_repository_seconds_later_is_found_out(
    servers: Servers, user: str
) -> None:
    server = servers(user, WORKSPACE_WRITE)
    root = server.scene.root
    job = server.start(
        f"git init -q n; touch made; sleep 5; {WORDS['EVIL_CONFIG']} >> n/.git/config; exec sleep 300"
    )
    until((root / "made").exists)
    assert server.bash("sleep 2; git -C n status --short --branch").startswith("## No commits yet")
    until(lambda: "n/.git/config appeared" in server.call("TaskOutput", task_id=job, until="now").text)
    assert not (root / "n/.git/config").exists()
    assert "running for" in server.call("TaskOutput", task_id=job, until="now").text
    server.call("TaskStop", task_id=job)
    server.bash("rm -rf n made")


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_packages_are_removed_and_installed_again_and_only_what_was_there_comes_back(user: str) -> None:
    with scene(user) as at:
        put(at.root / "node_modules/p/.envrc", "export A=1\n")
        put(at.root / "node_modules/p/.vscode/tasks.json", "{}\n")
        put(at.root / "site-packages/kept/.vscode/tasks.json", "{}\n")
        git(at.root, "add", "--force", "site-packages")
        # A root called as a folder of packages is none.
        named = at.base / "run/node_modules"
        put(named / ".vscode/tasks.json", "{}\n")
        at.own()
        with serving(at, WORKSPACE_WRITE, roots=[at.root, named]) as server:
            server.bash("echo evil > .vscode/tasks.json; mkdir .idea p; mkdir p/.idea", cwd=str(named))
            assert [path.name for path in named.rglob(".idea")] == []
            assert (named / ".vscode/tasks.json").read_text(encoding="utf-8") == "{}\n"
            install = "mkdir -p node_modules/p/.vscode; echo {} > node_modules/p/.vscode/x"
            server.bash(
                f"cp node_modules/p/.envrc e; rm -rf node_modules; {install}; cp e node_modules/p/.envrc"
            )
            assert (at.root / "node_modules/p/.vscode/x").exists()
            assert (at.root / "node_modules/p/.envrc").read_text(encoding="utf-8") == "export A=1\n"
            assert "moved away" in server.bash("echo evil >> node_modules/p/.envrc")
            # What git tracks is protected, also when a command has made git forget it.
            server.bash(
                "git rm -q --cached -r site-packages; echo evil > site-packages/kept/.vscode/tasks.json"
            )
            server.bash("echo evil > site-packages/kept/.vscode/tasks.json; rm -rf site-packages")
            assert (at.root / "site-packages/kept/.vscode/tasks.json").read_text(encoding="utf-8") == "{}\n"
        assert not (at.root / "node_modules/p/.envrc").exists()


REF, STEERS = "echo 'ref: refs/heads/x' > HEAD", "printf '[core]\\nfsmonitor = ./evil\\n'"
PARTS = f"mkdir objects refs; {STEERS} > config"
STORE = "mkdir -p ../store/objects ../store/refs"
COMMON = f"{STORE}; {REF}; {STEERS} > config.worktree"
LAYOUT_WORDS = {"PARTS": PARTS, "REF": REF, "EVIL": STEERS, "STORE": STORE, "COMMON": COMMON}
LAYOUT_TABLES = Path(__file__).with_name("git_layouts.txt")
LAYOUTS = dict(table(LAYOUT_TABLES, "taken", 2, LAYOUT_WORDS))
MAY_BE_COMPLETED = dict(table(LAYOUT_TABLES, "may be completed", 2, LAYOUT_WORDS))
ALL = {**LAYOUTS, **MAY_BE_COMPLETED}


def built(name: str, number: int) -> str:
    """What makes a layout in a folder of its own."""
    return f"(mkdir l{number}; cd l{number}; {ALL[name]})"


def heads(root: Path) -> list[Path]:
    """The folders with a file called HEAD, or whatever that is."""
    found = os.walk(root)
    return [Path(at) for at, folders, files in found if "HEAD" in (*folders, *files) and "/.git" not in at]


def repositories(root: Path, user: str = "root") -> set[str]:
    """The folders in `root` that git, run by `user`, takes for repositories."""
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CEILING_DIRECTORIES": str(root)}
    before = AS_NOBODY if user != "root" and os.geteuid() == 0 else ()
    command = [*before, "git", "-c", "safe.directory=*", "rev-parse", "--git-dir"]
    asked = {
        folder: subprocess.run(command, cwd=folder, env=environ, capture_output=True, encoding="utf-8")
        for folder in heads(root)
    }
    return {str(folder.relative_to(root)) for folder, said in asked.items() if said.stdout}


def test_our_answer_is_that_of_git(tmp_path: Path) -> None:
    assert len(LAYOUTS) >= 30
    with collected() as case:
        for number, name in enumerate(ALL):
            root = tmp_path / f"{number}"
            root.mkdir()
            subprocess.run(["sh", "-c", built(name, number)], cwd=root, check=True)
            (root / "half").mkdir(exist_ok=True)
            ours = {str(path.relative_to(root)) for path in heads(root) if is_git_directory(str(path))}
            with case(name):
                assert ours == ({f"l{number}"} if name in MAY_BE_COMPLETED else repositories(root))
    # Git would wait for what a command writes into it.
    subprocess.run(["sh", "-c", f"{PARTS}; mkfifo HEAD"], cwd=tmp_path, check=True)
    assert is_git_directory(str(tmp_path))


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_a_command_leaves_no_folder_that_git_takes_for_a_repository(servers: Servers, user: str) -> None:
    server = servers(user, PROTECTED_GIT)
    at = server.scene
    with collected() as case:
        numbered = list(enumerate(ALL))
        for names in (numbered[start : start + 15] for start in range(0, len(ALL), 15)):
            script = "\n".join(built(name, number) for number, name in names)
            user_runs(at, f"mkdir free && cd free && {{ {script}\n}}")
            made = repositories(at.root / "free", user)
            user_runs(at, "rm -rf free")
            said = server.bash(script)
            left = repositories(at.root, user)
            for number, name in names:
                with case(name):
                    inside = f"l{number}/in" if name == "separate" else f"l{number}"
                    assert inside not in left
                    assert name not in LAYOUTS or (f"{inside}/HEAD made" in said) == (inside in made)
                    assert (at.root / f"l{number}").is_dir()
    user_runs(at, "rm -rf l* store half none")


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_no_order_and_no_time_between_commands_completes_a_layout(servers: Servers, user: str) -> None:
    server = servers(user, PROTECTED_GIT)
    root = server.scene.root
    steps = {"HEAD": REF, "config": f"{STEERS} > config", "refs": "mkdir refs", "objects": "mkdir objects"}
    for number, order in enumerate(permutations(steps)):
        for step in (order[:3], order[3:]) if number < 4 else ():
            server.bash(f"mkdir -p o{number}; cd o{number}; {'; '.join(steps[name] for name in step)}")
        assert not is_git_directory(str(root / f"o{number}"))
    # A file changes without its folder.
    server.bash("mkdir late; cd late; mkdir objects refs; echo x > HEAD")
    assert "late/HEAD made its folder a git repository" in server.bash(f"cd late; sleep 2; {REF}; sleep 1.5")
    assert not (root / "late/HEAD").exists()
    server.bash("rm -rf late o?")


def test_a_root_becomes_no_repository_and_one_of_the_user_keeps_its_configuration() -> None:
    # While a command runs, as one may on a shared server, a new repository is judged by its content alone.
    with scene(USERS[-1]) as at:
        plain = at.base / "run/plain"
        plain.mkdir()
        at.own()
        with serving(at, WORKSPACE_WRITE, roots=[plain, at.root]) as server:
            assert "HEAD" in server.bash(f"{PARTS}; {REF}; mkdir hooks")
            assert repositories(plain.parent) == set()
            user_runs(at, f"cd {plain} && rm -rf * && git init -q --bare .")
            server.bash(f"{STEERS} >> config; touch hooks/x; {STEERS} > config.worktree; mv HEAD x; rm HEAD")
            assert not (plain / "hooks/x").exists()
            assert not (plain / "config.worktree").exists()
            assert "evil" not in (plain / "config").read_text(encoding="utf-8")

            user_runs(at, "git init -q --bare kept && git clone -q kept copy 2>&1")
            kept = at.root / "kept"
            config = (kept / "config").read_bytes()
            said = server.bash(
                f"{STEERS} >> kept/config; touch kept/hooks/x; mv kept k; git -C kept rev-parse --git-dir",
                cwd=str(at.root),
            )
            assert "\n.\n" in said
            assert (kept / "config").read_bytes() == config
            assert not (kept / "hooks/x").exists()
            for path in ("config", "hooks/x", "HEAD", "info/attributes", "commondir"):
                said_of_path = server.call("write_file", path=f"{kept}/{path}", content="x", overwrite=True)
                assert said_of_path.is_error, path
            assert not server.call("write_file", path=f"{at.root}/copy/config", content="x").is_error


CONTENT = {"HEAD": "ref: refs/heads/x\n", "config": "[core]\n", "objects/x": "x", "refs/x": "x"}


def test_no_tool_completes_a_layout(servers: Servers) -> None:
    server = servers(USERS[-1], WORKSPACE_WRITE)
    with collected() as case:
        for number, (name, before, tool, arguments) in enumerate(
            table(LAYOUT_TABLES, "tools", 4, LAYOUT_WORDS)
        ):
            user_runs(server.scene, f"mkdir t{number}; cd t{number}; {before}")
            with case(name):
                said = server.call(tool, **json.loads(arguments.replace("{0}", f"t{number}")))
                assert said.is_error
                assert "git repository" in said.text
        for number, order in enumerate(permutations(CONTENT)):
            with case("-".join(order)):
                for path in order:
                    server.call("write_file", path=f"w{number}/{path}", content=CONTENT[path])
                assert not (server.scene.root / f"w{number}/HEAD").exists()
                assert (server.scene.root / f"w{number}/refs/x").exists()
    user_runs(server.scene, "rm -rf t* w* store")


def test_no_branch_and_no_worktree_brings_a_layout(servers: Servers) -> None:
    server = servers(USERS[-1], WORKSPACE_WRITE)
    root = server.scene.root
    git(root, "init", "-q", "-b", "main", "repo")
    git(root / "repo", "commit", "-q", "--allow-empty", "-m", "first")
    git(root / "repo", "checkout", "-q", "-b", "evil")
    for path, text in {**CONTENT, "plain": "x"}.items():
        (root / "repo/sub" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "repo/sub" / path).write_text(text, encoding="utf-8")
    git(root / "repo", "--git-dir=.git", "--work-tree=.", "add", "sub/plain", "sub/HEAD")
    tree = "\n".join(
        f"100644 {git(root / 'repo', 'hash-object', '-w', shlex.quote('sub/' + path)).strip()}\tsub/{path}"
        for path in (*CONTENT, "plain")
    )
    subprocess.run(
        ["git", "-c", "safe.directory=*", "update-index", "--add", "--index-info"],
        cwd=root / "repo", input=tree, encoding="utf-8", check=True,
    )  # fmt: skip
    git(root / "repo", "commit", "-q", "-m", "evil")
    subprocess.run(["rm", "-rf", "sub"], cwd=root / "repo", check=True)
    git(root / "repo", "symbolic-ref", "HEAD", "refs/heads/main")
    git(root / "repo", "reset", "-q")
    server.scene.own()
    assert server.call("git_branch", path="repo", name="evil").is_error
    paths = [f"repo/sub/{path}" for path in CONTENT]
    assert server.call("git_restore", paths=paths, commit="evil").is_error
    entered = server.call("EnterWorktree", path="repo", name="w", base="evil")
    assert not entered.is_error, entered.text
    assert "sub/HEAD" in entered.text
    assert (root / "repo/.worktrees/w/sub/plain").exists()
    assert [path for path in root.rglob("sub") if is_git_directory(str(path))] == []
    # Other tests work in the root of this server.
    (handle,) = set(re.findall(r"worktree_[0-9a-f]{32}", entered.text))
    left = server.call("ExitWorktree", id=handle, action="keep")
    assert not left.is_error, left.text
    user_runs(server.scene, "rm -rf repo")
