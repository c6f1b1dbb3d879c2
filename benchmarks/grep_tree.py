"""Searching for lines in a large tree, against ripgrep itself on the same tree."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Answer, Client, Unanswered
from benchmarks.figures import MILLISECOND, Row, interleaved, ratio, seconds
from benchmarks.ripgrep import lines
from benchmarks.servers import ours
from benchmarks.tree import COMMON, FEW, RARE, grown

FACTOR = 1.3
PLUS = 15 * MILLISECOND
SURELY_SHOWN = 100
"""Below the default limit."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """The same search for both. A `head_limit` of 0 is no limit, which is how ripgrep searches."""

    what: str
    arguments: dict[str, str | int | bool]
    flags: Sequence[str]


SEARCHES = (
    Search(
        what="files, many, of which the default limit is shown",
        arguments={"pattern": COMMON, "output_mode": "files_with_matches"},
        flags=("-l", COMMON),
    ),
    Search(
        what="files, many, all shown",
        arguments={"pattern": COMMON, "output_mode": "files_with_matches", "head_limit": 0},
        flags=("-l", COMMON),
    ),
    Search(
        what="files, one",
        arguments={"pattern": RARE, "output_mode": "files_with_matches"},
        flags=("-l", RARE),
    ),
    Search(what="lines, few", arguments={"pattern": FEW, "output_mode": "content"}, flags=("-n", FEW)),
    Search(
        what="counts, many, all shown",
        arguments={"pattern": COMMON, "output_mode": "count", "head_limit": 0},
        flags=("-c", COMMON),
    ),
    Search(
        what="lines, a pattern with classes, all shown",
        arguments={
            "pattern": r"class \w+token\w*:$",
            "output_mode": "content",
            "-i": True,
            "head_limit": 0,
        },
        flags=("-n", "-i", r"class \w+token\w*:$"),
    ),
)


def run(effort: Effort, folder: Path) -> list[Row]:
    tree = grown(folder, effort.tree_files)
    with Client(ours(tree)) as client:
        return [_compared(client, tree, search, effort.rounds) for search in SEARCHES]


def _compared(client: Client, tree: Path, search: Search, rounds: int) -> Row:
    found = lines(tree, *search.flags)
    text = _whole(client.call("grep_search", search.arguments))
    named = sum(line.partition(":")[0] in text for line in found)
    if named < min(len(found), SURELY_SHOWN) or ("head_limit" in search.arguments and named < len(found)):
        raise Unanswered(f"grep_search ({search.what}) names {named} of the {len(found)} that ripgrep finds")
    subjects = {
        "ours": lambda: client.call("grep_search", search.arguments).seconds,
        "rg": lambda: seconds(lambda: lines(tree, *search.flags)),
    }
    taken = interleaved(rounds, subjects)
    what = f"{search.what} ({len(found)} lines from rg)"
    return ratio(what, taken["ours"], taken["rg"], factor=FACTOR, plus=PLUS)


def _whole(answer: Answer) -> str:
    """The text of an answer, from its saved output if it is too long to be sent whole."""
    saved = re.search(r'bytes are left out; read all of it with read_file, path "(.+)"\]', answer.text)
    return answer.text if saved is None else Path(saved[1]).read_text(encoding="utf-8")


BENCHMARK = Benchmark(name="grep", title="grep_search against `rg`", run=run)
