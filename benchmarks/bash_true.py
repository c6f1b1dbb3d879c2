"""The cheapest command, against starting the same shell without a server."""

import subprocess
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client
from benchmarks.figures import Row, interleaved, ratio, seconds
from benchmarks.servers import ours


def run(effort: Effort, folder: Path) -> list[Row]:
    root = folder / "true"
    root.mkdir()
    with Client(ours(root, mode="danger-full-access")) as client:
        subjects = {
            "ours": lambda: client.call("bash", {"command": "true"}).seconds,
            "plain": lambda: seconds(lambda: subprocess.run(["/bin/bash", "-c", "true"], check=True)),
        }
        interleaved(effort.rounds, subjects)
        taken = interleaved(effort.rounds * 4, subjects)
    return [ratio("`bash true` against a plain subprocess", taken["ours"], taken["plain"])]


BENCHMARK = Benchmark(name="bash", title="A command that does nothing", run=run)
