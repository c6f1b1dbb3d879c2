"""What agents may never do: more than the call that started them; and agents in a worktree of their own."""

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.policy.rules import Narrowing
from mcp_toolserver.runtime.executables import HostExecutables
from tests.agents.agents import HANDLE, Agents, Call, Says, agents, bash
from tests.agents.conftest import Started
from tests.git.hostile_git import GIT
from tests.search.searching import RIPGREP
from tests.support.calling import held
from tests.support.confinement import git
from tests.support.workbench import Person

pytestmark = pytest.mark.asyncio(loop_scope="session")

WRITES = (
    Call(tool="write_file", arguments={"path": "a.txt", "content": "changed"}),
    Call(tool="edit_file", arguments={"path": "a.txt", "old_string": "old", "new_string": "changed"}),
    bash("echo changed > a.txt; echo new > b.txt"),
    Call(tool="REPL", arguments={"language": "python", "code": "open('b.txt', 'w').write('new')"}),
    Call(tool="CallTool", arguments={"name": "write_file", "arguments": {"path": "b.txt", "content": "new"}}),
)
"""Attempts to write; all change files where the rights allow it."""

STARTS = Call(
    tool="Agent", arguments={"description": "x", "prompt": "write", "subagent_type": "general-purpose"}
)


def before(root: Path) -> dict[str, bytes]:
    """The files before any attempt."""
    (root / "a.txt").write_bytes(b"old\n")
    return held(root)


async def test_a_reading_agent_of_a_writing_caller_changes_nothing(at: Agents) -> None:
    scripts = {
        "explore": [Says(calls=[*WRITES, STARTS]), Says("I could not.")],
        "write": [Says(calls=WRITES), Says("done")],
    }
    for kind in ("Explore", "Plan"):
        at.plays(scripts)
        files = before(at.root)
        result = await at.agent("explore", subagent_type=kind, mode="danger-full-access")
        assert result.text.startswith("I could not.")
        assert not at.model.of("write")
        replies = at.model.requests[-1].results
        assert len(replies) == len(WRITES) + 1
        for reply in replies:
            assert f"the agent type {kind} allows" in reply
        assert not {"write_file", "bash", "Agent", "REPL"} & {*at.model.requests[0].tools}
        assert {"read_file", "grep_search"} <= {*at.model.requests[0].tools}
        assert held(at.root) == files
    # Without the type they change files.
    assert (await at.agent("write")).error is None
    assert held(at.root) == {**files, "a.txt": b"changed\n", "b.txt": b"new"}


async def test_a_mode_lowers_an_agent_and_those_that_it_starts(at: Agents) -> None:
    files = before(at.root)
    at.model.scripts = {
        "low": [Says(calls=[*WRITES, STARTS]), Says("I could not.")],
        "write": [Says(calls=WRITES), Says("neither")],
    }
    result = await at.agent("low", mode="plan")
    assert result.text.startswith("I could not.")
    for prompt in ("low", "write"):
        replies = at.model.of(prompt)[-1].results
        assert "the mode with which this agent was started" in replies[0]
    assert at.model.of("low")[-1].results[-1].startswith("neither")
    assert held(at.root) == files


async def test_a_verification_agent_reaches_the_servers_of_its_caller_if_it_has_the_same_rights(
    at: Agents,
) -> None:
    port = 8_767
    ask = f'python3 -c \'import socket; socket.create_connection(("127.0.0.1", {port})); print("reached")\''
    serve = f"python3 -m http.server {port} --bind 127.0.0.1"
    started = await at.call("bash", command=serve, run_in_background=True)
    await at.call("bash", command=f"until {ask} 2>/dev/null; do sleep 0.05; done")
    for kind, mode, reaches in (
        ("Verification", "danger-full-access", True),
        ("Verification", "plan", False),
        ("general-purpose", "danger-full-access", False),
    ):
        at.model.scripts = {"ask": [Says(calls=[bash(ask)]), Says("Done.")]}
        await at.agent("ask", subagent_type=kind, mode=mode)
        assert at.model.of("ask")[-1].results[0].startswith("reached") == reaches, (kind, mode)
    await at.call("TaskStop", task_id=re.findall(r"bg_\w+", started.text)[0])


async def test_nothing_raises_an_agent_above_a_reading_server(started: Started) -> None:
    at = await started(Permission.READ_ONLY)
    folder = at.root / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "greedy.md").write_text(
        "---\nname: greedy\ntools: '*'\npermission: danger-full-access\nmode: bypassPermissions\n---\nWrite.",
        encoding="utf-8",
    )
    files = before(at.root)
    at.model.scripts = {"write": [Says(calls=[*WRITES, STARTS]), Says("I could not.")]}
    for mode, kind in (
        ("danger-full-access", "greedy"),
        ("bypassPermissions", "general-purpose"),
        ("acceptEdits", "Verification"),
    ):
        result = await at.agent("write", subagent_type=kind, mode=mode)
        assert result.text.startswith("I could not.")
        assert held(at.root) == files, (mode, kind)


async def test_a_file_gives_an_agent_only_the_tools_that_it_names(at: Agents) -> None:
    folder = at.root / ".agents" / "agents"
    folder.mkdir(parents=True)
    (folder / "shell.md").write_text(
        "---\nname: shell\ndescription: runs echo\ntools: Read, Bash(echo *), NoSuchTool\n---\nSay hello.",
        encoding="utf-8",
    )
    files = before(at.root)
    run = bash("echo hello")
    at.model.scripts = {
        "go": [Says(calls=[run, *WRITES, STARTS]), Says("Hello.")],
        "write": [Says(calls=WRITES), Says("done")],
    }
    result = await at.agent("go", subagent_type="shell")
    assert result.text.startswith("Hello.")
    first, last = at.model.requests
    assert first.system.startswith("Say hello.")
    assert {*first.tools} == {"read_file", "bash"}
    assert last.results[0].startswith("hello")
    for reply in last.results[1:]:
        assert "the agent type shell allows only Read, Bash(echo *)" in reply
    assert held(at.root) == files


async def test_a_resumed_agent_has_no_more_rights_than_who_resumes_it(at: Agents) -> None:
    files = before(at.root)
    at.model.scripts = {"wait": [Says("Ready."), Says(calls=WRITES), Says("I could not.")]}
    owner = Person(owner="connection 1")
    first = await at.agent("wait", owner)
    plan = Narrowing(source="plan mode", ceiling=Permission.READ_ONLY)
    at.server.narrowings.put(owner.owner, "plan", plan)
    again = await at.agent("now write", owner, resume=HANDLE.findall(first.text)[0])
    assert again.text.startswith("I could not.")
    assert "plan mode" in at.model.requests[-1].results[0]
    assert held(at.root) == files


async def test_rules_hold_for_agents_and_for_their_types(tmp_path: Path) -> None:
    script = [Says(calls=[Call(tool="read_file", arguments={"path": "a.txt"})]), Says("Done.")]
    rules: dict[str, Any] = {"deny": ("Agent(Plan)", "read_file(a.txt)", "read_file(AGENTS.md)")}
    async with agents(tmp_path, {"read": script}, **rules) as at:
        before(at.root)
        (at.root / "AGENTS.md").write_text("Use tabs.", encoding="utf-8")
        assert (await at.agent("read", subagent_type="planner")).error == "denied"
        assert (await at.agent("read")).text.startswith("Done.")
        assert "denied here by the rule" in at.model.requests[-1].results[0]
        assert "Use tabs." not in at.model.requests[-1].system


@pytest.mark.requirement("CL-45")
async def test_agents_start_each_other_to_a_depth_of_five(at: Agents) -> None:
    def next_one(number: int) -> Call:
        return Call(tool="Agent", arguments={"description": "x", "prompt": f"depth {number}"})

    at.model.scripts = {
        f"depth {number}": [Says(calls=[next_one(number + 1)]), Says(f"depth {number} is done")]
        for number in range(1, 7)
    }
    result = await at.agent("depth 1")
    assert result.text.startswith("depth 1 is done")
    assert not at.model.of("depth 6")
    [reply] = at.model.of("depth 5")[-1].results
    assert "to a depth of 5" in reply


async def test_each_call_of_an_agent_is_recorded_with_the_call_that_started_it(at: Agents) -> None:
    kept: list[CallRecord] = []
    at.model.scripts = {"go": [Says(calls=[Call(tool="ls"), Call(tool="grep_search")]), Says("Done.")]}
    await replace(at, server=replace(at.server, observers=(kept.append,))).agent("go")
    # A call is recorded when it ends, so that of Agent comes last.
    [*own, outer] = kept
    assert outer.tool == "Agent"
    assert sorted((one.name, one.parent_id) for one in own) == [("grep_search", outer.id), ("ls", outer.id)]
    assert all(one.session.startswith("agent agent_") for one in own)


WORK = [
    Call(tool="write_file", arguments={"path": "new.txt", "content": "new"}),
    bash("pwd; cat a.txt"),
    Call(tool="Agent", arguments={"description": "a test", "prompt": "inner"}),
]


def repository(root: Path) -> Path:
    """Make a repository with one commit."""
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "a.txt").write_text("old\n", encoding="utf-8")
    git(root, "add", "a.txt")
    git(root, "commit", "--quiet", "--message=first")
    for name in ("user.name", "user.email"):
        git(root, "config", name, "n@example.org")
    return root


async def isolated_work(at: Agents, *calls: Call) -> tuple[str, Path, str]:
    """The answer of an isolated agent that makes these calls, its worktree, and the id of that."""
    inner = [Says(calls=[bash("pwd; ls")]), Says("Inner.")]
    at.model.scripts = {"go": [Says(calls=calls), Says("Done."), Says("More.")], "inner": inner}
    text = (await at.agent("go", isolation="worktree")).text
    place = at.root / ".worktrees" / HANDLE.findall(text)[-1]
    return text, place, next(iter(re.findall("worktree_[0-9a-f]{32}", text)), "")


async def test_an_agent_works_in_a_worktree_that_stays_with_its_work(full: Agents) -> None:
    root = repository(full.root)
    text, place, _ = await isolated_work(full, *WORK)
    assert text.startswith("Done.\n[its work is in the worktree ")
    known = "0 commits; changed files: new.txt (1 not committed); ExitWorktree with the id "
    assert f"branch worktree-{place.name}: {known}" in text
    assert "\n[files changed: new.txt]\n" in text
    assert (place / "new.txt").read_text(encoding="utf-8") == "new"
    assert not (root / "new.txt").exists()
    assert full.model.requests[-1].results[1].startswith(f"{place}\nold\n")
    assert f"- {place}" in full.model.requests[0].system
    assert full.model.of("inner")[-1].results == (f"{place}\na.txt\nnew.txt\n",)
    plain = HANDLE.findall((await full.agent("go")).text)[-1]
    assert (await full.agent("more", resume=plain, isolation="worktree")).error == "invalid_input"
    # One without work is removed with its agent.
    text, place, _ = await isolated_work(full, Call(tool="ls"))
    assert text.startswith("Done.\n[agent_")
    assert "a.txt" in full.model.requests[-1].results[0]
    assert not place.exists()
    await full.agent("go", resume=place.name)
    assert f"- {place}" in full.model.requests[-1].system


EDIT = (
    "printf 'def double(n):\\n    return n * 2\\n' > double.py"
    " && python3 -B -c 'import double; assert double.double(2) == 4'"
    " && git add double.py && git commit -qm 'Add double' && git status --short && git log --format=%s"
)


def state(root: Path) -> tuple[object, ...]:
    """All that a merge changes."""
    files = {path: path.read_bytes() for path in (root / ".git/index", *root.glob("*.txt"))}
    return git(root, "rev-parse", "HEAD"), git(root, "symbolic-ref", "HEAD"), files


async def test_the_client_merges_with_one_call_what_an_agent_edited_tested_and_committed(at: Agents) -> None:
    root = repository(at.root)
    write = Call(tool="write_file", arguments={"path": "a.txt", "content": "new\n", "overwrite": True})
    commit = Call(tool="git_commit", arguments={"message": "Change a", "paths": ["a.txt"]})
    text, place, id_ = await isolated_work(at, bash(EDIT), write, commit)
    edited, _, committed = at.model.requests[-1].results
    assert (edited.split("\n")[:2], " on worktree-" in committed) == (["Add double", "first"], True)
    assert "2 commits; changed files: a.txt, double.py (0 not committed)" in text
    (root / "a.txt").write_text("mine\n", encoding="utf-8")
    refused = await at.call("ExitWorktree", id=id_, action="merge")
    assert (refused.error, "uncommitted changes of 'a.txt'" in refused.text) == ("conflict", True)
    (root / "a.txt").write_text("old\n", encoding="utf-8")
    done = await at.call("ExitWorktree", id=id_, action="merge")
    head = git(place, "rev-parse", "HEAD").strip()
    assert done.text.startswith(f"Merged 2 commits of worktree-{place.name} into main at {head[:12]}: 2 ")
    assert (git(root, "rev-parse", "main").strip(), git(root, "status", "--porcelain")) == (head, "")
    assert "Nothing was changed" in (await at.call("ExitWorktree", id=id_, action="merge")).text
    resumed = await at.agent("more", resume=place.name)
    assert (resumed.text.startswith("More."), f"- {place}" in at.model.requests[-1].system) == (True, True)
    # It has nothing that main has not.
    assert not place.exists()


async def test_what_cannot_be_merged_leaves_everything_as_it_was(at: Agents) -> None:
    root = repository(at.root)
    _, place, id_ = await isolated_work(at, *WORK)
    refused = await at.call("ExitWorktree", id=id_, action="merge")
    assert (refused.error, "- new.txt (not committed)" in refused.text) == ("conflict", True)
    applied = await at.call("ExitWorktree", id=id_, action="apply")
    assert f"worktree-{place.name} to {root} without a commit: 1 file changed.\nA new.txt" in applied.text
    assert git(root, "status", "--porcelain") == "?? new.txt\n"
    git(place, "commit", "-qm", "theirs")
    # Both sides go on: a three-way merge.
    (root / "new.txt").rename(root / "b.txt")
    git(root, "add", "b.txt")
    git(root, "commit", "-qm", "ours")
    assert (await at.call("ExitWorktree", id=id_, action="merge")).error is None
    assert git(root, "log", "-1", "--format=%s") == f"Merge branch 'worktree-{place.name}' into main\n"
    assert git(root, "status", "--porcelain") == ""
    (root / "a.txt").write_text("ours\n", encoding="utf-8")
    git(root, "commit", "-qam", "ours")
    before = state(root)
    for file, kind, why in (
        ("a.txt", "conflict", "+<<<<<<< "),
        (".vscode/tasks.json", "denied", "'.vscode/tasks.json': it is protected"),
    ):
        (place / file).parent.mkdir(exist_ok=True)
        (place / file).write_text("{}\n", encoding="utf-8")
        git(place, "add", "--force", file)
        git(place, "commit", "-qm", "theirs")
        for action in ("merge", "apply"):
            refused = await at.call("ExitWorktree", id=id_, action=action)
            assert (refused.error, why in refused.text) == (kind, True), refused.text
            assert state(root) == before
        git(place, "reset", "-q", "--hard", "HEAD~")


@pytest.mark.parametrize(
    ("given", "committed", "shown"),
    [
        ({}, True, True),
        pytest.param({"git": "protected"}, False, True, marks=pytest.mark.long),
        ({"deny": ("Read(*.key)", "Write(a.txt)")}, False, False),
    ],
)
async def test_commands_of_an_isolated_agent_are_kept_from_what_steers_git(
    at: Agents, tmp_path: Path, given: dict[str, Any], committed: bool, shown: bool
) -> None:
    """ATTACK: it sees the repository in which the user works."""
    own = agents(tmp_path, {}, found=HostExecutables(ripgrep=RIPGREP, git=GIT), **given)
    async with own if given else nullcontext(at) as at:
        root = repository(at.root)
        (root / "x.key").write_text("the secret", encoding="utf-8")
        git(root, "add", "x.key")
        git(root, "commit", "-qm", "key")
        attack = (
            "cd ../../.git; echo x > hooks/pre-commit; echo x > info/attributes; rm -rf config;"
            "echo x >> config; mv hooks h; cd worktrees/*; echo x > commondir; echo x > config.worktree"
        )
        commit = "git commit -q --allow-empty -m mine; echo x > .git"
        work = f"touch new; head -c 4 ../../.git/index; git show HEAD:x.key; {commit}"
        before = (root / ".git/config").read_bytes(), [*root.glob(".git/hooks/*")]
        text, place, id_ = await isolated_work(at, bash(attack), bash(work))
        seen = at.model.requests[-1].results[1]
        assert ("1 commit;" in text, {"the secret" in seen, "DIRC" in seen}) == (committed, {shown})
        assert ((root / ".git/config").read_bytes(), [*root.glob(".git/hooks/*")]) == before
        assert [*root.glob(".git/info/attributes"), *root.glob(".git/worktrees/*/config.worktree")] == []
        assert (place / ".git").read_text("utf-8").startswith("gitdir: ")
        git(place, "update-index", "--no-skip-worktree", "x.key")
        (place / "a.txt").write_text("new\n", encoding="utf-8")
        git(place, "commit", "-qam", "theirs")
        said = (await at.call("ExitWorktree", id=id_, action="apply")).text
        assert ("'a.txt': write_file is denied" in said, "hides" in said) == (not shown, not shown)
        assert ((root / "a.txt").read_text("utf-8") == "new\n") == shown


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
