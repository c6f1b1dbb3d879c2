"""The stored agents of a workspace: who reads them and how long they stay; types and results as text."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.model import ModelTurn, ToolCall, ToolReply, UserText
from mcp_toolserver.errors import NotFound
from mcp_toolserver.runtime.agents.agent_files import custom_type
from mcp_toolserver.stores import agents
from mcp_toolserver.stores.agents import AgentRecord, StoredAgents
from mcp_toolserver.stores.database import Database
from mcp_toolserver.text.agents.conversation import cleaned
from mcp_toolserver.text.agents.types import BUILT_IN, choices
from tests.support.workbench import real_tools

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
        monkeypatch.setattr(agents, name, value)
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
