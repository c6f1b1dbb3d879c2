"""A server that is killed while daemons of a command run: how long those live on."""

import os
import secrets
import select
import signal
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Unanswered
from benchmarks.figures import Row, at_most, left_out, milliseconds
from benchmarks.servers import ours

DAEMONS = 3
LATE = 0.1
PATIENCE = 10.0
MODES = {"danger-full-access": "unsandboxed", "workspace-write": "sandboxed"}


def run(effort: Effort, folder: Path) -> list[Row]:
    rounds = max(effort.starts // 3, 3)
    return [row for mode, sandbox in MODES.items() for row in _rows(mode, sandbox, rounds, folder)]


def _rows(mode: str, sandbox: str, rounds: int, folder: Path) -> list[Row]:
    what = f"SIGKILL to the server, {DAEMONS} daemons, {sandbox}: all dead after"
    try:
        taken = [_once(mode, folder) for _ in range(rounds)]
    except Unanswered as error:
        return [left_out(what, str(error).partition("\n")[0])]
    return [
        at_most(f"{what}, median of {rounds}", median(taken), LATE, milliseconds),
        at_most(f"{what}, longest", max(taken), LATE, milliseconds),
    ]


def _once(mode: str, folder: Path) -> float:
    """From the signal to the last death."""
    root = folder / "killing"
    root.mkdir(exist_ok=True)
    mark = f"9{secrets.randbelow(10**12):012d}"
    script = f"for i in $(seq {DAEMONS}); do setsid -f sleep {mark}; done; sleep 100"
    with Client(ours(root, mode=mode)) as client:
        client.call("bash", {"command": script, "run_in_background": True})
        with _handles(mark) as handles:
            start = time.perf_counter()
            os.kill(client.pid, signal.SIGKILL)
            _wait_for_all(handles)
            return time.perf_counter() - start


@contextmanager
def _handles(mark: str) -> Generator[list[int]]:
    """One descriptor for each daemon, which the kernel makes readable when it is dead."""
    deadline = time.monotonic() + PATIENCE
    while len(found := _named(mark)) < DAEMONS:
        if time.monotonic() > deadline:
            raise Unanswered("the daemons did not start")
        time.sleep(0.01)
    with ExitStack() as stack:
        handles = [os.pidfd_open(pid) for pid in found]
        for handle in handles:
            stack.callback(os.close, handle)
        yield handles


def _wait_for_all(handles: list[int]) -> None:
    poller = select.poll()
    for handle in handles:
        poller.register(handle, select.POLLIN)
    left = set(handles)
    while left:
        dead = poller.poll(PATIENCE * 1_000)
        if not dead:
            raise Unanswered(f"{len(left)} daemons outlived the server")
        for handle, _ in dead:
            poller.unregister(handle)
            left.remove(handle)


def _named(mark: str) -> list[int]:
    """Those that sleep for `mark` seconds."""
    return [
        int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and _arguments(pid) == ["sleep", mark, ""]
    ]


def _arguments(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return []


BENCHMARK = Benchmark(name="killing", title="Death of a killed server's commands", run=run)
