"""The broker on POSIX systems: a process with one thread that forks a supervisor for each request.

macOS has no AF_UNIX sockets that keep packets. The server sends the next message only when it has the answer
to the one before, so that each comes alone all the same.
"""

import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from mcp_toolserver.runtime.sandbox.broker import temp_folder
from mcp_toolserver.runtime.sandbox.broker.fd_passing import NO_SIGNAL, refuse, unstartable
from mcp_toolserver.runtime.sandbox.broker.fork import run_in_fork
from mcp_toolserver.runtime.sandbox.broker.loop import BrokerLoop, set_up
from mcp_toolserver.runtime.sandbox.broker.messages import RECEIVED
from mcp_toolserver.runtime.sandbox.broker.policy import UNCONFINED, BrokerPolicy
from mcp_toolserver.runtime.sandbox.broker.resource_usage import Unlisted
from mcp_toolserver.runtime.sandbox.broker.supervision import Descriptors
from mcp_toolserver.runtime.sandbox.layers.spec import Proof
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import HiddenPaths
from mcp_toolserver.runtime.sandbox.posix.family import KILL_SECONDS, Family, end_family, list_processes
from mcp_toolserver.runtime.sandbox.posix.supervisor import Constants, supervise


def serve(requests: socket.socket, broker_policy: BrokerPolicy) -> NoReturn:
    """Serve `requests` until the server is gone, wait for the end of every command, and exit."""
    run_in_fork(lambda: _set_up_and_serve(requests, broker_policy))


def _set_up_and_serve(requests: socket.socket, broker_policy: BrokerPolicy) -> None:
    reserve, broker_policy = set_up(requests, broker_policy)
    # macOS has no flag of send that suppresses it.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    lifeline, lifeline_end = os.pipe()
    unwatchable = _unwatchable()
    constants = Constants(
        broker_policy=broker_policy,
        proof=prove_layer(broker_policy, unwatchable),
        lifeline=lifeline,
        reserve=reserve,
        unwatchable=unwatchable,
    )
    loop = _Loop(
        requests=requests,
        reserve=reserve,
        constants=constants,
        lifeline_end=lifeline_end,
        roots=broker_policy.sandbox.roots,
    )
    loop.run(constants.proof, 2 * KILL_SECONDS)
    temp_folder.remove(broker_policy.scratch)


def _unwatchable() -> str:
    try:
        list_processes()
    except Unlisted as error:
        return str(error)
    return ""


def prove_layer(broker_policy: BrokerPolicy, unwatchable: str) -> Proof:
    """Prove what holds commands here, and create the folder for temporary files if any is needed.

    Nothing is raised: where the proof itself goes wrong, no command runs that has to be confined.
    """
    sandbox = broker_policy.sandbox
    if sandbox.mode == UNCONFINED:
        return Proof(reasons=(f"commands run without a sandbox in {UNCONFINED}",))
    if unwatchable:
        return Proof(reasons=(unwatchable,))
    if not sandbox.programs:
        return Proof(reasons=("no sandbox-exec was found, which puts programs behind Seatbelt",))
    try:
        # Only a confined mode needs it.
        from mcp_toolserver.runtime.sandbox.selftest.seatbelt_selftest import prove

        temp_folder.create(broker_policy.scratch)
        proof = prove(broker_policy)
    except Exception as error:  # noqa: BLE001  # a server without commands is better than none
        why = f"the sandbox could not be tested: {str(error) or type(error).__name__}"
        return Proof(reasons=(why,))
    return replace(proof, shares_session=proof.commands == "seatbelt")


@dataclass(kw_only=True)
class _Loop(BrokerLoop):
    constants: Constants
    markers: dict[int, str] = field(default_factory=dict[int, str])
    """By supervisor, the marker of its command."""

    def acknowledge(self) -> None:
        # A server that is gone is seen at the next message.
        with contextlib.suppress(OSError):
            self.requests.send(RECEIVED, NO_SIGNAL | socket.MSG_DONTWAIT)

    def serve(self, descriptors: Sequence[int], session: bytes) -> None:
        marker = secrets.token_hex(16)
        try:
            folder = self._folder(session)
            pid = os.fork()
        except OSError as error:
            refuse(descriptors[0], unstartable(error))
            return
        if pid == 0:
            self._run_in_fork(lambda: supervise(self.constants, Descriptors(*descriptors), marker, folder))
        self.markers[pid] = marker
        self.running[pid] = session

    def _folder(self, session: bytes) -> str:
        """The temporary folder of a session, which begins with this; empty without one. Raises: OSError."""
        if not session or not self.constants.proof.shares_session:
            return ""
        self.idle.discard(session)
        path = os.path.join(self.constants.broker_policy.scratch, session.decode("ascii"))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        return path

    def open_temporary(self, session: bytes) -> int | None:
        path = self._folder(session)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC) if path else None

    def end_session(self, session: bytes) -> None:
        """Remove its folder once no command uses it, under another name, so that it does not meet a session
        that begins anew."""
        scratch = self.constants.broker_policy.scratch
        if session in self.running.values():
            self.idle.add(session)
        elif session and scratch:
            folder = os.path.join(scratch, session.decode("ascii"))
            aside = f"{folder}-{secrets.token_hex(16)}"
            with contextlib.suppress(OSError):
                os.rename(folder, aside)
                self._apart(lambda: temp_folder.remove(aside))

    def set_hidden(self, hidden: HiddenPaths) -> None:
        self.constants = replace(self.constants, hidden=hidden)

    def reap_children(self) -> bool:
        ended, is_any_left = self.ended_children()
        for pid, status in ended:
            marker = self.markers.pop(pid, None)
            if marker is not None and status != 0:
                family = Family(supervisor=pid, marker=marker)
                with contextlib.suppress(OSError):
                    self._apart(lambda family=family: _end_what_is_left(family))
        self.end_idle()
        return is_any_left

    def _apart(self, work: Callable[[], None]) -> None:
        """Do what may take time in a process of its own. Raises: OSError: no process can be started."""
        if os.fork() == 0:
            self._run_in_fork(work)

    def _run_in_fork(self, work: Callable[[], None]) -> NoReturn:
        os.close(self.lifeline_end)
        self.requests.close()
        run_in_fork(work)


def _end_what_is_left(family: Family) -> None:
    """End the command of a supervisor that ended before it could."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    end_family(family, lambda: 0)
