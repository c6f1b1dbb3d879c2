"""The git tools of a real server in its sandbox, on repositories that want their programs run and their files
written elsewhere, and while commands run."""

import os
import shutil
from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.executables import HostExecutables
from tests.git.hostile_git import GIT, Lair
from tests.git.served import (
    ATTACKS,
    AUTHOR,
    Place,
    ask_everything,
    build,
    change_everything,
    done,
    naively,
    planted,
    refused,
    repository_in,
    sprung,
    worktree,
    worktree_id,
)
from tests.support.cases import until
from tests.support.confinement import (
    FULL,
    USERS,
    changed,
    git,
    put,
    scene,
    serving,
)
from tests.support.processes import call
from tests.support.snapshot import snapshot
from tests.support.workbench import Person
from tests.support.workshop import names, workshop

pytestmark = pytest.mark.xdist_group("served")

KEPT = ("config", "hooks", "info/attributes")


def everything(at: Place) -> None:
    """Every question and every change, which run no program and leave all around as it was; then the same
    programs do run, so that the attack is one."""
    planted(at.own)
    put(at.own / ".gitattributes", "* filter=odd diff=odd\n")
    at.scene.own()
    seen, around = at.scene.seen(), at.scene.around()
    kept = snapshot(*(at.own / ".git" / name for name in KEPT))
    ask_everything(at.server)
    assert not changed(seen, at.scene.seen())
    (at.own / ".gitattributes").unlink()
    change_everything(at.server)
    assert git(at.own, "log", "-1", "--format=%s %an", "main") == "two U\n"
    assert git(at.own, "-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "fsck", "--strict") == ""
    assert not sprung(at.scene.base)
    assert not changed(around, at.scene.around())
    assert not changed(kept, snapshot(*(at.own / ".git" / name for name in KEPT)))
    for attack in ATTACKS:
        put(at.own / "tracked", f"{attack}\n")
        naively(at.own, attack)
        assert sprung(at.own), f"the attack is not one: {attack}"


def test_nothing_of_a_repository_runs_and_only_git_folders_change(place: Place) -> None:
    """ATTACK: hooks, filters, signing programs, editors, aliases, monitors and included settings."""
    everything(place)


@pytest.mark.long
def test_nothing_of_a_repository_runs_without_a_sandbox_either() -> None:
    with scene(USERS[0]) as made, serving(made, FULL, *AUTHOR) as server, repository_in(server) as at:
        everything(at)


def test_git_writes_nowhere_but_in_the_git_folder(place: Place) -> None:
    """ATTACK: parts of the .git folder are links to outside, where git would write."""
    (place.own / ".git/worktrees").mkdir(exist_ok=True)
    for part in ("objects", "refs/heads", "logs", "worktrees"):
        outside = place.scene.outside / part
        shutil.move(place.own / ".git" / part, outside)
        (place.own / ".git" / part).symlink_to(outside)
    place.scene.own()
    before = place.scene.around()
    call = place.server.call
    refused(call("git_commit", message="m", paths=["own/tracked"]), "git could not change")
    refused(call("git_branch", name="x", create=True, path="own"), "made no branch")
    refused(call("EnterWorktree", name="x", path="own"), "git could not change")
    assert not changed(before, place.scene.around())


def test_what_the_server_keeps_to_itself_is_hidden_from_git_too(place: Place) -> None:
    """GIT22: objects borrowed from a place that is hidden in the sandbox are not there."""
    heads: dict[Path, str] = {}
    for folder in (place.scene.state / "store", place.scene.outside / "borrowed"):
        git(place.own, "init", "--quiet", str(folder))
        put(folder / "borrowed", "borrowed\n")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message=borrowed", f"--author={folder.parent.name} <a@b>")
        heads[folder] = git(folder, "rev-parse", "HEAD").strip()
    lines = "".join(f"{folder}/.git/objects\n" for folder in heads)
    put(place.own / ".git/objects/info/alternates", lines)
    place.scene.own()
    hidden, shown = [place.server.call("git_show", commit=head, path="own") for head in heads.values()]
    assert "borrowed" in shown.text
    assert hidden.is_error
    assert "borrowed" not in hidden.text.replace("git_show", "")


def test_the_git_folder_of_another_place_is_not_written(place: Place) -> None:
    """ATTACK: a .git file, a linked work tree and a submodule whose repository lies outside."""
    away = place.scene.outside / "away"
    git(place.scene.outside, "init", "--quiet", "--initial-branch=main", "away")
    put(away / "f", "f\n")
    git(away, "add", "f")
    git(away, "commit", "--quiet", "--message=away")
    git(away, "worktree", "add", "--quiet", "-b", "tree", str(place.own / "tree"))
    put(place.own / "file/.git", f"gitdir: {away}/.git\n")
    quiet = ("-c", "protocol.file.allow=always")
    git(place.own, *quiet, "submodule", "--quiet", "add", str(away), "module")
    for name in ("tree", "file"):
        put(place.own / name / "new", "new\n")
    place.scene.own()
    before = place.scene.around()
    for name in ("own/tree", "own/file"):
        refused(place.server.call("git_commit", message="m", paths=[f"{name}/new"]), "outside the roots")
        refused(place.server.call("git_branch", name="x", create=True, path=name), "outside the roots")
        refused(place.server.call("git_restore", paths=[f"{name}/f"]), "outside the roots")
        refused(place.server.call("EnterWorktree", name="x", path=name), "outside the roots")
    refused(place.server.call("EnterWorktree", name="x", path="own/module"), "not in a folder called .git")
    assert not changed(before, place.scene.around())
    shutil.rmtree(away)


def test_the_tools_commit_where_a_command_cannot(place: Place) -> None:
    """The hint of a command names the tools, and they do not disturb a running one."""
    waiting = "cd own; while [ ! -e stop ]; do sleep 0.1; done; git log -1 --format=%s > said"
    place.server.bash(waiting, run_in_background=True)
    said = place.server.call("bash", command="cd own; git commit -qam x")
    assert "Use these tools: git_branch, git_commit, git_restore." in said.text
    done(place.server.call("git_commit", message="from the tool", paths=["own/tracked"]))
    script = "cd own; git status --porcelain tracked; git log -1 --format=%s; touch stop"
    assert place.server.bash(script).splitlines() == ["from the tool"]
    script = "cd own; until grep tool said; do sleep 0.1; done"
    assert "from the tool" in place.server.bash(script)


async def test_the_author_is_that_of_git_in_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    lair = Lair(tmp_path / "root")
    lair.config("user.name Here")
    monkeypatch.setenv("HOME", lair.environ["HOME"])
    async with workshop(tmp_path, Permission.WORKSPACE_WRITE, found=HostExecutables(git=GIT)) as server:
        said = await call(server, "git_commit", message="m", paths=["repository/file.txt"])
        assert "Author: Here <n@example.org>" in said.text
        Path(lair.environ["HOME"], ".gitconfig").unlink()
        lair.write("new", "new\n")
        said = await call(server, "git_commit", message="m", paths=["repository/new"])
        assert said.error is not None
        assert "--git-author" in said.text


@pytest.mark.parametrize("degraded", [False, True], ids=["refused", "degraded"])
async def test_without_bubblewrap_they_need_the_operators_consent(degraded: bool) -> None:
    """With Landlock alone git writes in the git folder, and nowhere else."""
    with scene(USERS[0]) as made:
        build(made)
        planted(made.root / "own")
        moved = made.outside / "objects"
        shutil.move(made.root / ".git/objects", moved)
        (made.root / ".git/objects").symlink_to(moved)
        before = made.around()
        async with workshop(
            made.base,
            Permission.WORKSPACE_WRITE,
            found=HostExecutables(git=GIT),
            bubblewrap=False,
            allow_degraded=degraded,
            git_author=AUTHOR[1],
        ) as server:
            assert {"git_commit", "EnterWorktree"} <= names(server) or not degraded
            assert degraded or not {"git_commit", "EnterWorktree"} & names(server)
            assert "git_restore" in names(server)
            said = await call(server, "git_commit", message="m", paths=["own/new.txt"])
            assert (said.error is None) == degraded, said.text
            said = await call(server, "git_commit", message="m", paths=["d/tracked"])
            assert said.error == ("unavailable" if degraded else "sandbox_unavailable")
            running = await call(server, "bash", command="exec sleep 300", run_in_background=True)
            entered = await server.call("EnterWorktree", {"name": "x", "path": "own"}, Person())
            assert (entered.error is None) == degraded, entered.text
            if degraded:
                assert running.error is None
                script = "sleep 2.5; git rev-parse --abbrev-ref HEAD"
                assert "worktree-x" in (await call(server, "bash", command=script)).text
                await call(server, "ExitWorktree", id=worktree_id(entered.text), action="remove")
        assert not sprung(made.base)
        assert not changed(before, made.around())


PIPES = {
    ".gitignore": ("git_status",),
    "deep/down/.ignore": ("grep_search",),
    ".git/info/exclude": ("glob_search", "EnterWorktree"),
    ".git/config": ("git_log",),
}
"""Each with the tools that read it."""


def test_a_named_pipe_that_a_program_would_wait_for_is_named(place: Place) -> None:
    pattern = {"pattern": "naught"}
    arguments = {"grep_search": pattern, "glob_search": pattern, "EnterWorktree": {"name": "x"}}
    (place.own / "deep/down").mkdir(parents=True)
    wrong: dict[tuple[str, str], str] = {}
    for name, tools in PIPES.items():
        pipe, kept = place.own / name, place.own / "kept"
        if pipe.exists():
            pipe.rename(kept)
        os.mkfifo(pipe)
        place.scene.own()
        for tool in tools:
            answer = place.server.call(tool, path="own", **arguments.get(tool, {}))
            if not (answer.is_error and f"{name}' is a named pipe" in answer.text):
                wrong[name, tool] = answer.text
        pipe.unlink()
        if kept.exists():
            kept.rename(pipe)
    assert not wrong


def test_the_folder_of_the_worktrees_is_a_real_one(place: Place) -> None:
    """ATTACK: it is a file, or a link to outside or to the hooks."""
    folder = place.own / ".worktrees"
    for target in (None, place.scene.outside, place.own / ".git/hooks"):
        if target is None:
            put(folder, "a file\n")
        else:
            folder.symlink_to(target)
        place.scene.own()
        before = place.scene.around()
        assert place.server.call("EnterWorktree", name="x", path="own").is_error, target
        assert not changed(before, place.scene.around())
        git(place.own, "rev-parse", "HEAD")
        assert git(place.own, "branch", "--list", "worktree-*") == ""
        assert not list((place.own / ".git").glob("mcp-toolserver-*"))
        assert not (place.own / ".git/hooks/x").exists()
        folder.unlink()


def test_links_and_names_of_a_commit_lead_nowhere(place: Place) -> None:
    """ATTACK: a commit with links to outside and to the .git folder, and with protected names."""
    for name, target in (
        ("away", place.scene.outside),
        ("hooks", ".git/hooks"),
        ("up", "../../.git/hooks"),
    ):
        (place.own / name).symlink_to(target)
    for name in (".envrc", "d/.vscode/tasks.json", ".claude/settings.json", ".mcp.json"):
        put(place.own / name, "evil\n")
    git(place.own, "add", "--force", "away", "hooks", "up", ".envrc", "d", ".claude", ".mcp.json")
    git(place.own, "commit", "--quiet", "--message=links")
    place.scene.own()
    before = place.scene.around(), snapshot(place.own / ".git/hooks")
    with worktree(place.server):
        tree = place.own / ".worktrees/x"
        for name in (".envrc", "d/.vscode", ".claude", ".mcp.json"):
            assert not (tree / name).exists()
        for path in ("away/new", "hooks/pre-commit", "up/pre-commit", ".envrc", ".git", "d/.vscode/x"):
            assert place.server.call("write_file", path=path, content="evil\n").is_error, path
        place.server.bash("echo evil > up/pre-commit; echo evil > away/new; echo evil > .git; true")
    assert not changed(before[0], place.scene.around())
    assert not changed(before[1], snapshot(place.own / ".git/hooks"))


@pytest.mark.long
def test_a_worktree_comes_and_goes_while_commands_run(place: Place) -> None:
    quarantine = place.scene.state / "quarantine"
    before = sorted(quarantine.rglob("*"))
    handles = [place.server.start("sleep 300; true"), place.server.start("touch own/ready; exec sleep 300")]
    until((place.own / "ready").exists)
    with worktree(place.server):
        place.server.bash("git status --porcelain > said; sleep 2.5")
        assert (place.own / ".worktrees/x/.git").is_file()
        for handle in handles:
            assert "running for" in place.server.call("TaskOutput", task_id=handle, until="now").text
        done(place.server.call("git_commit", message="m", paths=["said"]))
    place.server.bash("sleep 2.5")
    for handle in handles:
        assert "running for" in place.server.call("TaskOutput", task_id=handle, until="now").text
        done(place.server.call("TaskStop", task_id=handle))
    assert sorted(quarantine.rglob("*")) == before


def test_a_running_command_cannot_make_one_or_change_one(place: Place) -> None:
    """ATTACK: a command that runs already points the .git file elsewhere, or makes such files itself."""
    own, server = place.own, place.server
    handle = server.start(
        "cd own; while [ ! -e .worktrees/x/.git ]; do sleep 0.05; done; mkdir -p evil/worktrees/n;"
        " printf 'gitdir: %s/evil/worktrees/n\\n' $PWD > .worktrees/x/.git; touch wrote;"
        " exec sleep 300"
    )
    with worktree(server):
        until(lambda: "appeared" in server.call("TaskOutput", task_id=handle, until="now").text)
        assert not (own / ".worktrees/x/.git").exists()
        done(server.call("TaskStop", task_id=handle))
        forged = (
            "mkdir -p new/.git/worktrees/n w; printf '../..\\n' > new/.git/worktrees/n/commondir;"
            " printf '%s/w/.git\\n' $PWD > new/.git/worktrees/n/gitdir; touch new/.git/worktrees/n/HEAD;"
            " printf 'gitdir: %s/new/.git/worktrees/n\\n' $PWD > w/.git; echo made; sleep 2"
        )
        server.call("bash", command=f"cd {own}; {forged}")
        assert not (own / "w/.git").exists()
        assert not (own / "new/.git").exists()
