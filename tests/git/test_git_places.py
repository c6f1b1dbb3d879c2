"""Where a repository may lie for its history to be shown, and what is remembered of it."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from mcp_toolserver.errors import ToolError, Unavailable
from mcp_toolserver.runtime.git.runner import (
    MAX_LISTING,
    RACY_WINDOW_NS,
)
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from tests.git.hostile_git import Asked, Lair, asker, asking
from tests.git.repositories import GitTools, git_broker
from tests.support.processes import PATIENCE

TOOLS = (
    ("git_status", {}),
    ("git_diff", {}),
    ("git_log", {}),
    ("git_show", {}),
    ("git_blame", {"path": "file.txt"}),
    ("repo_overview", {}),
)


async def test_a_repository_that_begins_above_the_root_is_refused(at: GitTools) -> None:
    lair = at.lair
    lair.write("deep/file.txt", "x\n")
    lair.commit()
    below = at.like(roots=[lair.repository / "deep"])
    for tool, arguments in TOOLS:
        assert f"--root {lair.repository}" in await below.refused("denied", tool, **arguments)


async def test_a_repository_kept_outside_is_refused(at: GitTools) -> None:
    lair = at.lair
    linked = lair.folder / "linked"
    lair.git("worktree", "add", "-q", str(linked))
    assert str(lair.repository) in await at.like(roots=[linked]).refused("denied", "git_show")
    await at.like(roots=[linked, lair.repository]).text("git_show")


async def test_a_git_folder_that_is_a_link_out_of_the_root_is_refused(at: GitTools) -> None:
    lair = at.lair
    (lair.repository / ".git").rename(lair.folder / "elsewhere")
    (lair.repository / ".git").symlink_to(lair.folder / "elsewhere")
    assert lair.naive("status").returncode == 0
    assert (await at.ask("git_status")).error == "denied"


async def test_a_linked_work_tree_inside_the_root_is_read(at: GitTools) -> None:
    lair = at.lair
    lair.git("worktree", "add", "-q", str(lair.repository / "trees/side"))
    assert (await at.text("git_status", path="trees/side")).startswith("## side\n")
    lair.write("trees/side/new", "x\n")
    assert "?? trees/side/new" in await at.text("git_status", path="trees/side")


async def test_a_submodule_is_left_alone_and_refused(at: GitTools) -> None:
    """GIT14: it keeps its files by core.worktree, and its configuration is its own."""
    lair = at.lair
    lair.found(lair.folder / "library")
    lair.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "../library", "module")
    lair.commit()
    lair.write("module/file.txt", "changed\n")
    lair.git("config", "core.fsmonitor", str(lair.evil), cwd=lair.repository / "module")
    assert lair.springs("status")
    assert await at.text("git_status") == "## main\n[nothing to commit]"
    assert (await at.ask("git_status", path="module")).error == "denied"
    assert not lair.ran()


async def test_a_git_folder_that_is_hidden_outside_of_the_client_or_too_long_to_look_through_is_not_read(
    at: GitTools,
) -> None:
    lair = at.lair
    await at.like(hides=[".git/**"]).refused("denied", "git_log")
    await at.like(hides=["other/**"]).text("git_log")
    wide = at.like(roots=[lair.folder])
    await wide.text("git_log", path="repository")
    narrow = wide.at.host.restricted_to((str(lair.repository / "deep"),))
    narrowed = replace(wide, at=replace(wide.at, host=narrow))
    await narrowed.refused("denied", "git_log", path=str(lair.repository / "deep"))
    with (lair.repository / ".git/config").open("a", encoding="utf-8") as config:
        config.write("[long]\n" + f"name = {'x' * 1000}\n" * (MAX_LISTING // 1000 + 1))
    assert lair.naive("status").returncode == 0
    await at.refused("denied", "git_status")


async def test_git_that_uses_too_much_is_ended_and_reported(lair: Lair) -> None:
    greedy = lair.folder / "git"
    greedy.write_text("#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait\n", encoding="utf-8")
    greedy.chmod(0o755)
    async with asking(lair, program=str(greedy), bounds=CommandBounds(processes=4)) as ask:
        with anyio.fail_after(PATIENCE), pytest.raises(Unavailable):
            await ask("status", timeout=60)


ALL = ["rev-parse", "config", "status"]


@pytest.fixture
def remembering(lair: Lair, git_broker: Broker) -> Asked:
    """Our git; it relies upon whatever has not changed since it was asked."""
    return asker(lair, git_broker, racy_window_ns=0)


async def test_what_was_asked_once_is_not_asked_again_unless_it_has_just_changed(
    lair: Lair, git_broker: Broker, remembering: Asked
) -> None:
    assert await remembering.runs() == ALL
    assert await remembering.runs() == ["status"]
    assert await remembering.runs(lair.repository / "deep") == ALL
    assert await remembering.runs(lair.repository / "deep") == ["status"]
    lair.write("file.txt", "changed\n")
    lair.commit()
    assert await remembering.runs() == ["status"]
    careful = asker(lair, git_broker, racy_window_ns=60 * RACY_WINDOW_NS)
    assert [await careful.runs(), await careful.runs()] == [ALL, ALL]


async def test_a_configuration_that_includes_others_is_asked_for_every_time(
    lair: Lair, remembering: Asked
) -> None:
    lair.config("include.path ../later.inc")
    lair.write(".gitattributes", "*.txt filter=odd\n")
    assert await remembering.runs() == ALL
    lair.write("later.inc", f'[filter "odd"]\nclean = {lair.evil}\n')
    # As long as before, so that git has to look at the content.
    lair.write("deep/inner.txt", "INNER\n")
    assert lair.springs("status")
    lair.write("deep/inner.txt", "Inner\n")
    assert await remembering.runs() == ALL
    assert not lair.ran()


def filter_in(file: str) -> Callable[[Lair], None]:
    def plant(lair: Lair) -> None:
        with (lair.folder / file).open("a", encoding="utf-8") as config:
            config.write(f'[filter "odd"]\nclean = {lair.evil}\n')

    return plant


def nearer_repository(lair: Lair) -> None:
    lair.git("init", "-q", cwd=lair.repository / "deep")
    lair.write("deep/.gitattributes", "*.txt filter=odd\n")
    lair.git("add", ".", cwd=lair.repository / "deep")
    lair.git("config", "filter.odd.clean", str(lair.evil), cwd=lair.repository / "deep")


PLANTS = (
    *(filter_in("repository/.git/config"), filter_in("repository/.git/config.worktree")),
    *(filter_in("home/.gitconfig"), filter_in("home/.config/git/config"), nearer_repository),
)


async def test_a_program_planted_after_the_first_question_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "ground"
    with git_broker(folder / "home") as started:
        for number, plant in enumerate(PLANTS):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            lair = Lair(folder)
            lair.write("deep/inner.txt", "inner\n")
            lair.write(".gitattributes", "*.txt filter=odd\n")
            lair.config("extensions.worktreeConfig true")
            (lair.folder / "home/.config/git").mkdir(parents=True)
            deep, at = lair.repository / "deep", asker(lair, started, racy_window_ns=0)
            await at.runs(deep)
            assert await at.runs(deep) == ["status"]
            plant(lair)
            lair.write("deep/inner.txt", "INNER\n")
            assert lair.springs("status", cwd=deep), f"the attack is not one: {number}"
            lair.write("deep/inner.txt", "Inner\n")
            assert await at.runs(deep) == ALL
            assert not lair.ran()


async def test_a_folder_for_configuration_planted_later_is_seen(lair: Lair, remembering: Asked) -> None:
    other = lair.folder / "other"
    lair.found(other)
    lair.config("core.fsmonitor {evil}", "core.fsmonitorHookVersion 1", cwd=other)
    await remembering.runs()
    assert await remembering.runs() == ["status"]
    lair.write(".git/commondir", f"{other}/.git\n")
    assert lair.springs("status")
    with pytest.raises(ToolError) as refusal:
        await remembering.runs()
    assert refusal.value.kind == "denied"
    assert not lair.ran()


async def test_a_repository_that_breaks_does_not_lead_to_the_one_above(
    lair: Lair, remembering: Asked
) -> None:
    """Nothing that is looked at changes. Git notices, and stops at the repository that it is given."""
    lair.found(lair.repository / "nested")
    nested = lair.repository / "nested"
    lair.write(".gitattributes", "*.txt filter=odd\n")
    lair.config("filter.odd.clean {evil}")
    await remembering.runs(nested)
    assert await remembering.runs(nested) == ["status"]
    (nested / ".git/HEAD").write_text("broken", encoding="utf-8")
    lair.write("nested/file.txt", "changed\n")
    assert lair.springs("add", ".", cwd=nested)
    with pytest.raises(AssertionError):
        await remembering.runs(nested)
    assert not lair.ran()
