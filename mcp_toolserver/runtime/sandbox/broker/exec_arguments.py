"""The argument list and the environment of a request's program, made in the fork that becomes it."""

import os
from collections.abc import Mapping

from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.sandbox.broker.messages import Request, Script
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy
from mcp_toolserver.runtime.sandbox.layers.environment import helper_environment

LONGEST_ARGUMENT = (128 << 10) - 1
"""Bytes that Linux takes as one argument of a program."""

SCRIPT_DESCRIPTOR = 3

_HIGH_DESCRIPTOR = 10


def environment_of(broker_policy: BrokerPolicy, request: Request) -> Mapping[str, str]:
    """The variables of the program."""
    if isinstance(request, Script):
        return broker_policy.environment
    return helper_environment(broker_policy.environment, request.environment)


def argv_of(broker_policy: BrokerPolicy, request: Request) -> tuple[str, ...]:
    """The arguments of the program. A script too long for one waits in `SCRIPT_DESCRIPTOR` afterwards."""
    if not isinstance(request, Script):
        return request.argv
    script = request.script.encode()
    if len(script) <= LONGEST_ARGUMENT:
        return (*broker_policy.shell, request.script)
    return (*broker_policy.shell, _read_script(script, broker_policy.shell))


def _read_script(script: bytes, shell: tuple[str, ...]) -> str:
    """A script that runs the one too long for an argument, out of a descriptor that it closes first."""
    file = anonymous_file("script")
    with open(file, "wb", closefd=False) as stream:
        stream.write(script)
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, SCRIPT_DESCRIPTOR)
    os.set_inheritable(SCRIPT_DESCRIPTOR, True)
    # Bash reads a file without help; another shell needs cat.
    read = f"</dev/fd/{SCRIPT_DESCRIPTOR}" if "--norc" in shell else f"cat <&{SCRIPT_DESCRIPTOR}"
    return f'eval "exec {SCRIPT_DESCRIPTOR}<&-\n$({read})"'


def moved_up(descriptor: int) -> int:
    """`descriptor` under a number out of the way of those that the program gets."""
    if descriptor >= _HIGH_DESCRIPTOR:
        return descriptor
    # Not everywhere where this module is imported, but wherever there is a broker.
    import fcntl

    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
    os.close(descriptor)
    return moved
