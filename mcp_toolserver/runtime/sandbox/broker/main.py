"""The broker: a process with one thread that gives each request to a supervisor and does nothing else.

The supervisor of the next request is forked in advance, because a fork and the first steps of the new process
take longer than everything else that a short command needs.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from mcp_toolserver.runtime.sandbox.broker import messages
from mcp_toolserver.runtime.sandbox.broker.fd_passing import NO_SIGNAL, refuse, send, unstartable
from mcp_toolserver.runtime.sandbox.broker.fork import handle_polite, run_in_fork
from mcp_toolserver.runtime.sandbox.broker.loop import BrokerLoop, set_up
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy
from mcp_toolserver.runtime.sandbox.broker.resource_usage import children, sweep
from mcp_toolserver.runtime.sandbox.broker.supervisor import KILL_SECONDS, NOT_VERIFIED, Constants, supervise
from mcp_toolserver.runtime.sandbox.layers import kernel
from mcp_toolserver.runtime.sandbox.layers.confinement import RootHandles, open_roots, run_selftest
from mcp_toolserver.runtime.sandbox.layers.namespaces import SessionNamespaces, create_session
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, SandboxSpec
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import HiddenPaths
from mcp_toolserver.runtime.sandbox.protected import verifier_process
from mcp_toolserver.runtime.sandbox.protected.snapshot import WRITING, TooMany, take_snapshot
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable
from mcp_toolserver.runtime.sandbox.protected.verifier_process import Unverified, Verification


def serve(requests: socket.socket, broker_policy: BrokerPolicy) -> NoReturn:
    """Serve `requests` until the server is gone, wait for the end of every command, and exit."""
    run_in_fork(lambda: _set_up_and_serve(requests, broker_policy))


def _set_up_and_serve(requests: socket.socket, broker_policy: BrokerPolicy) -> None:
    reserve, broker_policy = set_up(requests, broker_policy)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    hosts = broker_policy.sandbox.hosts
    proxy = _fork(partial(_serve_proxy, hosts), requests) if hosts else None
    root_handles, proof, verifier = _prepared(broker_policy, requests, *([proxy.calls] if proxy else ()))
    if proxy is not None and (why := _failure(proxy)):
        proof = replace(proof, stop=proof.stop or f"--network hosts: the proxy cannot be confined: {why}")
    lifeline, lifeline_end = os.pipe()
    constants = Constants(
        broker_policy=broker_policy,
        proof=proof,
        root_handles=root_handles,
        lifeline=lifeline,
        verification=verifier and verifier.calls,
        reserve=reserve,
    )
    loop = _Loop(
        requests=requests,
        reserve=reserve,
        constants=constants,
        lifeline_end=lifeline_end,
        roots=tuple(root_handles.roots),
        proxy=proxy,
    )
    loop.supervisors |= {process.pid for process in (verifier, proxy) if process is not None}
    loop.run(proof, KILL_SECONDS)


def _prepared(
    broker_policy: BrokerPolicy, *foreign: socket.socket
) -> tuple[RootHandles, Proof, "_Process | None"]:
    no_roots = RootHandles(roots={})
    try:
        root_handles = open_roots(broker_policy.sandbox)
        # It scans the roots while the sandbox is tested.
        sandbox, roots = broker_policy.sandbox, root_handles.roots
        verify = partial(verifier_process.serve, sandbox=sandbox, roots=roots)
        verifier = _fork(verify, *foreign) if sandbox.mode == WRITING else None
        proof = run_selftest(broker_policy)
        if verifier is not None:
            proof = _check_verifier(broker_policy.sandbox, root_handles, proof, verifier.calls)
        return root_handles, proof, verifier
    except Unprotectable as error:
        return no_roots, Proof(stop=str(error)), None
    except OSError as error:
        why = f"{error.filename} cannot be opened: {error.strerror}"
        return no_roots, Proof(reasons=(why,)), None


def _fork(work: Callable[[socket.socket], None], *foreign: socket.socket) -> "_Process":
    """Fork a process that does `work` with its end of a channel, and has none of the sockets `foreign`."""
    ours, theirs = _pair()
    pid = os.fork()
    if pid == 0:
        for one in (ours, *foreign):
            one.close()
        os.setsid()
        handle_polite(signal.SIG_IGN)
        run_in_fork(lambda: work(theirs))
    theirs.close()
    return _Process(pid=pid, calls=ours)


def _serve_proxy(hosts: Sequence[str], orders: socket.socket) -> None:
    # Few servers have one; it takes more modules than all else here.
    from mcp_toolserver.runtime.sandbox.proxy import proxy

    proxy.serve(orders, hosts)


def _failure(proxy: "_Process") -> str:
    """Why the proxy is not confined; empty where it is and serves."""
    with contextlib.suppress(OSError):
        if said := proxy.calls.recv(4096):
            return said.decode().strip()
    return "its process has ended"


def _check_verifier(
    sandbox: SandboxSpec, root_handles: RootHandles, proof: Proof, calls: socket.socket
) -> Proof:
    """`proof`, without commands where protected names cannot be verified.

    Raises:
        Unprotectable: a protected place cannot be kept from commands.
    """
    try:
        verifier_process.configure(calls, mounted=proof.commands == "bubblewrap")
        with contextlib.closing(Verification(calls)) as asking:
            take_snapshot(sandbox, root_handles.roots, asking.places()).close()
    except TooMany:
        # Each command that it concerns is refused, until there are fewer.
        return proof
    except Unverified:
        return replace(proof, commands="none", reasons=(*proof.reasons, NOT_VERIFIED))
    return proof


MOST_SESSIONS = 128
"""Sessions at once; the commands of a further one share nothing."""


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


_PAUSE_MS = 100
"""A fork slows down the command that was just started, so the next supervisor waits for its end, or
this long."""


@dataclass(frozen=True, kw_only=True)
class _Process:
    """A supervisor that waits for its request, or what verifies protected names."""

    pid: int
    calls: socket.socket


@dataclass(kw_only=True)
class _Loop(BrokerLoop):
    constants: Constants
    proxy: _Process | None = None
    supervisors: set[int] = field(default_factory=set[int])
    spare: _Process | None = None
    """The supervisor that waits for the next request."""
    is_spare_wanted: bool = True
    sessions: dict[bytes, SessionNamespaces] = field(default_factory=dict[bytes, SessionNamespaces])
    """Those of which something was needed."""

    def pause(self) -> int | None:
        return None if self.spare is not None or not self.is_spare_wanted else _PAUSE_MS

    def prepare(self) -> None:
        if self.spare is None and self.is_spare_wanted:
            self._fork_spare()

    def let_go(self) -> None:
        if self.constants.verification is not None:
            self.constants.verification.close()
        if self.proxy is not None:
            self.proxy.calls.close()
        self._drop_spare()

    def serve(self, descriptors: Sequence[int], session: bytes) -> None:
        self.is_spare_wanted = True
        if not self._hand_over(descriptors, session):
            # The one that waited has ended.
            trouble = self._fork_spare(descriptors)
            if not self._hand_over(descriptors, session):
                refuse(descriptors[0], unstartable(trouble or OSError()))

    def _hand_over(self, descriptors: Sequence[int], session: bytes) -> bool:
        """Hand a request to the waiting supervisor; false when none waits."""
        spare, self.spare = self.spare, None
        if spare is None:
            return False
        shared = self._session(session)
        self.running[spare.pid] = session
        with spare.calls, contextlib.suppress(OSError):
            send(spare.calls, (*descriptors, *(shared.descriptors if shared else ())))
            return True
        return False

    def _session(self, session: bytes) -> SessionNamespaces | None:
        """The namespaces of the session of this id, made when they are first needed; None where its commands
        share nothing, or none can be made."""
        self.idle.discard(session)
        if not session or not self.constants.proof.shares_session:
            return None
        if session not in self.sessions and len(self.sessions) < MOST_SESSIONS:
            sandbox = self.constants.broker_policy.sandbox
            with contextlib.suppress(OSError):
                made = create_session(sandbox.state, network=sandbox.network, proxied=self.proxy is not None)
                self.sessions[session] = replace(made, listener=-1)
                if made.listener >= 0:
                    self._order(messages.REQUEST + session, made.listener)
                    os.close(made.listener)
        return self.sessions.get(session)

    def _order(self, message: bytes, *descriptors: int) -> None:
        """Tell the proxy. If it has ended, or does not read, commands reach nothing."""
        if self.proxy is not None:
            with contextlib.suppress(OSError):
                flags = NO_SIGNAL | socket.MSG_DONTWAIT
                socket.send_fds(self.proxy.calls, [message], descriptors, flags)

    def report_connections(self, to: int) -> None:
        self._order(messages.CONNECTIONS, to)

    def open_temporary(self, session: bytes) -> int | None:
        shared = self._session(session)
        return os.dup(shared.temporary) if shared else None

    def end_session(self, session: bytes) -> None:
        if (ended := self.sessions.pop(session, None)) is not None:
            ended.close()
            self._order(messages.END + session)

    def set_hidden(self, hidden: HiddenPaths) -> None:
        root_handles = replace(self.constants.root_handles, hidden=hidden)
        self.constants = replace(self.constants, root_handles=root_handles)
        self._drop_spare()

    def _drop_spare(self) -> None:
        if self.spare is not None:
            self.spare.calls.close()
            self.spare = None

    def _fork_spare(self, request: Sequence[int] = ()) -> OSError | None:
        """Fork the supervisor of the next request; returns why that failed. It closes `request`, the
        descriptors of the request that is being handed on: it gets its own."""
        with contextlib.ExitStack() as undo:
            try:
                ours, theirs = map(undo.enter_context, _pair())
                supervisor = os.fork()
            except OSError as error:
                # It is tried again soon, and when there is a request.
                return error
            undo.pop_all()
        if supervisor == 0:
            os.close(self.lifeline_end)
            self.requests.close()
            ours.close()
            for descriptor in request:
                os.close(descriptor)
            for session in self.sessions.values():
                session.close()
            if self.proxy is not None:
                self.proxy.calls.close()
            run_in_fork(lambda: supervise(self.constants, theirs))
        theirs.close()
        self.supervisors.add(supervisor)
        self.spare = _Process(pid=supervisor, calls=ours)
        return None

    def reap_children(self) -> bool:
        ended, is_any_left = self.ended_children()
        orphaned = False
        for pid, status in ended:
            orphaned |= pid not in self.supervisors or status != 0
            self.supervisors.discard(pid)
            if self.spare is not None and pid == self.spare.pid:
                self._drop_spare()
                # Another might end unasked as well, so the next request is waited for.
                self.is_spare_wanted = False
        self.end_idle()
        if orphaned:
            self._kill_orphans()
        return is_any_left

    def _kill_orphans(self) -> None:
        """Kill the processes that this process inherited from killed supervisors."""
        # Looking for them takes one descriptor.
        self.reserve.release()
        for orphan in children(os.getpid()) - self.supervisors:
            sweep(orphan)
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        self.reserve.renew()
