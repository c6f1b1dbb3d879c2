"""Brokers that are forked from a process with the broker's modules, because their import is most of the
processor time of a start, and tests start hundreds.

A server sees no difference to a broker with an interpreter of its own: this one is a child of this process,
too, with its environment and working directory, and has one thread. Like brokers it imports nothing large.
"""

import ctypes
import importlib
import json
import os
import platform
import signal
import socket
import sys
from functools import cache

from mcp_toolserver.runtime.processes import broker_client
from mcp_toolserver.runtime.processes.broker_client import SERVER_END, Broker, BrokerPolicy
from mcp_toolserver.runtime.sandbox.broker.policy import read_policy
from tests import ROOT

_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine()) if sys.platform == "linux" else None
_CLONE_PARENT = 0x8000
_OWN_INTERPRETER = broker_client.spawn_interpreter

_SERVE = "import sys; sys.path.insert(0, sys.argv[1]); from tests.support import broker_forks as b; b.serve()"


def start_broker(policy: BrokerPolicy) -> Broker:
    """As `start_standalone_broker`, which it is where this process cannot have such a fork as its child."""
    own = broker_client.spawn_interpreter
    if _CLONE is not None and own is _OWN_INTERPRETER:
        broker_client.spawn_interpreter = _spawn
    try:
        return broker_client.start_standalone_broker(policy)
    finally:
        broker_client.spawn_interpreter = own


@cache
def _forks(_: int) -> socket.socket:
    """A channel to the process that forks for the process with this id."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-I", "-c", _SERVE, str(ROOT)]
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), SERVER_END)]
        os.posix_spawn(sys.executable, command, dict(os.environ), file_actions=actions)
    return ours


def _spawn(module: str, server_end: int, policy: int) -> int:
    at = _forks(os.getpid())
    given = json.dumps([module, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(at, [given], [server_end, policy])
    return int(at.recv(32))


def serve() -> None:
    """Fork until the process that asks has ended."""
    importlib.import_module(Broker.module)
    with socket.socket(fileno=SERVER_END) as at:
        while (asked := socket.recv_fds(at, 1 << 20, 2))[0]:
            given, descriptors, *_ = asked
            if (pid := _forked()) == 0:
                at.close()
                _become_broker(given, *descriptors)
            at.send(str(pid).encode())
            for descriptor in descriptors:
                os.close(descriptor)


def _forked() -> int:
    """As `os.fork`, but for the parent, which is that of this process."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = ctypes.PyDLL(None).syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    (python.PyOS_AfterFork_Parent if pid else python.PyOS_AfterFork_Child)()
    if pid < 0:
        raise OSError("a process cannot be forked")
    return pid


def _become_broker(given: bytes, server_end: int, policy: int) -> None:
    module, folder, environment = json.loads(given)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.dup2(policy, 0)
    os.dup2(server_end, SERVER_END)
    importlib.import_module(module).serve(socket.socket(fileno=SERVER_END), read_policy())
