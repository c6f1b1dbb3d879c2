"""Runs the broker in an interpreter of its own; the first packet on the socket is its policy."""

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NoReturn

from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.main import serve
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, Helper
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.text.json_values import is_list

MAX_POLICY = 1 << 20


def encode_policy(broker_policy: BrokerPolicy) -> bytes:
    """The bytes that `main` reads first."""
    return json.dumps(asdict(broker_policy)).encode()


def main(descriptor: int) -> NoReturn:
    """Serve what comes on the socket `descriptor`."""
    requests = socket.socket(fileno=descriptor)
    broker_policy = json.loads(requests.recv(MAX_POLICY))
    serve(
        requests,
        BrokerPolicy(
            sandbox=SandboxSpec(**_with_tuples(broker_policy["sandbox"])),
            environment=broker_policy["environment"],
            helpers=tuple(Helper(**_with_tuples(helper)) for helper in broker_policy["helpers"]),
            shell=tuple(broker_policy["shell"]),
            bounds=CommandBounds(**broker_policy["bounds"]),
        ),
    )


def _with_tuples(message: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists only."""
    return {name: tuple(value) if is_list(value) else value for name, value in message.items()}
