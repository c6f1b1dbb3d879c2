"""From starting the process to holding its list of tools."""

import time
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Launch
from benchmarks.figures import Row, interleaved, left_out, ratio
from benchmarks.servers import NO_NODE, bare, filesystem, ours

FACTOR = 0.85


def run(effort: Effort, folder: Path) -> list[Row]:
    root = folder / "start"
    root.mkdir()
    launches = {"bare": bare(), "lean": ours(root, toolset="lean"), "default": ours(root)}
    official = filesystem(root)
    if official is not None:
        launches["official"] = official
    subjects = {name: lambda launch=launch: _to_list(launch) for name, launch in launches.items()}
    interleaved(1, subjects)  # compiles, and fills the page cache
    taken = interleaved(effort.starts, subjects)
    rows = [
        ratio(f"toolset `{name}` against a bare SDK server", taken[name], taken["bare"], factor=FACTOR)
        for name in ("lean", "default")
    ]
    against = "toolset `default` against the official filesystem server"
    if official is None:
        return [*rows, left_out(against, NO_NODE)]
    return [*rows, ratio(against, taken["default"], taken["official"])]


def _to_list(launch: Launch) -> float:
    """Ending the server is not counted."""
    start = time.perf_counter()
    with Client(launch) as client:
        client.request("tools/list", {})
        return time.perf_counter() - start


BENCHMARK = Benchmark(name="start", title="Start to the answer of tools/list", run=run)
