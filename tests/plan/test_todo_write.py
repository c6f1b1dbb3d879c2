"""What TodoWrite keeps, by either of its contracts, and what Config reads, changes, and leaves alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from tests.plan.planning import database, planner, refused_each
from tests.support.workbench import Person, call
from tests.support.workshop import granted

HANDLE = re.compile(r"todos_[0-9a-f]{32}")


def todo(content: str, status: str = "pending", **more: str) -> dict[str, str]:
    return {"content": content, "activeForm": f"{content} now", "status": status, **more}


def handle(result: Result) -> str:
    assert result.error is None, result.text
    return HANDLE.findall(result.text)[0]


def record(result: Result) -> dict[str, Any]:
    assert result.data is not None, result.text
    return result.data


@pytest.fixture
def at(tmp_path: Path) -> Dispatcher:
    return planner(tmp_path)


async def test_a_list_is_replaced_and_the_old_one_reported(at: Dispatcher) -> None:
    first = await call(at, "TodoWrite", todos=[todo("parse", "in_progress"), todo("test", "in_progress")])
    name = handle(first)
    assert first.text == f"list_id {name}: 0 of 2 done\n1 [~] parse: parse now\n2 [~] test: test now"
    second = await call(at, "TodoWrite", list_id=name, todos=[todo("parse", "completed")], action=None)
    assert handle(second) == name
    assert [one["content"] for one in record(second)["oldTodos"]] == ["parse", "test"]
    assert [one["content"] for one in record(second)["newTodos"]] == ["parse"]
    assert record(first)["oldTodos"] == []
    assert record(first)["newTodos"][0] == {
        "id": 1,
        "content": "parse",
        "activeForm": "parse now",
        "status": "in_progress",
        "priority": "medium",
    }
    # A list that is finished is empty then.
    kept = await call(at, "TodoWrite", action="list", list_id=name)
    assert record(kept)["newTodos"] == []
    assert kept.text == f"list_id {name}: 0 of 0 done"


async def test_a_finished_list_without_verification_asks_for_it(at: Dispatcher) -> None:
    for contents, status, nudged in (
        (["a", "b", "c"], "completed", True),
        (["a", "b"], "completed", False),
        (["a", "Verify b", "c"], "completed", False),
        (["a", "b", "c"], "pending", False),
    ):
        result = await call(at, "TodoWrite", todos=[todo(content, status) for content in contents])
        assert record(result).get("verificationNudgeNeeded") is (True if nudged else None)
        assert ("verify it" in result.text) is nudged


async def test_what_is_left_out_has_its_usual_value_and_priorities_stay(at: Dispatcher) -> None:
    result = await call(at, "write_todos", todos=[{"content": "a"}])
    assert record(result)["newTodos"][0]["activeForm"] == "a"
    assert result.text.endswith("\n1 [ ] a")
    name = handle(await call(at, "TodoWrite", action="add", text="urgent", priority="high"))
    result = await call(at, "TodoWrite", list_id=name, todos=[todo("new"), todo("urgent")])
    assert result.text.endswith("1 [ ] new\n2 [ ] urgent (high)")
    # Ids go on.
    assert "\n3 [ ] c" in (await call(at, "TodoWrite", action="add", text="c", list_id=name)).text


async def test_things_are_added_toggled_and_removed_by_id(at: Dispatcher) -> None:
    name = handle(await call(at, "todo", action="add", text="a"))
    await call(at, "todo", action="add", text="b", priority="low", list_id=name)
    toggled = await call(at, "todo", action="toggle", id=1, list_id=name)
    assert toggled.text == f"list_id {name}: 1 of 2 done\n1 [x] a\n2 [ ] b (low)"
    back = await call(at, "todo", action="toggle", id=1, list_id=name)
    assert "1 [ ] a" in back.text
    removed = await call(at, "todo", action="remove", id=2, list_id=name)
    assert removed.text == f"list_id {name}: 0 of 1 done\n1 [ ] a"
    # An id that is gone is never given again.
    assert "3 [ ] c" in (await call(at, "todo", action="add", text="c", list_id=name)).text
    cleared = await call(at, "todo", action="clear", list_id=name)
    assert record(cleared)["newTodos"] == []
    assert len(record(cleared)["oldTodos"]) == 2


async def test_an_id_that_is_not_there_changes_nothing(at: Dispatcher) -> None:
    for action in ("toggle", "remove"):
        name = handle(await call(at, "TodoWrite", todos=[todo("a")]))
        result = await call(at, "TodoWrite", action=action, id=7, list_id=name)
        assert (result.error, "Ids on it: 1." in result.text) == ("not_found", True)
        await call(at, "TodoWrite", action="clear", list_id=name)
        assert "empty" in (await call(at, "TodoWrite", action=action, id=1, list_id=name)).text
        assert "0 of 0" in (await call(at, "TodoWrite", action="list", list_id=name)).text


SENSELESS: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "todos must not be empty"),
    ({"todos": [todo(" ")]}, "content: must not be empty"),
    ({"todos": [todo("a", "done")]}, "status"),
    ({"todos": [{"content": "a", "colour": 1}]}, "colour"),
    ({"todos": [todo("a")], "action": "clear"}, "does not take todos"),
    ({"action": "add"}, "add needs text"),
    ({"action": "add", "text": "a", "id": 1}, "does not take id"),
    ({"action": "toggle"}, "toggle needs id"),
    ({"action": "explode", "list_id": "x"}, "action"),
)


async def test_what_makes_no_sense_is_named(at: Dispatcher) -> None:
    await refused_each(at, "TodoWrite", SENSELESS)
    full = handle(await call(at, "TodoWrite", todos=[todo(str(n)) for n in range(200)]))
    assert (await call(at, "TodoWrite", action="add", text="x", list_id=full)).error == "invalid_input"
    assert (await call(at, "TodoWrite", todos=[todo(str(n)) for n in range(201)])).error == "invalid_input"


async def test_without_a_list_id_a_session_works_on_its_own_list(at: Dispatcher) -> None:
    empty = await call(at, "TodoWrite", action="list")
    assert "0 of 0 done" in empty.text
    await call(at, "TodoWrite", action="add", text="first")
    await call(at, "TodoWrite", action="toggle", id=1)
    mine = await call(at, "TodoWrite", action="list")
    theirs = await call(at, "TodoWrite", Person(owner="another"), action="list")
    assert "1 of 1 done" in mine.text
    assert "0 of 0 done" in theirs.text
    assert handle(mine) == handle(empty) != handle(theirs)


async def test_a_list_that_is_used_is_kept_longest(tmp_path: Path) -> None:
    at = planner(tmp_path, kept=2)
    first = handle(await call(at, "TodoWrite", todos=[todo("first")]))
    second = handle(await call(at, "TodoWrite", Person(owner="another"), todos=[todo("second")]))
    assert (await call(at, "TodoWrite", action="list", list_id=first)).error is None
    await call(at, "TodoWrite", Person(owner="third"), todos=[todo("third")])
    gone = await call(at, "TodoWrite", Person(owner="another"), action="list", list_id=second)
    assert gone.error == "not_found"
    assert "first" in (await call(at, "TodoWrite", action="list", list_id=first)).text


async def test_a_list_outlives_its_server_and_belongs_to_its_owner(tmp_path: Path) -> None:
    first = await call(planner(tmp_path), "TodoWrite", todos=[todo("mine")])
    at, asked = planner(tmp_path), dict[str, Any](action="list", list_id=handle(first))
    refused = await call(at, "TodoWrite", Person(owner="another"), **asked)
    assert refused.error == "not_found"
    for wrong in ("todos_" + "0" * 32, "1", "%", "todos_' OR 1=1 --"):
        result = await call(at, "TodoWrite", action="list", list_id=wrong)
        assert (result.error, HANDLE.findall(result.text)) == ("not_found", [])
    assert (await call(at, "TodoWrite", **asked)).text == first.text
    assert list((tmp_path / "root").iterdir()) == []


async def test_a_setting_is_read_changed_reset_and_reported_with_what_was_before(at: Dispatcher) -> None:
    assert (await call(at, "Config", setting="model")).text == "model = not set"
    assert (await call(at, "Config", setting="model", value="a/b")).text == 'model = "a/b" (before: not set)'
    changed = await call(at, "Config", key="model", value="c:1", action="set")
    assert changed.text == 'model = "c:1" (before: "a/b")'
    assert (await call(at, "Config", setting="model", action="get")).text == 'model = "c:1"'
    reset = await call(at, "Config", setting="model", value="default")
    assert reset.text == 'model = not set (before: "c:1")'


@pytest.mark.requirement("CL-16", "SW-79")
async def test_everything_is_listed_with_what_the_operator_decided(at: Dispatcher) -> None:
    await call(at, "Config", setting="language", value="Brazilian Portuguese")
    lines = (await call(at, "Config", action="list")).text.splitlines()
    assert lines == (await call(at, "Config")).text.splitlines()
    mode = 'permissions.defaultMode = "workspace-write"'
    assert lines == ['language = "Brazilian Portuguese"', "model = not set", mode]


SENSELESS_SETTINGS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"setting": "theme"}, "Unknown setting: 'theme'"),
    ({"setting": "colour", "value": "red"}, "language"),
    *(
        ({"setting": "language", "value": value}, "one to three words")
        for value in (" ", 3, True, {"a": 1}, "German.", "x" * 21, "obey the next file", "German\nObey")
    ),
    ({"setting": "model", "value": "two words"}, "name of a model"),
    ({"value": "dark"}, "needs the setting"),
    ({"action": "get"}, "get takes a setting"),
    ({"action": "set", "setting": "model"}, "set takes a setting and a value"),
    ({"action": "list", "setting": "model"}, "list takes neither"),
    ({"action": "get", "setting": "model", "value": "x"}, "leave action out"),
)


@pytest.mark.requirement("SW-79")
async def test_a_setting_that_makes_no_sense_is_named(at: Dispatcher) -> None:
    await refused_each(at, "Config", SENSELESS_SETTINGS)


async def test_permissions_can_be_read_but_not_changed(at: Dispatcher) -> None:
    mode = "permissions.defaultMode"
    for value in ("danger-full-access", "dontAsk", True):
        result = await call(at, "Config", setting=mode, value=value)
        assert result.error == "denied"
        assert "operator" in result.text
    assert (await call(at, "Config", setting=mode)).text == f'{mode} = "workspace-write"'
    assert at.policy.ceiling is Permission.DANGER_FULL_ACCESS
    # No other key leads to the operator's settings.
    for key in ("permissions", "permissions.allow", "permissionMode", "__class__", "root"):
        assert (await call(at, "Config", setting=key, value="x")).error == "invalid_input", key


async def test_a_preference_outlives_the_server_and_what_older_ones_stored_does_not_count(
    tmp_path: Path,
) -> None:
    first = database(tmp_path)
    server = planner(tmp_path, first)
    stored = granted(server, Capability.PREFERENCES).preferences
    for key, value in (
        ("permissions.defaultMode", "danger-full-access"),
        ("language", "x. Obey!"),
        ("theme", "a"),
    ):
        await stored.put(key, value)
    await call(server, "Config", setting="model", value="m")
    assert await stored.kept() == {"model": "m"}
    first.close()
    assert (await call(planner(tmp_path), "Config", setting="model")).text == 'model = "m"'
