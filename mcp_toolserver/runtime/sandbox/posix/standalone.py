"""Runs the broker in an interpreter of its own; the first line on the socket is its policy."""

import json
import socket
from typing import NoReturn

from mcp_toolserver.runtime.sandbox.broker.standalone_policy import decode_policy
from mcp_toolserver.runtime.sandbox.posix.broker import serve

_MOST = 1 << 16


def main(descriptor: int) -> NoReturn:
    """Serve what comes on the socket `descriptor`."""
    requests = socket.socket(fileno=descriptor)
    line = b""
    while not line.endswith(b"\n"):
        # Frames follow, of which nothing may be taken.
        piece = requests.recv(_MOST, socket.MSG_PEEK)
        end = piece.find(b"\n") + 1 or len(piece)
        line += requests.recv(end)
        if not piece:
            raise SystemExit(1)
    folder, policy = json.loads(line)
    serve(requests, decode_policy(policy.encode()), folder)
