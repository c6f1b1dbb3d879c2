"""EnterWorktree and ExitWorktree of a real server in its sandbox, where files of a repository lead elsewhere,
and while commands run. What a hostile repository would run is in test_git_served.py."""

import pytest

from tests.git.served import AUTHOR, Place, build, done, worktree
from tests.sandbox.cases import until
from tests.support.confinement import USERS, WORKSPACE_WRITE, Scene, changed, git, put, scene, serving
from tests.support.snapshot import snapshot

pytestmark = pytest.mark.xdist_group("served")


def quarantined(at: Scene) -> set[str]:
    return {str(path) for path in (at.state / "quarantine").rglob("*")}


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


# --- while commands run ----------------------------------------------------------------------------------


def comes_and_goes(at: Place) -> None:
    before = quarantined(at.scene)
    handles = [at.server.start("while :; do :; done"), at.server.start("touch own/ready; exec sleep 300")]
    until((at.own / "ready").exists)
    with worktree(at.server):
        at.server.bash("git status --porcelain > said; sleep 2.5")
        assert (at.own / ".worktrees/x/.git").is_file()
        for handle in handles:
            assert "running for" in at.server.call("TaskOutput", task_id=handle, until="now").text
        done(at.server.call("git_commit", message="m", paths=["said"]))
    at.server.bash("sleep 2.5")
    for handle in handles:
        assert "running for" in at.server.call("TaskOutput", task_id=handle, until="now").text
        done(at.server.call("TaskStop", task_id=handle))
    assert quarantined(at.scene) == before


def test_a_worktree_comes_and_goes_while_commands_run(place: Place) -> None:
    comes_and_goes(place)


def test_a_worktree_comes_and_goes_where_commands_may_write_in_git_folders() -> None:
    with scene(USERS[0]) as made:
        build(made)
        with serving(made, WORKSPACE_WRITE, *AUTHOR, "--git", "writable") as server:
            comes_and_goes(Place(server=server))


def test_a_running_command_cannot_make_one_or_change_one(place: Place) -> None:
    """ATTACK: a command that runs already points the .git file elsewhere, or makes such files itself."""
    own, server = place.own, place.server
    handle = server.start(
        "cd own; while [ ! -e .worktrees/x/.git ]; do sleep 0.05; done; mkdir -p evil/worktrees/n;"
        " printf 'gitdir: %s/evil/worktrees/n\\n' $PWD > .worktrees/x/.git; touch wrote;"
        " while :; do :; done"
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


# --- protocols -------------------------------------------------------------------------------------------
