"""The process that forks brokers when they are needed, for a server that cannot once it is confined.

It has one end of a channel for each broker. The first byte on it forks the broker; its closing ends the wait
for one that was not needed.
"""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping
from typing import NoReturn

from mcp_toolserver.runtime.sandbox.broker.fork import close_all_but, handle_polite, run_in_fork


def fork_on_demand(waiting: Mapping[socket.socket, Callable[[], NoReturn]]) -> NoReturn:
    """Fork what serves each channel, as it is needed, and exit after the last of them."""
    run_in_fork(lambda: _serve({one.fileno(): (one, serve) for one, serve in waiting.items()}))


def _serve(waiting: dict[int, tuple[socket.socket, Callable[[], NoReturn]]]) -> None:
    close_all_but(*waiting)
    handle_polite(signal.SIG_IGN)
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    while waiting:
        for descriptor, _ in poll.poll():
            poll.unregister(descriptor)
            end, serve = waiting.pop(descriptor)
            # If it cannot be forked, the server notices that its channel is closed.
            with end, contextlib.suppress(OSError):
                if end.recv(1) and os.fork() == 0:
                    run_in_fork(serve)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
