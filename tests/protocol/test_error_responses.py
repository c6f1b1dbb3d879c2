"""What becomes of requests that cannot be served, part by part; `test_odd_requests.py` asks a real server."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, JSONRPCRequest
from pydantic import TypeAdapter, ValidationError

from mcp_toolserver.protocol.error_middleware import error_middleware
from mcp_toolserver.protocol.http.body import message_in
from mcp_toolserver.protocol.http.errors import INVALID_ID
from mcp_toolserver.protocol.http.request_checks import RequestHead
from mcp_toolserver.protocol.stdio.draining import Draining, reads
from tests.support.workbench import dispatcher, machine


def asked(method: str) -> Any:
    return SimpleNamespace(method=method, session=SimpleNamespace(client_params=None))


async def test_a_wrong_parameter_is_left_to_the_sdk() -> None:
    async def wrong(_: object) -> None:
        TypeAdapter(int).validate_python("x")

    with pytest.raises(ValidationError):
        await error_middleware(asked("tools/list"), wrong)  # type: ignore[arg-type]


async def test_a_request_before_the_handshake_gets_an_error() -> None:
    for method, data, code, says in (
        ("tools/list", "", INVALID_REQUEST, "before initialize"),
        ("initialize", "", INVALID_PARAMS, "no"),
        ("tools/list", "more", INVALID_PARAMS, "no"),
    ):

        async def refused(_: object, data: str = data) -> None:
            raise MCPError(INVALID_PARAMS, "no", data)

        with pytest.raises(MCPError) as caught:
            await error_middleware(asked(method), refused)  # type: ignore[arg-type]
        assert caught.value.error.code == code
        assert says in caught.value.error.message


def test_an_id_of_the_wrong_type_is_refused() -> None:
    head = RequestHead(method="POST", path="/mcp")
    for value in ("1.5", "null", "true", "{}"):
        assert message_in(head, f'{{"method": "ping", "id": {value}}}'.encode()) is INVALID_ID, value


def test_an_unknown_tool_is_worth_its_answer_at_the_end(tmp_path: Path) -> None:
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={"name": "nobody"})
    assert reads(dispatcher(machine(tmp_path)))(request)


async def test_a_request_that_its_client_cancelled_gets_no_answer() -> None:
    nothing: Any = None
    draining = Draining(nothing, nothing, lambda _: True, lambda: None)
    with anyio.fail_after(5):
        await draining.dropped(1)
