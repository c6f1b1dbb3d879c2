"""Real work in workspace-write with default settings: the same answers and files as without a sandbox.

`real_work.txt` has the calls of each case.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.cases import collected, rows
from tests.support.confinement import (
    AS_ROOT_IN_LONG,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    copy_of,
    free,
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
