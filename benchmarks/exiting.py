"""How long a server takes to be gone: when its client closes the pipe, and when it gets a signal."""

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Unanswered
from benchmarks.figures import Row, at_most, milliseconds
from benchmarks.servers import ours

IDLE, BUSY = 0.06, 0.5
PATIENCE = 10.0

Way = Callable[[Client], None]


def _terminate(client: Client) -> None:
    os.kill(client.pid, signal.SIGTERM)


WAYS: dict[str, Way] = {"stdin closed": Client.hang_up, "SIGTERM": _terminate}


def run(effort: Effort, folder: Path) -> list[Row]:
    rounds = max(effort.starts // 2, 3)
    root = folder / "exit"
    root.mkdir()
    idle = [_once(root, Client.hang_up, mode="read-only") for _ in range(rounds)]
    what = f"stdin closed, read-only, idle, median of {rounds}"
    return [
        at_most(what, median(idle), IDLE, milliseconds),
        *(_busy(name, way, rounds, root) for name, way in WAYS.items()),
    ]


def _busy(name: str, way: Way, rounds: int, root: Path) -> Row:
    command = "touch runs; sleep 100"
    taken = [_once(root, way, mode="danger-full-access", command=command) for _ in range(rounds)]
    what = f"{name}, `bash` with a sleep in flight, median of {rounds}"
    return at_most(what, median(taken), BUSY, milliseconds)


def _once(root: Path, way: Way, *, mode: str, command: str = "") -> float:
    """From the end's beginning to the death of the process."""
    runs = root / "runs"
    runs.unlink(missing_ok=True)
    with Client(ours(root, mode=mode)) as client:
        client.request("tools/list", {})
        if command:
            client.begin("tools/call", {"name": "bash", "arguments": {"command": command}})
            _wait_for(runs)
        handle = os.pidfd_open(client.pid)
        try:
            start = time.perf_counter()
            way(client)
            if not select.select([handle], [], [], PATIENCE)[0]:
                raise Unanswered(f"the server still lives after {PATIENCE:g} s")
            return time.perf_counter() - start
        finally:
            os.close(handle)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > deadline:
            raise Unanswered("the command did not start")
        time.sleep(0.005)


BENCHMARK = Benchmark(name="exit", title="The end of a server", run=run)
