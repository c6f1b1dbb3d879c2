"""Agents that work in a git worktree of their own."""

from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.policy.rules import Narrowing
from mcp_toolserver.runtime.executables import HostExecutables
from tests.agents.agents import HANDLE, Agents, Call, Says, agents
from tests.agents.conftest import Started
from tests.git.hostile_git import GIT
from tests.search.searching import RIPGREP
from tests.support.confinement import git
from tests.support.workbench import Person

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORK = [
    Call(tool="write_file", arguments={"path": "new.txt", "content": "new"}),
    Call(tool="bash", arguments={"command": "pwd; cat a.txt"}),
]


def repository(root: Path) -> Path:
    """Make a repository with one commit."""
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "a.txt").write_text("old\n", encoding="utf-8")
    git(root, "add", "a.txt")
    git(root, "commit", "--quiet", "--message=first")
    return root


async def test_an_agent_works_in_a_worktree_that_stays_with_its_work(full: Agents) -> None:
    root = repository(full.root)
    full.model.scripts = {"go": [Says(calls=WORK), Says("Done.")]}
    result = await full.agent("go", isolation="worktree")
    agent = HANDLE.findall(result.text)[-1]
    place = root / ".worktrees" / agent
    assert result.text.startswith("Done.\n[its work is in the worktree ")
    assert "\n[files changed: new.txt]\n" in result.text
    assert f"branch worktree-{agent}; ExitWorktree with the id " in result.text
    assert (place / "new.txt").read_text(encoding="utf-8") == "new"
    assert not (root / "new.txt").exists()
    assert full.model.requests[-1].results[1].startswith(f"{place}\nold\n")
    assert f"- {place}" in full.model.requests[0].system
    refused = await full.agent("more", resume=agent, isolation="worktree")
    assert refused.error == "invalid_input"


async def test_a_worktree_without_work_is_removed_with_its_agent(full: Agents) -> None:
    root = repository(full.root)
    full.model.scripts = {"look": [Says(calls=[Call(tool="ls")]), Says("Done.")]}
    result = await full.agent("look", isolation="worktree", subagent_type="Explore")
    assert result.text.startswith("Done.\n[agent_")
    assert "a.txt" in full.model.requests[-1].results[0]
    assert not list((root / ".worktrees").glob("agent_*"))


async def test_who_may_not_create_a_worktree_gets_no_agent_in_one(
    full: Agents, started: Started, tmp_path: Path
) -> None:
    narrowed = Person(owner="connection 1")
    plan = Narrowing(source="plan mode", ceiling=Permission.READ_ONLY)
    full.server.narrowings.put(narrowed.owner, "plan", plan)
    reading = await started(Permission.READ_ONLY)
    for at, person in ((full, narrowed), (reading, Person())):
        root = repository(at.root)
        denied = await at.agent("go", person, isolation="worktree")
        assert denied.error in ("denied", "unavailable")
        assert not (root / ".worktrees").exists()
    found = HostExecutables(ripgrep=RIPGREP, git=GIT)
    rules = {"deny": ("EnterWorktree",), "found": found}
    async with agents(tmp_path, {}, Permission.DANGER_FULL_ACCESS, **rules) as at:
        root = repository(at.root)
        denied = await at.agent("go", isolation="worktree")
        assert (denied.error, "EnterWorktree" in denied.text) == ("denied", True)
        assert not (root / ".worktrees").exists()
