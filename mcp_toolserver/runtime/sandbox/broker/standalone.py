"""Runs the broker in an interpreter of its own; the first packet on the socket is its policy."""

import socket
from typing import NoReturn

from mcp_toolserver.runtime.sandbox.broker.main import serve
from mcp_toolserver.runtime.sandbox.broker.standalone_policy import decode_policy

MAX_POLICY = 1 << 20


def main(descriptor: int) -> NoReturn:
    """Serve what comes on the socket `descriptor`."""
    requests = socket.socket(fileno=descriptor)
    serve(requests, decode_policy(requests.recv(MAX_POLICY)))
