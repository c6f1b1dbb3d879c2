"""What Config reads, changes, and leaves to the operator."""

from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.tools.plan.config import PREFERENCES
from tests.plan.planning import call, database, planner, refused_each
from tests.support.workshop import granted


@pytest.fixture
def at(tmp_path: Path) -> Dispatcher:
    return planner(tmp_path)


async def test_a_setting_is_read_changed_and_reported_with_what_was_before(at: Dispatcher) -> None:
    assert (await call(at, "Config", setting="theme")).text == "theme = not set"
    assert (
        await call(at, "Config", setting="theme", value="dark")
    ).text == 'theme = "dark" (before: not set)'
    changed = await call(at, "Config", key="theme", value="light", action="set")
    assert changed.text == 'theme = "light" (before: "dark")'
    assert (await call(at, "Config", setting="theme", action="get")).text == 'theme = "light"'


async def test_everything_is_listed_with_what_the_operator_decided(at: Dispatcher) -> None:
    await call(at, "Config", setting="verbose", value=True)
    lines = (await call(at, "Config", action="list")).text.splitlines()
    assert lines == (await call(at, "Config")).text.splitlines()
    assert "verbose = true" in lines
    assert lines[-1] == 'permissions.defaultMode = "workspace-write"'
    assert [line.split(" = ")[0] for line in lines[:-1]] == sorted(PREFERENCES)


async def test_a_switch_takes_a_boolean_in_words_too(at: Dispatcher) -> None:
    values: tuple[Any, ...] = (True, False, "true", "False")
    for value in values:
        await call(at, "Config", setting="verbose", value=value)
        kept = str(value).lower()
        assert (await call(at, "Config", setting="verbose")).text == f"verbose = {kept}"


SENSELESS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"setting": "colour"}, "Unknown setting: 'colour'"),
    ({"setting": "colour", "value": "red"}, "theme"),
    ({"setting": "verbose", "value": "yes"}, "requires true or false"),
    ({"setting": "verbose", "value": 1}, "requires true or false"),
    ({"setting": "editorMode", "value": "nano"}, "Options: default, vim, emacs"),
    ({"setting": "theme", "value": 3}, "requires text"),
    ({"setting": "theme", "value": " "}, "requires text"),
    ({"setting": "theme", "value": "x" * 201}, "requires text"),
    ({"setting": "theme", "value": {"a": 1}}, "requires text"),
    ({"value": "dark"}, "needs the setting"),
    ({"action": "get"}, "get takes a setting"),
    ({"action": "set", "setting": "theme"}, "set takes a setting and a value"),
    ({"action": "list", "setting": "theme"}, "list takes neither"),
    ({"action": "get", "setting": "theme", "value": "x"}, "leave action out"),
)


@pytest.mark.requirement("SW-79")
async def test_what_makes_no_sense_is_named(at: Dispatcher) -> None:
    await refused_each(at, "Config", SENSELESS)


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


async def test_a_preference_outlives_the_server(tmp_path: Path) -> None:
    first = database(tmp_path)
    await call(planner(tmp_path, first), "Config", setting="showTurnDuration", value=True)
    first.close()
    found = await call(planner(tmp_path), "Config", setting="showTurnDuration")
    assert found.text == "showTurnDuration = true"


async def test_what_was_kept_under_the_name_of_a_permission_does_not_count(tmp_path: Path) -> None:
    stored = database(tmp_path)
    server = planner(tmp_path, stored)
    await granted(server, Capability.PREFERENCES).preferences.put(
        "permissions.defaultMode", "danger-full-access"
    )
    text = (await call(server, "Config")).text
    assert text.count("permissions.defaultMode") == 1
    assert 'permissions.defaultMode = "workspace-write"' in text
