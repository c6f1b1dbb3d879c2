"""What StructuredOutput takes and gives back."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from tests.plan.planning import host, planner
from tests.support.workbench import Person, call, dispatcher


@pytest.mark.requirement("CL-52")
async def test_any_object_comes_back_as_it_is(tmp_path: Path) -> None:
    """A server that only reads has it too."""
    server = dispatcher(host(tmp_path), ceiling=Permission.READ_ONLY)
    payloads: tuple[dict[str, Any], ...] = (
        {"answer": 42},
        {"a": {"b": [1, 2.5, None, True, "é"]}, "c": ""},
        # Names of ours.
        {"model_config": 1, "json": 2, "self": 3, "args": 4},
    )
    for payload in payloads:
        result = await server.call("StructuredOutput", payload, Person())
        assert result.error is None, result.text
        assert result.data == {"structured_output": payload}
        assert json.loads(result.text.partition(": ")[2]) == payload


async def test_nothing_and_what_no_json_can_carry_exactly_is_refused(tmp_path: Path) -> None:
    result = await call(planner(tmp_path), "StructuredOutput")
    assert (result.error, "must not be empty" in result.text) == ("invalid_input", True)
    assert (await call(planner(tmp_path), "StructuredOutput", big=10**20)).error == "invalid_input"
