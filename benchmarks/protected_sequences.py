"""Sequences that once planted a protected name, or were made to try one way of doing so."""

from collections.abc import Mapping, Sequence

from benchmarks.protected_steps import Step


def _commands(*scripts: str) -> Sequence[Step]:
    return [Step("command", script) for script in scripts]


def _session(*scripts: str) -> Sequence[Step]:
    return [Step("session", script) for script in scripts]


_HOOK = (
    "mkdir -p {0}/.git/hooks; echo run > {0}/.git/hooks/pre-commit; "
    "printf '[core]\\nfsmonitor=x\\n' > {0}/.git/config"
)

KNOWN: Mapping[str, Sequence[Step]] = {
    "deeper than the scan": _commands(
        f"mkdir proj a; {_HOOK.format('a/b/c/d/y')}", "mv proj a/old", "mv a/b/c/d/y proj"
    ),
    "settings moved up": _commands(
        "mkdir -p proj a/b/c/d/y/.vscode; echo run > a/b/c/d/y/.vscode/tasks.json",
        "mv proj a/old",
        "mv a/b/c/d/y proj",
    ),
    "in a new repository": _commands(
        "git init -q n; echo run > n/.git/.envrc; mkdir -p m/.git. n/.git/logs/.vscode",
        "echo run > m/.git./.envrc",
        "mv n/.git/logs/.vscode n; mv n/.git/.envrc n",
    ),
    "skipped folder": _commands(
        f"mkdir proj; {_HOOK.format('node_modules/q')}", "rm -r proj", "mv node_modules/q proj"
    ),
    "flood of folders": _commands(
        "mkdir flood; cd flood; mkdir {1..2101}",
        f"{_HOOK.format('sub/nested')}; mkdir .vscode .claude",
        "echo run > sub/nested/.git/hooks/pre-push; echo run > .vscode/tasks.json",
    ),
    "long report": _commands(
        "for n in {1..25}; do mkdir -p services/customer-account-api-$n; "
        "touch services/customer-account-api-$n/.envrc; done"
    ),
    "live session": _session(
        "mkdir .idea; echo run > .husky", "echo run > .idea/x; mkdir -p s/.vscode", "ls"
    ),
    "session and command": [
        Step("session", f"mkdir proj; {_HOOK.format('a/y')}"),
        Step("command", "mv a/y proj/in"),
        Step("session", "mv proj/in a/again; ls -a a"),
    ],
    "background": [
        Step("job", f"while :; do {_HOOK.format('late')}; mv late late2; sleep 0.02; done"),
        Step("command", "sleep 0.2; ls -a"),
    ],
    "odd names": _commands(
        "mkdir -p $'\\xff\\n'/.vscode; echo run > $'\\xff\\n'/.envrc; touch .git:" + "x" * 240
    ),
    "unreadable": _commands("mkdir -p x/y/.vscode; chmod 0 x/y x", "mv x z; chmod 311 z; mkdir z/y/.claude"),
    "root closed for a while": [
        Step("command", "chmod 0 $PWD; sleep 2.5; chmod 755 $PWD"),
        Step("command", "echo run > .git/hooks/pre-commit; rm -rf kept"),
    ],
    "root left closed": _commands(
        "chmod 0 $PWD", "chmod 755 $PWD; echo run > .git/hooks/pre-commit; rm -rf kept"
    ),
    "folder opened and closed": [
        Step(
            "job",
            "for n in {1..400}; do chmod 0 kept node_modules; chmod 755 kept node_modules; done; sleep 30",
        ),
        Step("command", "sleep 1.5; echo run > kept/new"),
    ],
    "nested deeper than Python's stack": _commands(
        'python3 -c \'import os\nfor _ in range(1300): os.mkdir("nn"); os.chdir("nn")\nos.mkdir(".vscode")\'',
        "mv nn/nn/nn up",
    ),
}
