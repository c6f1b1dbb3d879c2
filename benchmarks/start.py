"""From starting the process to holding its list of tools."""

import json
import sys
import time
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Launch, Unanswered
from benchmarks.figures import Row, interleaved, left_out, ratio
from benchmarks.servers import HERE, NO_NODE, bare, filesystem, ours

FACTOR = 0.85
UPSTREAMS, UPSTREAMS_FACTOR = 10, 1.05
ATTEMPTS = 10


def run(effort: Effort, folder: Path) -> list[Row]:
    root = folder / "start"
    root.mkdir()
    launches = {"bare": bare(), "lean": ours(root, toolset="lean"), "default": ours(root)}
    launches["upstreams"] = _with_upstreams(root)
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
    what = f"{UPSTREAMS} upstream servers that were listed before, against none"
    rows.append(ratio(what, taken["upstreams"], taken["default"], factor=UPSTREAMS_FACTOR))
    against = "toolset `default` against the official filesystem server"
    if official is None:
        return [*rows, left_out(against, NO_NODE)]
    return [*rows, ratio(against, taken["default"], taken["official"])]


def _with_upstreams(root: Path) -> Launch:
    """Once all upstream servers have been listed."""
    file = root.parent / "upstreams.json"
    entry = {"command": sys.executable, "args": ["-m", "benchmarks.bare_server"], "cwd": str(HERE.parent)}
    servers = {f"bare{number}": entry for number in range(UPSTREAMS)}
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    launch = ours(root, more=("--upstreams", str(file)))
    for _ in range(ATTEMPTS):
        with Client(launch) as client:
            tools = client.request("tools/list", {}).result["tools"]
            if sum(tool["name"].startswith("mcp__bare") for tool in tools) == UPSTREAMS:
                return launch
    raise Unanswered("not all upstream servers could be listed")


def _to_list(launch: Launch) -> float:
    """Ending the server is not counted."""
    start = time.perf_counter()
    with Client(launch) as client:
        client.request("tools/list", {})
        return time.perf_counter() - start


BENCHMARK = Benchmark(name="start", title="Start to the answer of tools/list", run=run)
