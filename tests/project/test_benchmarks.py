"""What the benchmarks compute and write; measuring itself is not tested here."""

import importlib
import pkgutil

import pytest

import benchmarks
from benchmarks import table
from benchmarks.__main__ import BENCHMARKS, DOCUMENT
from benchmarks.figures import at_most, difference, interleaved, left_out, milliseconds, ratio

MS = 1e-3


def test_every_benchmark_is_listed_once_and_explained_in_the_document() -> None:
    found = pkgutil.walk_packages(benchmarks.__path__, f"{benchmarks.__name__}.")
    names = [module.name for module in found if not module.name.endswith(".__main__")]
    modules = [importlib.import_module(name) for name in names]
    listed = sorted(module.BENCHMARK.name for module in modules if hasattr(module, "BENCHMARK"))
    assert sorted(benchmark.name for benchmark in BENCHMARKS) == listed
    assert len({benchmark.title for benchmark in BENCHMARKS}) == len(BENCHMARKS) == len({*listed})
    document = DOCUMENT.read_text(encoding="utf-8")
    assert [name for name in listed if f"`{name}`" not in document] == []
    assert table.renewed(document, "new").count("\n\nnew\n\n") == 1


def test_subjects_take_turns_and_every_second_round_runs_backwards() -> None:
    order: list[str] = []

    def measure(name: str) -> float:
        order.append(name)
        return float(len(order))

    taken = interleaved(3, {"a": lambda: measure("a"), "b": lambda: measure("b")})
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert taken == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_a_figure_holds_up_to_its_limit() -> None:
    for row, holds, target in (
        # One slow round does not move a ratio.
        (ratio("x", [2 * MS, 2 * MS, 900 * MS], [MS, MS, MS], factor=2.0), True, "≤ 2 ×"),
        (ratio("x", [145 * MS], [100 * MS], factor=1.3, plus=15.5 * MS), True, "≤ 1.3 × + 15.5 ms"),
        (ratio("x", [146 * MS], [100 * MS], factor=1.3, plus=15.5 * MS), False, "≤ 1.3 × + 15.5 ms"),
        (difference("x", [0.9 * MS], [0.55 * MS], most=0.4 * MS), True, "≤ 0.4 ms"),
        (difference("x", [1.0 * MS], [0.55 * MS], most=0.4 * MS), False, "≤ 0.4 ms"),
        (at_most("x", 5.0, 5.0, str), True, "≤ 5.0"),
        (at_most("x", 5.1, 5.0, str), False, "≤ 5.0"),
    ):
        assert (row.holds, row.target) == (holds, target)
    assert table.verdict(ratio("x", [2.0], [1.0])) == ""
    assert difference("x", [1 * MS], [2 * MS], most=0.4 * MS).compared == "- 1.00 ms"
    assert [milliseconds(one) for one in (0.000_421, 0.012_34, 1.234_5)] == ["0.42 ms", "12.3 ms", "1234 ms"]


def test_the_table_says_what_holds_and_what_misses() -> None:
    rows = [at_most("good", 1.0, 2.0, str), at_most("bad", 3.0, 2.0, str), left_out("a | b", "no node")]
    lines = table.table(rows).splitlines()
    assert lines[2].endswith("| ≤ 2.0 | holds |")
    assert lines[3].endswith("| ≤ 2.0 | **misses** |")
    assert lines[4] == r"| a \| b | – | no node | – | – |  |"


def test_results_replace_only_what_lies_between_the_marks() -> None:
    document = f"before\n{table.START}\nold\n{table.END}\nafter\n"
    assert table.renewed(document, "new") == f"before\n{table.START}\n\nnew\n\n{table.END}\nafter\n"
    start, end = table.START, table.END
    for marks in ("", start, f"{end}{start}", f"{start}{start}{end}", f"{start}{end}{end}"):
        with pytest.raises(ValueError, match="once each"):
            table.renewed(marks, "new")
