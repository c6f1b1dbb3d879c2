"""Finding files by name in a large tree, against ripgrep listing the same tree."""

from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Unanswered
from benchmarks.figures import MILLISECOND, Row, interleaved, ratio, seconds
from benchmarks.ripgrep import lines
from benchmarks.servers import ours
from benchmarks.tree import grown

FACTOR = 1.5
PLUS = 15 * MILLISECOND
LIMIT = 1_000
"""Files that glob_search lists."""
PATTERNS = ("**/*.py", "**/*.md", "**/batch_*.{py,txt}", "part_00/**/*.json", "nothing_*.rs")


def run(effort: Effort, folder: Path) -> list[Row]:
    tree = grown(folder, effort.tree_files)
    with Client(ours(tree)) as client:
        rows = [_compared(client, tree, pattern, effort.rounds) for pattern in PATTERNS]
        return [*rows, _also_sorted(client, tree, effort.rounds)]


def _compared(client: Client, tree: Path, pattern: str, rounds: int) -> Row:
    found = _listed(tree, pattern)
    text = client.call("glob_search", {"pattern": pattern}).text
    listed = sum(name in text for name in found)
    if listed < min(len(found), LIMIT):
        raise Unanswered(f"glob_search lists {listed} of the {len(found)} files that match {pattern}")
    taken = interleaved(
        rounds,
        {
            "ours": lambda: client.call("glob_search", {"pattern": pattern}).seconds,
            "rg": lambda: seconds(lambda: _listed(tree, pattern)),
        },
    )
    what = f"`{pattern}` ({len(found)} files)"
    return ratio(what, taken["ours"], taken["rg"], factor=FACTOR, plus=PLUS)


def _also_sorted(client: Client, tree: Path, rounds: int) -> Row:
    """Against ripgrep when it, too, must ask every file for its time."""
    pattern = PATTERNS[0]
    taken = interleaved(
        rounds,
        {
            "ours": lambda: client.call("glob_search", {"pattern": pattern}).seconds,
            "rg": lambda: seconds(lambda: _listed(tree, pattern, "--sortr=modified")),
        },
    )
    return ratio(f"`{pattern}`, where `rg` also sorts by time", taken["ours"], taken["rg"])


def _listed(tree: Path, pattern: str, *flags: str) -> list[str]:
    return lines(tree, "--files", *flags, "-g", pattern)


BENCHMARK = Benchmark(name="glob", title="glob_search against `rg --files -g`", run=run)
