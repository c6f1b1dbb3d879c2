"""What the list of tools costs a model's context."""

import json
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client
from benchmarks.figures import Row, at_most
from benchmarks.servers import ours

BUDGETS = {"lean": 5_000, "default": 16_000}
MODE = "danger-full-access"
"""The mode that lists most."""


def run(_effort: Effort, folder: Path) -> list[Row]:
    root = folder / "size"
    root.mkdir()
    return [_size(root, toolset, most) for toolset, most in BUDGETS.items()]


def _size(root: Path, toolset: str, most: int) -> Row:
    with Client(ours(root, mode=MODE, toolset=toolset)) as client:
        tools = client.request("tools/list", {}).result["tools"]
    size = len(json.dumps(tools, separators=(",", ":"), ensure_ascii=False))
    return at_most(f"toolset `{toolset}`: {len(tools)} tools", size, most, characters)


def characters(value: float) -> str:
    """A count for the table."""
    return f"{value:,.0f} characters"


BENCHMARK = Benchmark(name="list-size", title="Size of tools/list", run=run)
