"""The broker in an interpreter of its own: its charter is the first packet on the socket."""

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NoReturn

from mcp_toolserver.runtime.sandbox.bounds import CommandBounds
from mcp_toolserver.runtime.sandbox.charter import Charter, Helper
from mcp_toolserver.runtime.sandbox.serve import serve
from mcp_toolserver.runtime.sandbox.walls import Walls
from mcp_toolserver.runtime.sandbox.wire import is_list

MAX_CHARTER = 1 << 20


def packet(charter: Charter) -> bytes:
    """The bytes that `main` reads first."""
    return json.dumps(asdict(charter)).encode()


def main(descriptor: int) -> NoReturn:
    """Serve what comes on the socket `descriptor`."""
    requests = socket.socket(fileno=descriptor)
    charter = json.loads(requests.recv(MAX_CHARTER))
    serve(
        requests,
        Charter(
            walls=Walls(**_with_tuples(charter["walls"])),
            environment=charter["environment"],
            helpers=tuple(Helper(**_with_tuples(helper)) for helper in charter["helpers"]),
            shell=tuple(charter["shell"]),
            bounds=CommandBounds(**charter["bounds"]),
        ),
    )


def _with_tuples(message: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists only."""
    return {name: tuple(value) if is_list(value) else value for name, value in message.items()}
