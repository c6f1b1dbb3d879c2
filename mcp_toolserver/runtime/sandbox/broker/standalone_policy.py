"""The policy of a broker as bytes, for one that runs in an interpreter of its own."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, Helper
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.text.json_values import is_list


def encode_policy(broker_policy: BrokerPolicy) -> bytes:
    """The bytes that `decode_policy` reads."""
    return json.dumps(asdict(broker_policy)).encode()


def read_policy() -> BrokerPolicy:
    """The policy that `encode_policy` returned, from the standard input of this process."""
    broker_policy = json.load(sys.stdin.buffer)
    return BrokerPolicy(
        sandbox=SandboxSpec(**_with_tuples(broker_policy["sandbox"])),
        environment=broker_policy["environment"],
        helpers=tuple(Helper(**_with_tuples(helper)) for helper in broker_policy["helpers"]),
        shell=tuple(broker_policy["shell"]),
        bounds=CommandBounds(**broker_policy["bounds"]),
        scratch=broker_policy["scratch"],
    )


def _with_tuples(message: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists only."""
    return {name: tuple(value) if is_list(value) else value for name, value in message.items()}
