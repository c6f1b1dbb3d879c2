"""What becomes of requests that cannot be served, part by part; `test_odd_requests.py` asks a real server."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST
from pydantic import TypeAdapter, ValidationError

from mcp_toolserver.protocol.mcp_server import answered
from mcp_toolserver.protocol.stdio.server import DrainedIncoming


def asked(method: str) -> Any:
    return SimpleNamespace(method=method, session=SimpleNamespace(client_params=None))


async def test_a_wrong_parameter_is_left_to_the_sdk() -> None:
    async def wrong(_: object) -> None:
        TypeAdapter(int).validate_python("x")

    with pytest.raises(ValidationError):
        await answered(asked("tools/list"), wrong)  # type: ignore[arg-type]


async def test_a_request_before_the_handshake_gets_an_error() -> None:
    for method, data, code, says in (
        ("tools/list", "", INVALID_REQUEST, "before initialize"),
        ("initialize", "", INVALID_PARAMS, "no"),
        ("tools/list", "more", INVALID_PARAMS, "no"),
    ):

        async def refused(_: object, data: str = data) -> None:
            raise MCPError(INVALID_PARAMS, "no", data)

        with pytest.raises(MCPError) as caught:
            await answered(asked(method), refused)  # type: ignore[arg-type]
        assert caught.value.error.code == code
        assert says in caught.value.error.message


async def test_a_request_that_its_client_cancelled_gets_no_answer() -> None:
    nothing: Any = None
    incoming = DrainedIncoming(nothing, nothing, nothing, lambda _: True, lambda: None)
    with anyio.fail_after(5):
        await incoming.dropped(1)
