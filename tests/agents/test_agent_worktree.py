"""Agents that work in a git worktree of their own."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.policy.narrowing import Narrowing
from mcp_toolserver.runtime.executables import HostExecutables
from tests.agents.agents import HANDLE, Agents, Call, Says, agents
from tests.git.hostile_git import GIT
from tests.search.searching import RIPGREP
from tests.support.confinement import git

READ, WRITE, DANGER = Permission

SCRIPT = [
    Says(
        calls=[
            Call(tool="write_file", arguments={"path": "new.txt", "content": "new"}),
            Call(tool="bash", arguments={"command": "pwd; cat a.txt"}),
        ]
    ),
    Says("Done."),
]


@asynccontextmanager
async def repository(
    folder: Path, scripts: Mapping[str, Sequence[Says]], mode: Permission = DANGER, **settings: Any
) -> AsyncGenerator[Agents]:
    """A server on a repository with one commit."""
    root = folder / "root"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "a.txt").write_text("old\n", encoding="utf-8")
    git(root, "add", "a.txt")
    git(root, "commit", "--quiet", "--message=first")
    found = HostExecutables(ripgrep=RIPGREP, git=GIT)
    async with agents(folder, scripts, mode, found=found, **settings) as at:
        yield at


async def test_an_agent_works_in_a_worktree_that_stays_with_its_work(tmp_path: Path) -> None:
    async with repository(tmp_path, {"go": SCRIPT}) as at:
        result = await at.agent("go", isolation="worktree")
        agent = HANDLE.findall(result.text)[-1]
        place = tmp_path / "root" / ".worktrees" / agent
        assert result.text.startswith("Done.\n[its work is in the worktree ")
        assert f"branch worktree-{agent}; ExitWorktree with the id " in result.text
        assert (place / "new.txt").read_text(encoding="utf-8") == "new"
        assert not (tmp_path / "root" / "new.txt").exists()
        assert at.model.requests[-1].results[1].startswith(f"{place}\nold\n")
        assert f"- {place}" in at.model.requests[0].system
        refused = await at.agent("more", resume=agent, isolation="worktree")
        assert refused.error == "invalid_input"


async def test_a_worktree_without_work_is_removed_with_its_agent(tmp_path: Path) -> None:
    async with repository(tmp_path, {"look": [Says(calls=[Call(tool="ls")]), Says("Done.")]}) as at:
        result = await at.agent("look", isolation="worktree", subagent_type="Explore")
        assert result.text.startswith("Done.\n[agent_")
        assert "a.txt" in at.model.requests[-1].results[0]
        assert not list((tmp_path / "root" / ".worktrees").glob("agent_*"))


async def test_who_may_not_create_a_worktree_gets_no_agent_in_one(tmp_path: Path) -> None:
    async with repository(tmp_path, {}, deny=("EnterWorktree",)) as at:
        denied = await at.agent("go", isolation="worktree")
        assert denied.error == "denied"
        assert "EnterWorktree" in denied.text
    assert not (tmp_path / "root" / ".worktrees").exists()


async def test_a_narrowed_caller_gets_no_agent_in_a_worktree(tmp_path: Path) -> None:
    async with repository(tmp_path, {}) as at:
        at.server.narrowings.put(LOCAL, "plan", Narrowing(source="plan mode", ceiling=READ))
        denied = await at.agent("go", isolation="worktree")
        assert denied.error in ("denied", "unavailable")
    assert not (tmp_path / "root" / ".worktrees").exists()


@pytest.mark.parametrize("mode", [READ], ids=["read-only"])
async def test_a_reading_server_creates_no_worktree(tmp_path: Path, mode: Permission) -> None:
    async with repository(tmp_path, {}, mode) as at:
        denied = await at.agent("go", isolation="worktree")
        assert denied.error in ("denied", "unavailable")
    assert not (tmp_path / "root" / ".worktrees").exists()
