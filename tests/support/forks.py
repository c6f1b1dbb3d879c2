"""Brokers and servers that are forked from a process with their modules, because the import of these is most
of the processor time of a start, and tests start hundreds.

A fork is a child of this process, as a program of its own would be, with its environment, working directory
and one thread. The process that forks brokers imports nothing large, as brokers do.
"""

import ctypes
import gc
import importlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NoReturn
from unittest.mock import patch

from mcp_toolserver.runtime.processes import broker_client
from mcp_toolserver.runtime.processes.broker_client import SERVER_END, Broker, BrokerPolicy
from mcp_toolserver.runtime.sandbox.broker.policy import read_policy
from tests import ROOT

_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine()) if sys.platform == "linux" else None
_CLONE_PARENT = 0x8000

_SERVE = "import sys; sys.path.insert(0, sys.argv[1]); from tests.support import forks as f; f.serve()"

_MODULES = ("main", "app.compose", "app.serve", "protocol.http.server", "protocol.stdio.server")
"""Of the program, to serve."""

_OF_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_")
"""How the names of variables begin that an interpreter reads when it starts."""

_own_interpreter = broker_client.spawn_interpreter
_fork_exec: Any = vars(subprocess)["_fork_exec"]


def start_broker(policy: BrokerPolicy) -> Broker:
    """As `start_standalone_broker`, which it is where this process cannot have such a fork as its child."""
    own = broker_client.spawn_interpreter
    if _CLONE is not None and own is _own_interpreter:
        broker_client.spawn_interpreter = _spawn_broker
    try:
        return broker_client.start_standalone_broker(policy)
    finally:
        broker_client.spawn_interpreter = own


def _spawn_broker(module: str, server_end: int, policy: int) -> int:
    given = [module, os.getcwd(), dict(os.environ)]
    return _forked_from("broker", given, policy, server_end)


def fork_servers() -> None:
    """Let `subprocess` fork the program from now on."""
    if _CLONE is not None:
        patch("subprocess._fork_exec", _fork_or_exec).start()


def own_interpreters() -> AbstractContextManager[object]:
    """Start programs as users do. The system shows a fork with the command line of its parent."""
    return patch("subprocess._fork_exec", _fork_exec)


def _fork_or_exec(words: Sequence[bytes], *given: Any) -> int:
    """As `_posixsubprocess.fork_exec`, whose parameters these are."""
    _, _, kept, folder, variables, stdin, _, _, stdout, _, stderr, _, error_pipe, _, new_session, *how = given
    environment = dict(os.environ)
    if variables is not None:
        environment = dict(os.fsdecode(one).split("=", 1) for one in variables)
    as_here = _of_interpreter(environment) == _of_interpreter(os.environ) and kept == (error_pipe,)
    # Python looks for the program in the working directory first.
    is_ours = os.path.abspath(folder or ".") == str(ROOT)
    program = "\0".join(os.fsdecode(word) for word in words)
    user, _, arguments = program.partition(_PROGRAM)
    is_user = not user or user.endswith(_AS_NOBODY)
    if not (as_here and is_ours and is_user and _PROGRAM in program and tuple(how[:-1]) == _PLAIN):
        return _fork_exec(words, *given)
    asked = [arguments.split("\0")[1:], str(ROOT), environment, new_session]
    ends = [own if end == -1 else end for own, end in enumerate((stdin, stdout, stderr))]
    return _forked_from("mcp_toolserver", asked, *ends, around=tuple(user.split("\0")[:-1]))


_PROGRAM = "\0".join((sys.executable, "-m", "mcp_toolserver"))

_AS_NOBODY = "\0--clear-groups\0"
"""How the words end that run a program as another user."""

_PLAIN = (-1, None, None, None, -1, None)
"""Neither a process group nor groups, ids, a mask for new files and a function of its own."""


def _of_interpreter(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(_OF_INTERPRETER)}


def _forked_from(kind: str, given: Sequence[object], *descriptors: int, around: tuple[str, ...] = ()) -> int:
    """Fork the process of this kind that `around` started; returns the child."""
    at = _forks(os.getpid(), kind, around)
    socket.send_fds(at, [json.dumps(given).encode()], descriptors)
    return int(at.recv(32))


@cache
def _forks(_: int, kind: str, around: tuple[str, ...]) -> socket.socket:
    """A channel to the process that forks for the process with this id."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        isolated = ["-I"] if kind == "broker" else []
        command = [*around, sys.executable, *isolated, "-c", _SERVE, str(ROOT), kind]
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), SERVER_END)]
        os.posix_spawnp(command[0], command, dict(os.environ), file_actions=actions)
    return ours


def serve() -> None:
    """Fork until the process that asks has ended."""
    if sys.argv[2] == "broker":
        importlib.import_module(Broker.module)
        become = _become_broker
    else:
        _import_server()
        become = _become_server
    with socket.socket(fileno=SERVER_END) as at:
        while (asked := socket.recv_fds(at, 1 << 20, 3))[0]:
            given, descriptors, *_ = asked
            if (pid := _forked()) == 0:
                at.close()
                become(json.loads(given), *descriptors)
            at.send(str(pid).encode())
            for descriptor in descriptors:
                os.close(descriptor)


def _import_server() -> None:
    from mcp_toolserver.protocol.stdio import lazy_sdk

    lazy_sdk.load()
    for name in _MODULES:
        importlib.import_module(f"mcp_toolserver.{name}")
    from mcp_toolserver.pipeline.registry import discover
    from mcp_toolserver.text.json_schema import plain_schema

    for entry in discover():
        # Pydantic builds a model when it is first asked.
        plain_schema(entry.spec.args)
    # A fork that collects garbage would get copies of all pages.
    gc.freeze()


def _forked() -> int:
    """As `os.fork`, but for the parent, which is that of this process."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = ctypes.PyDLL(None).syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    (python.PyOS_AfterFork_Parent if pid else python.PyOS_AfterFork_Child)()
    if pid < 0:
        raise OSError("a process cannot be forked")
    return pid


def _become(folder: str, environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)


def _become_broker(given: Sequence[Any], policy: int, server_end: int) -> None:
    module, folder, environment = given
    _become(folder, environment)
    os.dup2(policy, 0)
    os.dup2(server_end, SERVER_END)
    importlib.import_module(module).serve(socket.socket(fileno=SERVER_END), read_policy())


def _become_server(given: Sequence[Any], *streams: int) -> NoReturn:
    arguments, folder, environment, new_session = given
    _become(folder, environment)
    time.tzset()
    if new_session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    from mcp_toolserver import __main__ as program

    sys.argv = [str(program.__file__), *arguments]
    program.main()
