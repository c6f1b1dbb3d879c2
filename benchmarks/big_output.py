"""A command that prints far more than anybody wants to read, to its end and beyond its time."""

import time
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client
from benchmarks.figures import Row, at_most, milliseconds
from benchmarks.memory import Peak, megabytes
from benchmarks.servers import ours

LATE = 1.0
GROWTH = 40_000_000
TIMEOUT = 1.0
ENDED = "ended"


def run(effort: Effort, folder: Path) -> list[Row]:
    root = folder / "output"
    root.mkdir()
    with Client(ours(root, mode="danger-full-access")) as client:
        client.call("bash", {"command": "true"})  # the first call of all costs more than its own
        return [*_to_the_end(client, root, effort.big_output), *_beyond_its_time(client)]


def _to_the_end(client: Client, root: Path, size: int) -> list[Row]:
    command = f"yes | head -c {size}; date +%s.%N > {ENDED}"
    peak = Peak.of(client.pid)
    answer = client.call("bash", {"command": command, "timeout": 120_000}, patience=150)
    late = time.time() - float((root / ENDED).read_text(encoding="ascii"))
    what = f"`yes | head -c {size}`"
    return [
        Row(what=f"{what}: the whole call", ours=milliseconds(answer.seconds)),
        at_most(f"{what}: answer after the command's end", late, LATE, milliseconds),
        at_most(f"{what}: growth of the server's memory", peak.growth(), GROWTH, megabytes),
    ]


def _beyond_its_time(client: Client) -> list[Row]:
    peak = Peak.of(client.pid)
    start = time.perf_counter()
    client.request(
        "tools/call", {"name": "bash", "arguments": {"command": "yes", "timeout": int(TIMEOUT * 1_000)}}
    )
    late = time.perf_counter() - start - TIMEOUT
    what = f"endless `yes`, stopped after {TIMEOUT:g} s"
    return [
        at_most(f"{what}: answer after that", late, LATE, milliseconds),
        at_most(f"{what}: growth of the server's memory", peak.growth(), GROWTH, megabytes),
    ]


BENCHMARK = Benchmark(name="big-output", title="Very much output", run=run)
