"""What Config reads, changes, and leaves to the operator."""

from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from tests.plan.planning import database, planner, refused_each
from tests.support.workbench import call
from tests.support.workshop import granted


@pytest.fixture
def at(tmp_path: Path) -> Dispatcher:
    return planner(tmp_path)


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


SENSELESS: tuple[tuple[dict[str, Any], str], ...] = (
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
