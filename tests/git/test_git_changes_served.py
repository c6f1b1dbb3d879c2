"""git_commit, git_restore and git_branch of a real server in its sandbox, on repositories that want their
programs run and their files written elsewhere."""

import os
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.executables import HostExecutables
from tests.git.hostile_git import GIT
from tests.support.confinement import (
    BY_USER,
    FULL,
    READ_ONLY,
    USERS,
    WORKSPACE_WRITE,
    Said,
    Scene,
    Server,
    changed,
    git,
    put,
    scene,
    serving,
)
from tests.support.processes import call
from tests.support.snapshot import snapshot
from tests.support.workshop import names, workshop

AUTHOR = ("--git-author", "U <u@example.org>")
CHANGING = ("git_branch", "git_commit", "git_restore")

HOOKS = (
    *(
        "pre-commit",
        "prepare-commit-msg",
        "commit-msg",
        "post-commit",
        "post-checkout",
        "reference-transaction",
    ),
    *("post-index-change", "post-rewrite", "pre-auto-gc", "fsmonitor-watchman", "applypatch-msg"),
)

PROGRAMS = (
    *("core.fsmonitor", "core.editor", "core.pager", "core.sshCommand", "core.askPass", "sequence.editor"),
    *("gpg.program", "gpg.openpgp.program", "gpg.ssh.program", "diff.external", "credential.helper"),
    *("filter.odd.clean", "filter.odd.smudge", "filter.odd.process", "diff.odd.textconv", "merge.odd.driver"),
    *(
        "alias.commit",
        "alias.add",
        "alias.branch",
        "trailer.x.command",
        "hook.x.command",
        "uploadpack.packObjectsHook",
    ),
)


@pytest.fixture(params=BY_USER)
def place(request: pytest.FixtureRequest) -> Generator[Scene]:
    with scene(request.param) as made:
        yield made


@pytest.fixture
def anywhere() -> Generator[Scene]:
    """Where it makes no difference whose server it is."""
    with scene(USERS[0]) as made:
        yield made


def planted(folder: Path) -> None:
    """Programs in every place where git looks for some while it writes, a branch, and changes."""
    git(folder, "checkout", "--quiet", "-b", "feature")
    put(folder / "plain", "feature\n")
    git(folder, "add", "plain")
    git(folder, "commit", "--quiet", "--message=feature", "plain")
    git(folder, "checkout", "--quiet", "main")
    program = f"{folder}/evil.sh"
    # The server's git may write in .git, and only there.
    put(Path(program), f"#!/bin/sh\ntouch {folder}/.git/evil-ran {folder}/evil-ran\n")
    for name in HOOKS:
        shutil.copy(program, folder / ".git/hooks" / name)
    put(folder / "more.inc", f"[core]\n\tfsmonitor = {program}\n\thooksPath = {folder}/more-hooks\n")
    for name in HOOKS:
        put(folder / "more-hooks" / name, f"#!/bin/sh\nexec {program}\n").chmod(0o755)
    for name in PROGRAMS:
        git(folder, "config", name, f"!{program}" if name.startswith("alias.") else program)
    for setting in ("commit.gpgSign true", "tag.gpgSign true", "filter.odd.required true", "gc.auto 1"):
        git(folder, "config", *setting.split(" "))
    for setting in (
        "commit.template more.inc",
        "rerere.enabled true",
        "maintenance.auto true",
        "hook.x.event pre-commit",
    ):
        git(folder, "config", *setting.split(" "))
    put(folder / ".git/info/attributes", "*.odd filter=odd diff=odd merge=odd\n")
    git(folder, "config", "include.path", "../more.inc")
    put(folder / "new.txt", "new\n")
    put(folder / "tracked", "more\n")
    for trap in traps(folder):
        trap.unlink()


def done(said: Said) -> str:
    """The text of a call that succeeded."""
    assert not said.is_error, said.text
    return said.text


def refused(said: Said, why: str) -> None:
    assert said.is_error, said.text
    assert why in said.text


def everything(server: Server, folder: str) -> None:
    """Commit, amend, create, switch and restore."""
    at = {"path": folder}
    assert "A " in done(server.call("git_commit", message="one", paths=[f"{folder}/new.txt"]))
    assert "not signed" in done(
        server.call("git_commit", message="two", amend=True, paths=[f"{folder}/tracked"])
    )
    done(server.call("git_branch", name="made", create=True, **at))
    assert "A " in done(server.call("git_branch", name="feature", **at))
    assert "Restored" in done(server.call("git_restore", paths=[f"{folder}/plain"]))
    done(server.call("git_branch", name="main", **at))
    assert "two" in done(server.call("git_log", count=1, **at))


def traps(folder: Path) -> set[Path]:
    """Where programs have left their mark."""
    return set(folder.rglob("evil-ran"))


@pytest.mark.parametrize("flags", [(), ("--git", "writable")], ids=["protected", "writable"])
def test_nothing_of_a_repository_runs_and_only_git_folders_change(
    flags: tuple[str, ...], place: Scene
) -> None:
    """ATTACK: hooks, filters, signing programs, editors, aliases, monitors and included settings."""
    hostile = place.root / "hostile"
    planted(hostile)
    place.own()
    kept = ("config", "hooks", "info/attributes")
    before = place.around(), snapshot(*(hostile / ".git" / name for name in kept))
    with serving(place, WORKSPACE_WRITE, *AUTHOR, *flags) as server:
        everything(server, "hostile")
    assert not traps(place.base)
    assert not changed(before[0], place.around())
    assert not changed(before[1], snapshot(*(hostile / ".git" / name for name in kept)))
    assert git(hostile, "log", "-1", "--format=%s %an", "main") == "two U\n"
    assert git(hostile, "-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "fsck", "--strict") == ""


@pytest.mark.parametrize("words", [("commit", "-qam", "x"), ("branch", "x"), ("checkout", "feature")])
def test_the_attack_is_one(words: tuple[str, ...], anywhere: Scene) -> None:
    hostile = anywhere.root / "hostile"
    planted(hostile)
    put(hostile / "tracked", "x\n")
    run = ["git", "-C", str(hostile), "-c", "safe.directory=*", "-c", "commit.gpgSign=false", *words]
    subprocess.run(run, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=20)
    assert traps(hostile)


def test_git_writes_nowhere_but_in_the_git_folder(place: Scene) -> None:
    """ATTACK: parts of the .git folder are links to outside, where git would write."""
    for part in ("objects", "refs/heads", "logs"):
        outside = place.outside / part
        shutil.move(place.root / ".git" / part, outside)
        (place.root / ".git" / part).symlink_to(outside)
    place.own()
    before = place.around()
    with serving(place, WORKSPACE_WRITE, *AUTHOR) as server:
        refused(server.call("git_commit", message="m", paths=["d/tracked"]), "git could not change")
        refused(server.call("git_branch", name="x", create=True), "made no branch")
    assert not changed(before, place.around())


def test_a_store_that_a_repository_borrows_from_is_not_written(place: Scene) -> None:
    """ATTACK: objects/info/alternates names a store outside the roots."""
    shutil.copytree(place.root / ".git/objects", place.outside / "store")
    put(place.root / ".git/objects/info/alternates", f"{place.outside}/store\n")
    place.own()
    before = place.around()
    with serving(place, WORKSPACE_WRITE, *AUTHOR) as server:
        done(server.call("git_commit", message="m", all=True))
        done(server.call("git_branch", name="x", create=True))
    assert not changed(before, place.around())


def test_a_linked_work_tree_in_the_roots_has_its_own_branch(place: Scene) -> None:
    git(place.root, "worktree", "add", "--quiet", "-b", "side", "tree")
    put(place.root / "tree/tracked", "side\n")
    place.own()
    with serving(place, WORKSPACE_WRITE, *AUTHOR) as server:
        assert " on side, 1 file" in done(server.call("git_commit", message="m", paths=["tree/tracked"]))
        refused(server.call("git_branch", name="side"), "another work tree")
    assert git(place.root, "log", "-1", "--format=%s", "side") == "m\n"


def test_the_git_folder_of_another_place_is_not_written(place: Scene) -> None:
    """ATTACK: a .git file, a linked work tree and a submodule whose repository lies outside."""
    git(place.outside, "init", "--quiet", "--initial-branch=main", "away")
    put(place.outside / "away/f", "f\n")
    git(place.outside / "away", "add", "f")
    git(place.outside / "away", "commit", "--quiet", "--message=away")
    git(place.outside / "away", "worktree", "add", "--quiet", "-b", "tree", str(place.root / "tree"))
    (place.root / "file").mkdir()
    put(place.root / "file/.git", f"gitdir: {place.outside}/away/.git\n")
    (place.root / "link").mkdir()
    (place.root / "link/.git").symlink_to(place.outside / "away/.git")
    for name in ("tree", "file", "link"):
        put(place.root / name / "new", "new\n")
    place.own()
    before = place.around()
    (place.root / "link/.git").unlink()  # a link with a protected name stops every command
    with serving(place, WORKSPACE_WRITE, *AUTHOR) as server:
        for name in ("tree", "file"):
            refused(server.call("git_commit", message="m", paths=[f"{name}/new"]), "outside the roots")
            refused(server.call("git_branch", name="x", create=True, path=name), "outside the roots")
            refused(server.call("git_restore", paths=[f"{name}/f"]), "outside the roots")
    assert not changed(before, place.around())


def test_protected_names_stay_as_they_are(place: Scene) -> None:
    """ATTACK: a branch and an old commit bring what editors and shells act upon."""
    git(place.root, "checkout", "--quiet", "-b", "evil")
    for name in (".vscode/tasks.json", ".envrc", "d/.husky/x"):
        put(place.root / name, "evil\n")
    git(place.root, "add", ".vscode", ".envrc", "d")
    git(place.root, "commit", "--quiet", "--message=evil")
    git(place.root, "checkout", "--quiet", "main")
    place.own()
    with serving(place, WORKSPACE_WRITE, *AUTHOR) as server:
        refused(server.call("git_branch", name="evil"), "is protected")
        for name in (".envrc", ".vscode/tasks.json"):
            refused(server.call("git_restore", paths=[name], commit="evil"), "is protected")
    assert not (place.root / ".envrc").exists()
    assert not (place.root / ".vscode/tasks.json").exists()


def test_the_tools_commit_where_a_command_cannot(place: Scene) -> None:
    """The hint of a command names the tools, and they do not disturb a running one."""
    with serving(place, WORKSPACE_WRITE, *AUTHOR) as server:
        server.bash(
            "while [ ! -e stop ]; do sleep 0.1; done; git log -1 --format=%s > said", run_in_background=True
        )
        said = server.call("bash", command="git commit -qam x")
        assert "Use these tools: git_branch, git_commit, git_restore." in said.text
        done(server.call("git_commit", message="from the tool", paths=["d/tracked"]))
        script = "git status --porcelain d/tracked; git log -1 --format=%s; touch stop"
        assert server.bash(script).splitlines() == ["from the tool"]


@pytest.mark.parametrize("toolsets", ["default", "all"])
def test_the_hint_names_what_is_offered(toolsets: str, anywhere: Scene) -> None:
    with serving(anywhere, WORKSPACE_WRITE, "--toolsets", toolsets) as server:
        offered = set(CHANGING) & set(server.tools())
        said = server.call("bash", command="git commit -qam x")
    assert offered == (set(CHANGING) if toolsets == "all" else set())
    assert ("--toolsets default,git" in said.text) == (toolsets == "default")


def test_they_need_workspace_write(anywhere: Scene) -> None:
    before = anywhere.seen()
    with serving(anywhere, READ_ONLY, *AUTHOR) as server:
        assert not set(CHANGING) & set(server.tools())
        calls: tuple[dict[str, Any], ...] = ({"name": "x"}, {"message": "m", "all": True}, {"paths": ["f"]})
        for name, arguments in zip(CHANGING, calls, strict=True):
            refused(server.call(name, **arguments), "--permission-mode workspace-write")
    assert not changed(before, anywhere.seen())


def test_they_work_without_a_sandbox(anywhere: Scene) -> None:
    planted(anywhere.root / "hostile")
    with serving(anywhere, FULL, *AUTHOR) as server:
        everything(server, "hostile")
    assert not traps(anywhere.base)


def test_the_user_is_the_author_and_settings_of_the_repository_are_not(place: Scene) -> None:
    put(place.home / ".gitconfig", "[user]\n\tname = Own\n\temail = own@example.org\n")
    place.own()
    with serving(place, WORKSPACE_WRITE) as server:
        assert "Author: Own <own@example.org>" in done(
            server.call("git_commit", message="m", paths=["d/tracked"])
        )
        (place.home / ".gitconfig").unlink()
        refused(server.call("git_commit", message="m", paths=["d/hard"]), "--git-author")


def test_a_rule_of_the_operator_holds(place: Scene) -> None:
    config = put(
        place.base / "run/config.toml", '[rules]\ndeny = ["read_file(hard)", "git_commit(*.json)"]\n'
    )
    put(place.root / "x.json", "{}\n")
    place.own()
    with serving(place, WORKSPACE_WRITE, *AUTHOR, "--config", str(config)) as server:
        text = done(server.call("git_commit", message="m", all=True))
    assert "[2 changes left out, hidden by a rule of the operator]" in text
    names = git(place.root, "show", "--format=", "--name-only", "HEAD").split()
    assert "d/tracked" in names
    assert not {"d/hard", "x.json"} & set(names)


def test_a_git_that_is_stopped_leaves_the_repository_whole(anywhere: Scene) -> None:
    """A lock that somebody left is an error that says so, and nothing is removed."""
    lock = put(anywhere.root / ".git/index.lock", "")
    with serving(anywhere, WORKSPACE_WRITE, *AUTHOR) as server:
        refused(server.call("git_commit", message="m", paths=["d/tracked"]), "index.lock")
        assert lock.exists()
        os.unlink(lock)
        done(server.call("git_commit", message="m", paths=["d/tracked"]))


@pytest.mark.parametrize("degraded", [False, True], ids=["refused", "degraded"])
async def test_without_bubblewrap_they_need_the_operators_consent(degraded: bool, anywhere: Scene) -> None:
    """With Landlock alone git writes in the git folder, and nowhere else."""
    planted(anywhere.root / "hostile")
    moved = anywhere.outside / "objects"
    shutil.move(anywhere.root / ".git/objects", moved)
    (anywhere.root / ".git/objects").symlink_to(moved)
    before = anywhere.around()
    async with workshop(
        anywhere.base,
        Permission.WORKSPACE_WRITE,
        found=HostExecutables(git=GIT),
        bubblewrap=False,
        allow_degraded=degraded,
        git_author=AUTHOR[1],
    ) as server:
        assert ("git_commit" in names(server)) == degraded
        assert "git_restore" in names(server)
        said = await call(server, "git_commit", message="m", paths=["hostile/new.txt"])
        assert (said.error is None) == degraded, said.text
        said = await call(server, "git_commit", message="m", paths=["d/tracked"])
        assert said.error == ("unavailable" if degraded else "sandbox_unavailable")
    assert not traps(anywhere.base)
    assert not changed(before, anywhere.around())
