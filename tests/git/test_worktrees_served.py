"""EnterWorktree and ExitWorktree of a real server in its sandbox, on repositories that want their programs
run and their files written elsewhere, and while commands run."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.executables import HostExecutables
from tests.git.hostile_git import GIT
from tests.git.test_git_changes_served import AUTHOR, done, planted, refused, traps
from tests.support.confinement import (
    BY_USER,
    READ_ONLY,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Server,
    changed,
    git,
    put,
    scene,
    serving,
)
from tests.support.live import ERAS, Setup, connected, text
from tests.support.processes import call
from tests.support.snapshot import snapshot
from tests.support.workbench import Person
from tests.support.workshop import names, workshop

PATIENCE = 20.0


@pytest.fixture(params=BY_USER)
def place(request: pytest.FixtureRequest) -> Generator[Scene]:
    with scene(request.param) as made:
        yield made


@pytest.fixture
def anywhere() -> Generator[Scene]:
    """Where it makes no difference whose server it is."""
    with scene(USERS[0]) as made:
        yield made


def enter(server: Server, name: str = "x", **arguments: Any) -> str:
    """Enter a worktree; its id."""
    return id_in(done(server.call("EnterWorktree", name=name, **arguments)))


def id_in(said: str) -> str:
    found = re.search(r"\bworktree_[0-9a-f]{32}\b", said)
    assert found, said
    return found[0]


def until(holds: Callable[[], object]) -> None:
    """Wait for something that the verifier does within a second or two."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def quarantined(at: Scene) -> set[str]:
    return {path.name for path in (at.state / "quarantine").rglob("*")}


# --- hostile repositories --------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("--git", "writable")], ids=["protected", "writable"])
def test_nothing_of_a_repository_runs(flags: tuple[str, ...], place: Scene) -> None:
    """ATTACK: hooks, filters, monitors, included settings, and a setting that would move the hooks."""
    hostile = place.root / "hostile"
    put(hostile / "a.odd", "odd\n")
    git(hostile, "add", "a.odd")
    git(hostile, "commit", "--quiet", "--message=odd", "a.odd")
    planted(hostile)
    place.own()
    kept = ("config", "hooks", "info/attributes")
    before = place.around(), snapshot(*(hostile / ".git" / name for name in kept))
    with serving(place, WORKSPACE_WRITE, *AUTHOR, *flags) as server:
        said = done(server.call("EnterWorktree", name="x", path="hostile"))
        assert "a.odd" in said
        assert server.bash("pwd").strip() == str(hostile / ".worktrees/x")
        done(server.call("write_file", path="new.txt", content="new\n"))
        done(server.call("git_commit", message="one", paths=["new.txt"]))
        done(server.call("git_status"))
        refused(server.call("ExitWorktree", id=id_in(said), action="remove"), "one")
        done(server.call("ExitWorktree", id=id_in(said), action="remove", discard_changes=True))
        again = enter(server, "y", path="hostile")
        done(server.call("ExitWorktree", id=again, action="remove"))
    assert not traps(place.base)
    assert not changed(before[0], place.around())
    assert not changed(before[1], snapshot(*(hostile / ".git" / name for name in kept)))


def test_the_attack_is_one(anywhere: Scene) -> None:
    hostile = anywhere.root / "hostile"
    planted(hostile)
    run = ["git", "-C", str(hostile), "-c", "safe.directory=*", "worktree", "add", "-q", "x"]
    subprocess.run(run, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=20)
    assert traps(hostile)


@pytest.mark.parametrize("kind", ["outside", "inside", "file"])
def test_the_folder_of_the_worktrees_is_a_real_one(kind: str, place: Scene) -> None:
    """ATTACK: it is a link to outside, or to the hooks."""
    folder = place.root / ".worktrees"
    if kind == "file":
        put(folder, "a file\n")
    else:
        folder.symlink_to(place.outside if kind == "outside" else place.root / ".git/hooks")
    place.own()
    before = place.around(), snapshot(place.root / ".git")
    with serving(place, WORKSPACE_WRITE) as server:
        assert server.call("EnterWorktree", name="x").is_error
    assert not changed(before[0], place.around())
    git(place.root, "rev-parse", "HEAD")
    assert git(place.root, "branch", "--list", "worktree-*") == ""
    assert not list((place.root / ".git").glob("mcp-toolserver-*"))
    assert not (place.root / ".git/hooks/x").exists()


def test_a_repository_whose_data_lies_elsewhere_gets_no_worktree(place: Scene) -> None:
    """ATTACK: a .git file and a linked work tree that lead outside, a submodule, and parts of the .git folder
    that are links to outside."""
    git(place.outside, "init", "--quiet", "--initial-branch=main", "away")
    put(place.outside / "away/f", "f\n")
    git(place.outside / "away", "add", "f")
    git(place.outside / "away", "commit", "--quiet", "--message=away")
    git(place.outside / "away", "worktree", "add", "--quiet", "-b", "tree", str(place.root / "tree"))
    put(place.root / "file/.git", f"gitdir: {place.outside}/away/.git\n")
    git(place.root / "hostile", "-c", "protocol.file.allow=always", "-c", "core.fsmonitor=",
        "submodule", "--quiet", "add", f"{place.outside}/away", "module")  # fmt: skip
    for part in ("refs/heads", "worktrees"):
        moved = place.outside / part.replace("/", "-")
        git_part = place.root / ".git" / part
        if git_part.exists():
            shutil.move(git_part, moved)
        moved.mkdir(exist_ok=True)
        git_part.symlink_to(moved)
    place.own()
    before = place.around()
    with serving(place, WORKSPACE_WRITE) as server:
        for path, why in (
            ("tree", "outside the roots"),
            ("file", "outside the roots"),
            ("hostile/module", "not in a folder called .git"),
            (".", "git could not change"),
        ):
            refused(server.call("EnterWorktree", name="x", path=path), why)
    assert not changed(before, place.around())


def test_links_and_names_of_a_commit_lead_nowhere(place: Scene) -> None:
    """ATTACK: a commit with links to outside and to the .git folder, and with protected names."""
    for name, target in (("away", place.outside), ("hooks", ".git/hooks"), ("up", "../../.git/hooks")):
        (place.root / name).symlink_to(target)
    for name in (".envrc", "d/.vscode/tasks.json", ".claude/settings.json"):
        put(place.root / name, "evil\n")
    git(place.root, "add", "--force", "away", "hooks", "up", ".envrc", "d", ".claude")
    git(place.root, "commit", "--quiet", "--message=links")
    place.own()
    before = place.around(), snapshot(place.root / ".git/hooks")
    with serving(place, WORKSPACE_WRITE) as server:
        id_ = enter(server)
        tree = place.root / ".worktrees/x"
        for name in (".envrc", "d/.vscode", ".claude", ".mcp.json"):
            assert not (tree / name).exists()
        for path in ("away/new", "hooks/pre-commit", "up/pre-commit", ".envrc", ".git", "d/.vscode/x"):
            assert server.call("write_file", path=path, content="evil\n").is_error, path
        server.bash("echo evil > up/pre-commit; echo evil > away/new; echo evil > .git; true")
        done(server.call("ExitWorktree", id=id_, action="remove"))
    assert not changed(before[0], place.around())
    assert not changed(before[1], snapshot(place.root / ".git/hooks"))


# --- while commands run ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("--git", "writable")], ids=["protected", "writable"])
def test_a_worktree_comes_and_goes_while_commands_run(flags: tuple[str, ...], place: Scene) -> None:
    with serving(place, WORKSPACE_WRITE, *AUTHOR, *flags) as server:
        handles = [server.start("while :; do :; done"), server.start("touch ready; exec sleep 300")]
        until((place.root / "ready").exists)
        id_ = enter(server)
        server.bash("git status --porcelain > said; sleep 2.5")
        assert (place.root / ".worktrees/x/.git").is_file()
        for handle in handles:
            assert "running for" in server.call("TaskOutput", task_id=handle, until="now").text
        done(server.call("git_commit", message="m", paths=["said"]))
        done(server.call("ExitWorktree", id=id_, action="remove", discard_changes=True))
        server.bash("sleep 2.5")
        for handle in handles:
            assert "running for" in server.call("TaskOutput", task_id=handle, until="now").text
    assert ".git" not in quarantined(place)
    assert not quarantined(place)


def test_a_running_command_cannot_make_one_or_change_one(place: Scene) -> None:
    """ATTACK: a command that runs already points the .git file elsewhere, or makes such files itself."""
    with serving(place, WORKSPACE_WRITE) as server:
        handle = server.start(
            "while [ ! -e .worktrees/x/.git ]; do sleep 0.05; done; mkdir -p evil/worktrees/n;"
            " printf 'gitdir: %s/evil/worktrees/n\\n' $PWD > .worktrees/x/.git; touch wrote;"
            " while :; do :; done"
        )
        enter(server)
        until(lambda: not (place.root / ".worktrees/x/.git").exists())
        assert "appeared" in server.call("TaskOutput", task_id=handle, until="now").text
        done(server.call("TaskStop", task_id=handle))
        forged = (
            "mkdir -p new/.git/worktrees/n w; printf '../..\\n' > new/.git/worktrees/n/commondir;"
            " printf '%s/w/.git\\n' $PWD > new/.git/worktrees/n/gitdir; touch new/.git/worktrees/n/HEAD;"
            " printf 'gitdir: %s/new/.git/worktrees/n\\n' $PWD > w/.git; echo made; sleep 2"
        )
        server.call("bash", command=f"cd {place.root}; {forged}")
        assert not (place.root / "w/.git").exists()
        assert not (place.root / "new/.git").exists()


# --- modes, layers, protocols ----------------------------------------------------------------------------


def test_they_need_workspace_write(anywhere: Scene) -> None:
    before = anywhere.seen()
    with serving(anywhere, READ_ONLY) as server:
        assert not {"EnterWorktree", "ExitWorktree"} & set(server.tools())
        refused(server.call("EnterWorktree", name="x"), "--permission-mode workspace-write")
    assert not changed(before, anywhere.seen())


@pytest.mark.parametrize("degraded", [False, True], ids=["refused", "degraded"])
async def test_without_bubblewrap_they_need_the_operators_consent(degraded: bool, anywhere: Scene) -> None:
    planted(anywhere.root / "hostile")
    before = anywhere.around()
    async with workshop(
        anywhere.base,
        Permission.WORKSPACE_WRITE,
        found=HostExecutables(git=GIT),
        bubblewrap=False,
        allow_degraded=degraded,
    ) as server:
        assert ("EnterWorktree" in names(server)) == degraded
        running = await call(server, "bash", command="while :; do :; done", run_in_background=True)
        result = await server.call("EnterWorktree", {"name": "x", "path": "hostile"}, Person())
        assert (result.error is None) == degraded, result.text
        assert running.error is None or not degraded
        if degraded:
            assert (
                "worktree-x"
                in (await call(server, "bash", command="sleep 2.5; git rev-parse --abbrev-ref HEAD")).text
            )
            await server.call("ExitWorktree", {"id": id_in(result.text), "action": "remove"}, Person())
    assert not traps(anywhere.base)
    assert not changed(before, anywhere.around())


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_of_either_protocol_works_in_one(era: str, tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "danger-full-access")
    git(setup.root, "init", "--quiet", "--initial-branch=main")
    put(setup.root / "f", "f\n")
    git(setup.root, "add", "f")
    git(setup.root, "commit", "--quiet", "--message=first")
    async with connected(setup, era=era) as client:
        made = await client.call_tool("EnterWorktree", {"name": "x"})
        assert not made.is_error, text(made)
        assert made.structured_content is not None
        assert made.structured_content["path"] == str(setup.root / ".worktrees/x")
        assert made.structured_content["branch"] == "worktree-x"
        await client.call_tool("write_file", {"path": "new", "content": "x"})
        assert (setup.root / ".worktrees/x/new").exists()
        id_ = made.structured_content["id"]
        kept = await client.call_tool("ExitWorktree", {"id": id_, "action": "remove"})
        assert kept.is_error
        gone = await client.call_tool(
            "ExitWorktree", {"id": id_, "action": "remove", "discard_changes": True}
        )
        assert "was removed" in text(gone)
    assert not os.path.lexists(setup.root / ".worktrees/x")
