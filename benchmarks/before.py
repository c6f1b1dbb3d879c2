"""`python -m benchmarks.before PYTHON`: start, small reads and lists of tools, against an earlier version.

PYTHON is the interpreter of an environment in which the earlier version is installed. Both take turns in one
run.
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.client import Client, Launch
from benchmarks.figures import interleaved
from benchmarks.list_size import size
from benchmarks.servers import ours

STARTS = 40
READS = 4_000
IN_A_ROW = 100
TOOLSETS = (
    "lean",
    "default",
    "files",
    "search",
    "shell",
    "git",
    "web",
    "talk",
    "plan",
    "lsp",
    "desktop",
    "all",
)


def main(python: str) -> None:
    """Measure, and print a line for each comparison."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        (root / "small.txt").write_text("a line of a small text file\n" * 20, encoding="utf-8")
        _starts(root, python)
        _reads(root, python)
        for toolset in TOOLSETS:
            launch = ours(root, mode="danger-full-access", toolset=toolset)
            now, before = (_size(one) for one in (launch, _with(launch, python)))
            print(f"list of {toolset}: {_shown(now)}; before: {_shown(before)}")


def _with(launch: Launch, python: str) -> Launch:
    # Its own folder, because the current one comes first among the places of modules.
    return replace(launch, command=[python, *launch.command[1:]], cwd=Path(python).parent)


def _starts(root: Path, python: str) -> None:
    for toolset in ("lean", "default"):
        launch = ours(root, toolset=toolset)
        launches = {"now": launch, "before": _with(launch, python)}
        subjects = {name: lambda one=one: _to_list(one) for name, one in launches.items()}
        interleaved(2, subjects)
        taken = {name: median(times) for name, times in interleaved(STARTS, subjects).items()}
        print(f"start, {toolset}: {_compared(taken)}")


def _to_list(launch: Launch) -> float:
    start = time.perf_counter()
    with Client(launch) as client:
        client.request("tools/list", {})
        return time.perf_counter() - start


def _reads(root: Path, python: str) -> None:
    launch = ours(root)
    with ExitStack() as stack:
        launches = {"now": launch, "before": _with(launch, python)}
        clients = {name: stack.enter_context(Client(one)) for name, one in launches.items()}
        taken: dict[str, list[float]] = {name: [] for name in clients}
        for turn in range(READS // IN_A_ROW + 2):
            for name, client in clients.items():
                times = [client.call("read_file", {"path": "small.txt"}).seconds for _ in range(IN_A_ROW)]
                taken[name] += times if turn > 1 else []
        print(f"p50 of a small read: {_compared({name: median(times) for name, times in taken.items()})}")


def _compared(taken: dict[str, float]) -> str:
    now, before = taken["now"], taken["before"]
    return f"{now / before:.3f} x ({now * 1000:.2f} ms, before {before * 1000:.2f} ms)"


def _shown(found: tuple[int, int]) -> str:
    return f"{found[1]:,} characters, {found[0]} tools"


def _size(launch: Launch) -> tuple[int, int]:
    with Client(launch) as client:
        tools = client.request("tools/list", {}).result["tools"]
    return len(tools), size(tools)


if __name__ == "__main__":
    main(*sys.argv[1:])
