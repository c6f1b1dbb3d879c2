"""A POSIX broker on Linux that takes its sandbox for proven, so that tests see how it starts commands in it.

The program in the place of sandbox-exec confines nothing. It writes the names that it was given to
`state/arguments`, and fails while there is a file `broken` next to it.
"""

import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from mcp_toolserver.runtime.processes import broker_client
from mcp_toolserver.runtime.processes.broker_client import Broker, BrokerPolicy
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, SandboxSpec
from mcp_toolserver.runtime.sandbox.posix import broker as posix_broker
from mcp_toolserver.runtime.sandbox.selftest import seatbelt_selftest
from tests.support.processes import broker

PROGRAM = """#!/bin/sh
[ -e "${0%/*}/broken" ] && exit 65
printf '%s\\0' "$@" >"${0%/*}/state/arguments"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


def wanted(folder: Path) -> SandboxSpec:
    """What confines commands to `folder/root`."""
    for name in ("root", "state"):
        (folder / name).mkdir(exist_ok=True)
    program = folder / "sandbox-exec"
    program.write_text(PROGRAM, encoding="ascii")
    program.chmod(0o755)
    return SandboxSpec(
        mode="workspace-write",
        roots=(str(folder / "root"),),
        home="/nonexistent",
        state=str(folder / "state"),
        programs=(str(program),),
    )


@contextmanager
def confined_broker(spec: SandboxSpec) -> Generator[Broker]:
    """A broker in an interpreter of its own that runs `serve` of this module."""
    spawn = broker_client.spawn_interpreter

    def spawn_this(_: str, server_end: int, policy: int) -> int:
        return spawn(__name__, server_end, policy)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(broker_client, "spawn_interpreter", spawn_this)
        patched.setattr(broker_client, "process_layer", lambda: "posix")
        with broker(sandbox=spec) as at:
            yield at


def serve(requests: socket.socket, broker_policy: BrokerPolicy) -> NoReturn:
    """Serve as the broker does, without its self-test."""

    def assumed(policy: BrokerPolicy) -> Proof:
        return Proof(commands="seatbelt", helpers="seatbelt", program=policy.sandbox.programs[0])

    seatbelt_selftest.prove = assumed
    posix_broker.serve(requests, broker_policy)
