"""What the list of tools costs a model's context."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client
from benchmarks.figures import Row, at_most
from benchmarks.servers import ours

BUDGETS = {"lean": 8_500, "default": 22_000, "all": 80_000}
"""Characters of the list. It also has what clients show to people: a title of some 25 characters a tool."""

MODE = "danger-full-access"
"""The mode that lists most."""


def run(_effort: Effort, folder: Path) -> list[Row]:
    root = folder / "size"
    root.mkdir()
    return [_size(root, toolset, most) for toolset, most in BUDGETS.items()]


def _size(root: Path, toolset: str, most: int) -> Row:
    with Client(ours(root, mode=MODE, toolset=toolset)) as client:
        tools = client.request("tools/list", {}).result["tools"]
    return at_most(f"toolset `{toolset}`: {len(tools)} tools", size(tools), most, characters)


def size(tools: Sequence[Mapping[str, object]]) -> int:
    """Characters of the list as compact JSON."""
    return len(json.dumps(tools, separators=(",", ":"), ensure_ascii=False))


def characters(value: float) -> str:
    """A count for the table."""
    return f"{value:,.0f} characters"


BENCHMARK = Benchmark(name="list-size", title="Size of tools/list", run=run)
