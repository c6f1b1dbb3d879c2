"""The broker in an interpreter of its own: its charter is the first packet on the socket."""

import json
import socket
from typing import NoReturn

from mcp_toolserver.runtime.sandbox.charter import Charter
from mcp_toolserver.runtime.sandbox.serve import serve

MAX_CHARTER = 1 << 20


def main(descriptor: int) -> NoReturn:
    """Serve what comes on the socket `descriptor`."""
    requests = socket.socket(fileno=descriptor)
    charter = json.loads(requests.recv(MAX_CHARTER))
    serve(
        requests,
        Charter(
            mode=charter["mode"],
            environment=charter["environment"],
            helpers=tuple(map(tuple, charter["helpers"])),
            shell=tuple(charter["shell"]),
        ),
    )
