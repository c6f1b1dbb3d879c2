"""Agent files of the workspace, which may be hostile: what they define, and how the rest is skipped; and the
stored agents: who reads them and how long they stay."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.model import ModelTurn, ToolCall, ToolReply, UserText
from mcp_toolserver.errors import NotFound
from mcp_toolserver.runtime.agents import agent_files
from mcp_toolserver.runtime.agents.agent_files import MAX_BYTES, custom_type, custom_types
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.stores import agents as stored_agents
from mcp_toolserver.stores.agents import AgentRecord, StoredAgents
from mcp_toolserver.stores.database import Database
from mcp_toolserver.text.agents.conversation import cleaned
from mcp_toolserver.text.agents.types import BUILT_IN, choices
from tests.agents.agents import Call, Says, agents
from tests.support.workbench import real_tools

GOOD = "---\nname: good\ndescription: does good\ntools: Read, Grep\nmodel: small\n---\nDo good.\n"


def folder(root: Path, name: str = ".claude/agents") -> Path:
    """The folder of agent files."""
    (root / name).mkdir(parents=True, exist_ok=True)
    return root / name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_files_of_all_roots_define_types(tmp_path: Path, root: Path) -> None:
    (folder(root) / "a.md").write_text(GOOD, encoding="utf-8")
    (folder(root) / "notes.txt").write_text(GOOD, encoding="utf-8")
    (folder(root, ".agents/agents") / "b.md").write_text("---\nname: other\n---\nHelp.", encoding="utf-8")
    (folder(tmp_path / "second") / "c.md").write_text("---\nname: third\n---\nHelp.", encoding="utf-8")
    found = custom_types(Workspace([str(root), str(tmp_path / "second")]))
    assert [one.name for one in found.types] == ["other", "good", "third"]
    assert found.skipped == ()


def _big(at: Path) -> None:
    with at.open("wb") as file:
        file.write(GOOD.encode())
        file.truncate(100 << 20)


HOSTILE: tuple[tuple[Callable[[Path], object], str], ...] = (
    (lambda at: at.symlink_to("../../../secret.md"), "inside"),
    (os.mkfifo, "not a regular file"),
    (os.mkdir, "folder"),
    (lambda at: at.symlink_to("/dev/zero"), "inside"),
    (_big, f"has more than {MAX_BYTES:,} bytes"),
    (lambda at: at.write_bytes(b"\xff\xfe"), "is not UTF-8"),
)


def test_a_hostile_file_is_skipped_with_the_reason_and_the_others_are_used(
    tmp_path: Path, root: Path
) -> None:
    (tmp_path / "secret.md").write_text(GOOD, encoding="utf-8")
    (folder(root) / "good.md").write_text(GOOD, encoding="utf-8")
    bad = folder(root) / "bad.md"
    for make, why in HOSTILE:
        make(bad)
        found = custom_types(Workspace([str(root)]))
        assert [one.name for one in found.types] == ["good"], why
        [skipped] = found.skipped
        assert "bad.md" in skipped
        assert why in skipped
        bad.rename(tmp_path / "aside") if bad.is_dir() else bad.unlink()


def test_a_folder_that_is_none_or_leads_out_is_not_read(tmp_path: Path, root: Path) -> None:
    assert custom_types(Workspace([str(root)])) == agent_files.CustomTypes((), ())
    (folder(tmp_path / "out", "agents") / "a.md").write_text(GOOD, encoding="utf-8")
    (root / ".claude").symlink_to(tmp_path / "out")
    found = custom_types(Workspace([str(root)]))
    assert (found.types, "inside" in found.skipped[0]) == ((), True)
    (root / ".claude").unlink()
    (root / ".claude").write_text("x", encoding="utf-8")
    assert custom_types(Workspace([str(root)])).types == ()


def test_a_file_that_a_rule_hides_and_the_second_of_a_name_are_skipped(root: Path) -> None:
    for name in ("a", "b"):
        (folder(root) / f"{name}.md").write_text(GOOD.replace("Do good", name), encoding="utf-8")
    found = custom_types(Workspace([str(root)]))
    assert [one.instructions for one in found.types] == ["a."]
    assert "has the name good, which another file has" in found.skipped[0]
    found = custom_types(Workspace([str(root)], hides=lambda spellings: spellings[-1].endswith("a.md")))
    assert [one.instructions for one in found.types] == ["b."]
    assert "hidden" in found.skipped[0]


def test_the_files_of_a_folder_are_limited(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        text = GOOD.replace("name: good", f"name: good{number}")
        (folder(root) / f"{number}.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr(agent_files, "MAX_FILES", 3)
    found = custom_types(Workspace([str(root)]))
    assert [one.name for one in found.types] == ["good0", "good1", "good2"]
    assert "more than 3 files" in found.skipped[0]
    monkeypatch.setattr(agent_files, "MAX_ENTRIES", 2)
    assert "more than 2 entries" in custom_types(Workspace([str(root)])).skipped[0]


@pytest.mark.requirement("SW-67")
async def test_an_unknown_type_names_the_files_that_were_skipped(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (folder(tmp_path / "root") / "good.md").write_text(GOOD, encoding="utf-8")
    (folder(tmp_path / "root") / "bad.md").write_text("Help.", encoding="utf-8")
    async with agents(tmp_path, {"go": [Says("Done.")]}, agent_models=("small=scripted",)) as at:
        refused = await at.agent("go", subagent_type="bad")
        assert refused.error == "invalid_input"
        assert "good (does good)" in refused.text
        assert "bad.md has no `name`" in refused.text
        assert (await at.agent("go", subagent_type="good")).text.startswith("Done.")


async def test_a_type_takes_rights_and_the_result_names_what_is_not_here(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    head = "name: limited\nmodel: opus\ntools: *, Nope\ndisallowedTools: Write, mcp__x__y"
    (folder(tmp_path / "root") / "limited.md").write_text(f"---\n{head}\n---\nHelp.", encoding="utf-8")
    plan = "---\nname: planner\npermissionMode: plan\n---\nPlan."
    (folder(tmp_path / "root") / "planner.md").write_text(plan, encoding="utf-8")
    write = Call(tool="write_file", arguments={"path": "a.txt", "content": "x"})
    async with agents(tmp_path, {"go": [Says(calls=[write, Call(tool="ls")]), Says("Done.")]}) as at:
        text = (await at.agent("go", subagent_type="limited")).text
        assert "[its type asks for the model opus, which is not configured; it used another]" in text
        assert "[its type names tools that are not here: mcp__x__y]" in text
        assert "allows only" in at.model.requests[-1].results[0]
        assert "dot files" in at.model.requests[-1].results[1]
        assert not {"write_file"} & {*at.model.requests[-1].tools}
        assert (await at.agent("go", subagent_type="planner")).text.startswith("Done.\n[agent_")
        assert not (at.root / "a.txt").exists()


@pytest.mark.requirement("SW-80")
async def test_agents_follow_the_language_and_the_model_that_config_stored(tmp_path: Path) -> None:
    models = ("Plan=large", "other=small")
    async with agents(tmp_path, {"go": [Says("Done.")]}, agent_models=models) as at:
        cases: tuple[tuple[str, dict[str, str], str], ...] = (
            ("small", {}, "small"),
            ("small", {"model": "large"}, "large"),
            ("small", {"subagent_type": "Plan"}, "large"),
            ("gone", {}, "scripted"),
            ("default", {}, "scripted"),
        )
        for value, arguments, expected in cases:
            assert (await at.call("Config", setting="model", value=value)).error is None
            answer = (await at.agent("go", **arguments)).text
            assert at.model.requests[-1].model == expected, (value, arguments)
            assert ("[Config asks for the model gone, which is not" in answer) == (value == "gone")
            assert "in this language" not in at.model.requests[-1].system
        assert (await at.call("Config", setting="language", value="Swiss German")).error is None
        await at.agent("go")
        assert "last answer in this language: Swiss German." in at.model.requests[-1].system


RECORD = AgentRecord(handle="agent_1", owner="ann", type="Plan", name="p", description="d")
DAY = 86_400.0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(str(tmp_path / "state"), ["/root"])
    yield made
    made.close()


async def test_an_agent_is_found_by_its_owner_until_it_is_removed(database: Database) -> None:
    store = StoredAgents(database)
    await store.save(RECORD, [UserText("one")])
    ended = replace(RECORD, status="finished", text="two", turns=1, cost=None, size=6, changed=("a", "b"))
    await store.save(ended, [ModelTurn(text="two")], at=1)
    assert await StoredAgents(database).find("agent_1", "ann") == ended
    assert await store.messages("agent_1") == [UserText("one"), ModelTurn(text="two")]
    found = json.loads(await store.transcript("agent_1", "ann"))
    assert (found["id"], found["text"], len(found["messages"])) == ("agent_1", "two", 2)
    for owner, handle in (("bob", "agent_1"), ("ann", "agent_2")):
        with pytest.raises(NotFound):
            await store.find(handle, owner)
        with pytest.raises(NotFound):
            await store.transcript(handle, owner)
    await store.save(replace(RECORD, handle="agent_2", owner="bob"), [UserText("two")])
    await store.remove("ann")
    with pytest.raises(NotFound):
        await store.find("agent_1", "ann")
    assert await store.messages("agent_1") == []
    assert await store.messages("agent_2") == [UserText("two")]


async def test_agents_of_a_dead_server_are_lost_and_those_of_a_living_one_run(
    database: Database, tmp_path: Path
) -> None:
    dead = Database(str(tmp_path / "state"), ["/root"])
    await StoredAgents(database).save(RECORD)
    await StoredAgents(dead).save(replace(RECORD, handle="agent_2"))
    dead.close()
    again = StoredAgents(database)
    assert (await again.find("agent_1", "ann")).status == "running"
    assert (await again.find("agent_2", "ann")).status == "lost"
    await again.give("ann", "bob")
    assert (await again.find("agent_2", "bob")).status == "lost"


async def test_what_ended_long_ago_or_first_is_removed_and_what_runs_stays(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stored() -> list[str]:
        with sqlite3.connect(database.path) as connection:
            return [handle for (handle,) in connection.execute("SELECT handle FROM agents ORDER BY handle")]

    async def save(store: StoredAgents, number: int, after: float, **more: Any) -> None:
        made = replace(RECORD, handle=f"agent_{number}", updated=RECORD.updated + after, **more)
        await store.save(made)

    for name, value in (("KEPT", 3), ("KEPT_BYTES", 100), ("KEPT_SECONDS", 7 * DAY)):
        monkeypatch.setattr(stored_agents, name, value)
    store = StoredAgents(database)
    await save(store, 0, 0, size=90)
    for number in range(1, 6):
        await save(store, number, number, status="finished")
    assert stored() == ["agent_0", "agent_4", "agent_5"]
    await save(store, 6, 9, status="finished", size=20)
    assert stored() == ["agent_0"]
    await save(store, 7, -8 * DAY)
    await save(store, 8, -8 * DAY, status="stopped")
    assert stored() == ["agent_0", "agent_7"]


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    call = ToolCall(id="\ud800", name="l\ud800s", arguments={"\ud800": ["\ud800ä"]})
    turn = ModelTurn(text="\ud800", calls=(call, replace(call, arguments="\ud800")))
    first = ToolCall(id="?", name="l?s", arguments={"?": ["?ä"]})
    assert cleaned(turn) == ModelTurn(text="?", calls=(first, replace(first, arguments="?")))
    assert cleaned(UserText("\ud800")) == UserText("?")
    assert cleaned((ToolReply(id="\ud800", name="\ud800", text="\ud800"),)) == (
        ToolReply(id="?", name="?", text="?"),
    )


def test_every_tool_that_a_type_names_exists_or_comes_with_another_part() -> None:
    known = {
        name for entry in real_tools().entries.values() for name in (entry.spec.name, *entry.other_names)
    }
    for kind in BUILT_IN.values():
        assert {*(kind.tools or ())} <= known | {"Skill"}


def test_the_texts_of_a_file_show_what_hides() -> None:
    kind = custom_type('---\nname: x\ndescription: "a\\nb\\e[2J"\n---\nHe\u202elp.')
    assert kind.description == "a b\\u{1b}[2J"
    assert kind.instructions == "He\\u{202e}lp."
    assert choices([kind]).endswith("; x (a b\\u{1b}[2J)")
    assert choices([custom_type("---\nname: y\n---\nHelp.")]).endswith("; y")
