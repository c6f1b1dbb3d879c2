"""What StructuredOutput takes and gives back."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from tests.plan.planning import call, host, planner
from tests.support.workbench import Person, dispatcher


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param({"answer": 42}, id="number"),
        pytest.param({"a": {"b": [1, 2.5, None, True, "é"]}, "c": ""}, id="nested"),
        pytest.param({"model_config": 1, "json": 2, "self": 3, "args": 4}, id="names of ours"),
    ],
)
async def test_any_object_comes_back_as_it_is(tmp_path: Path, payload: dict[str, Any]) -> None:
    result = await planner(tmp_path).call("StructuredOutput", payload, Person())
    assert result.error is None, result.text
    assert result.data == {"structured_output": payload}
    assert json.loads(result.text.partition(": ")[2]) == payload


async def test_nothing_is_no_output(tmp_path: Path) -> None:
    result = await call(planner(tmp_path), "StructuredOutput")
    assert result.error == "invalid_input"
    assert "must not be empty" in result.text


async def test_what_no_json_can_carry_exactly_is_refused(tmp_path: Path) -> None:
    assert (await call(planner(tmp_path), "StructuredOutput", big=10**20)).error == "invalid_input"


async def test_a_server_that_only_reads_has_it(tmp_path: Path) -> None:
    low = dispatcher(host(tmp_path), ceiling=Permission.READ_ONLY)
    assert (await call(low, "StructuredOutput", done=True)).error is None
