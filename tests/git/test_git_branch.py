"""What git_branch creates and switches, and what it refuses."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.runtime.git import switch as git_switch
from tests.git.hostile_git import Lair
from tests.git.repositories import GitTools, without_ids

EXAMPLE: dict[str, Any] = {"name": "fix/rounding", "create": True}


@pytest.fixture
def lair(tmp_path: Path) -> Lair:
    """A clean work tree on main, and the branch side, which adds, changes and deletes a file."""
    made = Lair(tmp_path)
    made.git("checkout", "-q", "file.txt")
    made.git("checkout", "-qb", "side")
    made.write("file.txt", "side\n")
    made.write("new/run", "#!/bin/sh\n")
    (made.repository / "new/run").chmod(0o755)
    (made.repository / "deep/inner.txt").unlink()
    made.commit()
    made.git("checkout", "-q", "main")
    return made


async def refused(at: GitTools, kind: str, **arguments: Any) -> str:
    """The error of a call that changes nothing."""
    return await at.unchanged(kind, "git_branch", **{"name": "side", **arguments})


async def test_branches_are_listed(at: GitTools) -> None:
    # Those of the same second are in any order.
    *branches, count = without_ids(await at.text("git_branch")).splitlines()
    assert sorted(branches) == ["  side <id> <time>", "* main <id> <time>"]
    assert count == "[2 branches]"
    at.lair.branches(40)
    assert "\n[42 branches, 12 older ones not shown]" in await at.text("git_branch")


async def test_a_switch_writes_what_differs_and_leaves_the_rest(at: GitTools) -> None:
    lair = at.lair
    lair.write("deep/kept", "untracked\n")
    text = await at.text("git_branch", name="side")
    head = lair.git("rev-parse", "side")[:12]
    assert without_ids(await at.text("git_branch", name="side")) == "Already on side at <id>."
    assert text == (
        f"Switched to side at {head} (before: main). 3 files changed in the work tree.\n"
        "D deep/inner.txt\nM file.txt\nA new/run"
    )
    assert lair.git("status", "--porcelain", "--branch") == "## side\n?? deep/\n"
    assert os.access(lair.repository / "new/run", os.X_OK)
    (lair.repository / "deep/kept").unlink()
    await at.text("git_branch", name="main")
    assert lair.git("status", "--porcelain", "--branch") == "## main\n"
    assert (lair.repository / "deep/inner.txt").read_text(encoding="utf-8") == "inner\n"
    # A folder that it empties goes.
    assert not (lair.repository / "new").exists()
    assert "checkout: moving from side to main" in lair.git("reflog")


async def test_a_branch_is_created_with_the_uncommitted_changes_or_elsewhere(at: GitTools) -> None:
    lair = at.lair
    lair.write("staged", "x\n")
    lair.git("add", "staged")
    text = await at.text("git_branch", name="feature/größer", create=True)
    assert without_ids(text) == (
        "Created and switched to feature/größer at <id> (before: main). 0 files changed in the work tree."
    )
    assert lair.git("symbolic-ref", "HEAD") == "refs/heads/feature/größer\n"
    text = await at.text("git_branch", name="later", create=True, start="side", switch=False)
    assert without_ids(text) == "Created later at <id>; feature/größer stays checked out."
    assert lair.git("rev-parse", "later") == lair.git("rev-parse", "side")
    assert lair.naive("config", "--get-regexp", "^branch").stdout == b""
    text = await at.text("git_branch", name="now", create=True, start="side")
    assert "3 files changed" in text
    assert lair.git("status", "--porcelain", "--branch") == "## now\nA  staged\n"


async def test_no_change_and_no_untracked_file_is_overwritten(at: GitTools) -> None:
    at.lair.write("file.txt", "changed\n")
    assert "uncommitted changes of 'file.txt'" in await refused(at, "conflict")
    at.lair.git("add", "file.txt")
    assert "uncommitted changes of 'file.txt'" in await refused(at, "conflict")
    at.lair.git("reset", "-q")
    (at.lair.repository / "file.txt").unlink()
    assert "'file.txt'" in await refused(at, "conflict")
    at.lair.git("checkout", "-q", "file.txt")
    at.lair.write(".git/info/exclude", "new/\n")
    at.lair.write("new/run", "mine\n")
    assert "untracked files: 'new/run'" in await refused(at, "conflict")
    # Nor is a file where a folder is to be.
    shutil.rmtree(at.lair.repository / "new")
    at.lair.write("new", "mine\n")
    await refused(at, "invalid_input")


async def test_files_are_put_back_if_git_cannot_follow(at: GitTools) -> None:
    new = {"name": "new", "create": True, "start": "side"}
    for lock, kind, arguments in (("HEAD.lock", "unavailable", new), ("index.lock", "conflict", {})):
        (at.lair.repository / ".git" / lock).touch()
        await refused(at, kind, **arguments)
        (at.lair.repository / ".git" / lock).unlink()


async def test_what_cannot_be_put_back_is_said(at: GitTools, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of the user's changes a file while git fails."""
    lair = at.lair
    (lair.repository / ".git/HEAD.lock").touch()
    change = git_switch._move_head

    async def move_head(*given: Any) -> None:
        lair.write("file.txt", "meanwhile\n")
        await change(*given)

    monkeypatch.setattr(git_switch, "_move_head", move_head)
    assert "could not all be put back" in await at.refused("conflict", "git_branch", name="side")
    assert (lair.repository / "file.txt").read_text(encoding="utf-8") == "meanwhile\n"


@pytest.mark.long
async def test_many_files_are_written_in_parts_and_more_are_refused(
    at: GitTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_switch, "_AT_ONCE", 2)
    await at.text("git_branch", name="side")
    assert at.lair.git("status", "--porcelain", "--branch") == "## side\n"
    (at.lair.repository / ".git/HEAD.lock").touch()
    before = at.state()
    assert (await at.ask("git_branch", name="main")).error == "unavailable"
    assert at.state() == before
    monkeypatch.setattr(git_switch, "MAX_FILES", 2)
    assert "More than 2 files differ" in await at.refused("invalid_input", "git_branch", name="main")


NEW = {"name": "x", "create": True}

REFUSED = {
    "not_found": ({"name": "unknown"},),
    "conflict": ({"create": True},),
    "invalid_input": (
        *({**NEW, "name": "side/x"}, {**NEW, "name": "side/x", "switch": False}, {"switch": False}),
        *({**NEW, "start": "a..b"}, {**NEW, "start": "HEAD:f"}, {**NEW, "start": "-f"}, {"start": "main"}),
        *({"name": name} for name in ("-f", "a\nb", "s*")),
        *({**NEW, "name": name} for name in ("", "../../hooks/x", "x.lock", "HEAD")),
    ),
    "denied": ({"path": "/etc"},),
}


async def test_bad_arguments_are_refused(at: GitTools) -> None:
    """ATTACK: also options, patterns, line breaks, and ways out."""
    before = at.state()
    await at.refuses("git_branch", REFUSED, name="side")
    assert at.state() == before


async def test_a_branch_of_another_work_tree_a_sparse_one_and_one_in_a_merge_are_not_switched(
    at: GitTools,
) -> None:
    at.lair.git("worktree", "add", "-q", "../tree", "side")
    assert "another work tree" in await refused(at, "conflict")
    at.lair.git("worktree", "remove", "../tree")
    at.lair.config("core.sparseCheckout true")
    assert "sparse" in await refused(at, "invalid_input")
    at.lair.git("config", "--unset", "core.sparseCheckout")
    at.lair.write("file.txt", "main\n")
    at.lair.commit()
    at.lair.naive("merge", "side")
    assert "in the middle of a merge" in await refused(at, "conflict")


async def test_rules_hold_for_each_file(at: GitTools) -> None:
    at = at.like(hides=["new/**"])
    text = await refused(at, "denied")
    assert "hides" in text
    assert "new" not in text
    at = at.like(deny=["capability:fs_write(inner.txt)"])
    await refused(at, "denied")
    at = at.like(ask=["git_branch(inner.txt)"])
    await refused(at, "denied")
    at = at.like(protects=lambda path: "is protected" if path.endswith("run") else None)
    assert "is protected" in await refused(at, "denied")


async def test_a_link_and_a_file_that_becomes_a_folder_are_left_to_the_user(at: GitTools) -> None:
    """ATTACK: a branch that holds a link out of the root."""
    lair = at.lair
    (lair.repository / "link").symlink_to("../outside")
    lair.git("checkout", "-q", "side")
    lair.commit()
    lair.git("checkout", "-q", "main")
    assert "'link': a symbolic link" in await refused(at, "invalid_input")
    lair.git("checkout", "-q", "side")
    lair.git("rm", "-q", "file.txt", "link")
    lair.write("file.txt/inner", "x\n")
    lair.commit()
    lair.git("checkout", "-q", "main")
    assert "a folder on the other" in await refused(at, "invalid_input")


async def test_nothing_is_written_through_a_link(at: GitTools) -> None:
    """ATTACK: a folder of the work tree is replaced by a link out of the root."""
    lair = at.lair
    outside = lair.folder / "outside"
    outside.mkdir()
    (lair.repository / "new").symlink_to(outside)
    result = await at.ask("git_branch", name="side")
    assert result.error == "denied"
    (lair.repository / "new").unlink()
    (lair.repository / "elsewhere").mkdir()
    (lair.repository / "new").symlink_to("elsewhere")
    assert "is a link in the work tree" in await refused(at, "denied")
    assert list(outside.iterdir()) == []


def planted(lair: Lair, path: str) -> None:
    """Make side a commit whose tree holds `path`, which git itself would not add."""
    tree = lair.git("hash-object", "-w", "file.txt").strip()
    kind, mode = "blob", "100755"
    for part in reversed(path.split("/")):
        entry = f"{mode} {kind} {tree}\t{part}\0".encode("utf-8", "surrogateescape")
        tree = lair.piped(entry, "mktree", "-z")
        kind, mode = "tree", "040000"
    lair.git("update-ref", "refs/heads/side", lair.git("commit-tree", "-m", "evil", tree).strip())


async def test_a_name_that_git_would_not_check_out_is_not_written(at: GitTools) -> None:
    """ATTACK: a tree that somebody made by hand."""
    hooks = sorted((at.lair.repository / ".git/hooks").iterdir())
    for path in (
        *(".git/hooks/post-checkout", "deep/.GIT/config", "git~1/config", "../outside", "a\nb", "\udcff"),
    ):
        planted(at.lair, path)
        await refused(at, "denied")
        assert sorted((at.lair.repository / ".git/hooks").iterdir()) == hooks
        assert not (at.lair.folder / "outside").exists()


async def test_filters_are_not_run(at: GitTools) -> None:
    lair = at.lair
    lair.config("filter.odd.smudge {evil}", "filter.odd.clean {evil}")
    lair.write(".git/info/attributes", "*.txt filter=odd\n")
    result = await at.ask("git_branch", name="side")
    assert (result.error, lair.ran()) == ("invalid_input", False)
    assert "stored through a filter" in result.text
    (lair.repository / ".git/info/attributes").unlink()
    await at.text("git_branch", name="side")
    lair.write(".gitattributes", "*.bin filter=odd\n")
    lair.commit()
    lair.ran()
    result = await at.ask("git_branch", name="main")
    assert (result.error, lair.ran()) == ("invalid_input", False)
    assert "differ in .gitattributes" in result.text
