"""What git takes for a repository in a folder of any name: our answer is git's, commands leave none
behind, and no tool completes one, in whatever order the parts come."""

import json
import os
import re
import shlex
import subprocess
from itertools import permutations
from pathlib import Path

import pytest

from mcp_toolserver.runtime.sandbox.protected.git_dir import is_git_directory
from tests.sandbox.test_protected_served import user_runs
from tests.support.cases import collected, table
from tests.support.confinement import (
    AS_NOBODY,
    AS_ROOT_IN_LONG,
    PROTECTED_GIT,
    USERS,
    WORKSPACE_WRITE,
    Servers,
    git,
    scene,
    serving,
)

REF, EVIL = "echo 'ref: refs/heads/x' > HEAD", "printf '[core]\\nfsmonitor = ./evil\\n'"
PARTS = f"mkdir objects refs; {EVIL} > config"
STORE = "mkdir -p ../store/objects ../store/refs"
COMMON = f"{STORE}; {REF}; {EVIL} > config.worktree"
WORDS = {"PARTS": PARTS, "REF": REF, "EVIL": EVIL, "STORE": STORE, "COMMON": COMMON}
TABLES = Path(__file__).with_name("git_layouts.txt")
LAYOUTS = dict(table(TABLES, "taken", 2, WORDS))
MAY_BE_COMPLETED = dict(table(TABLES, "may be completed", 2, WORDS))
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
    steps = {"HEAD": REF, "config": f"{EVIL} > config", "refs": "mkdir refs", "objects": "mkdir objects"}
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
            server.bash(f"{EVIL} >> config; touch hooks/x; {EVIL} > config.worktree; mv HEAD x; rm HEAD")
            assert not (plain / "hooks/x").exists()
            assert not (plain / "config.worktree").exists()
            assert "evil" not in (plain / "config").read_text(encoding="utf-8")

            user_runs(at, "git init -q --bare kept && git clone -q kept copy 2>&1")
            kept = at.root / "kept"
            config = (kept / "config").read_bytes()
            said = server.bash(
                f"{EVIL} >> kept/config; touch kept/hooks/x; mv kept k; git -C kept rev-parse --git-dir",
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
        for number, (name, before, tool, arguments) in enumerate(table(TABLES, "tools", 4, WORDS)):
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
