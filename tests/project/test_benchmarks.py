"""What the benchmarks compute and write; measuring itself is not tested here."""

import importlib
import pkgutil

import pytest

import benchmarks
from benchmarks import table
from benchmarks.__main__ import BENCHMARKS, DOCUMENT
from benchmarks.benchmark import Benchmark
from benchmarks.figures import at_most, difference, interleaved, left_out, milliseconds, ratio

MS = 1e-3


def names_in_package() -> list[str]:
    found = pkgutil.walk_packages(benchmarks.__path__, f"{benchmarks.__name__}.")
    return [module.name for module in found if not module.name.endswith(".__main__")]


def test_every_module_that_holds_a_benchmark_is_listed() -> None:
    modules = [importlib.import_module(name) for name in names_in_package()]
    found = [module.BENCHMARK for module in modules if hasattr(module, "BENCHMARK")]
    assert {benchmark.name for benchmark in found} == {benchmark.name for benchmark in BENCHMARKS}


def test_names_and_titles_are_unique() -> None:
    assert len({benchmark.name for benchmark in BENCHMARKS}) == len(BENCHMARKS)
    assert len({benchmark.title for benchmark in BENCHMARKS}) == len(BENCHMARKS)


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_the_document_explains_every_benchmark_by_name(benchmark: Benchmark) -> None:
    assert f"`{benchmark.name}`" in DOCUMENT.read_text(encoding="utf-8")


def test_the_document_has_a_place_for_the_results() -> None:
    assert table.renewed(DOCUMENT.read_text(encoding="utf-8"), "new").count("\n\nnew\n\n") == 1


def test_subjects_take_turns_and_every_second_round_runs_backwards() -> None:
    order: list[str] = []

    def measure(name: str) -> float:
        order.append(name)
        return float(len(order))

    taken = interleaved(3, {"a": lambda: measure("a"), "b": lambda: measure("b")})
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert taken == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_one_slow_round_does_not_move_a_ratio() -> None:
    row = ratio("x", [2 * MS, 2 * MS, 900 * MS], [1 * MS, 1 * MS, 1 * MS], factor=2.0)
    assert row.compared == "2.00 ×"
    assert row.holds


@pytest.mark.parametrize(
    ("ours", "holds"),
    [
        pytest.param(130 * MS, True, id="within the factor"),
        pytest.param(145 * MS, True, id="within the allowance on top"),
        pytest.param(146 * MS, False, id="beyond both"),
    ],
)
def test_a_ratio_holds_up_to_its_factor_and_allowance(ours: float, holds: bool) -> None:
    row = ratio("x", [ours], [100 * MS], factor=1.3, plus=15.5 * MS)
    assert row.holds is holds
    assert row.target == "≤ 1.3 × + 15.5 ms"


def test_a_ratio_without_a_target_has_no_verdict() -> None:
    row = ratio("x", [2.0], [1.0])
    assert row.holds is None
    assert table.verdict(row) == ""


@pytest.mark.parametrize(
    ("ours", "holds"), [pytest.param(0.9 * MS, True, id="below"), pytest.param(1.0 * MS, False, id="above")]
)
def test_a_difference_holds_up_to_its_limit(ours: float, holds: bool) -> None:
    row = difference("x", [ours], [0.55 * MS], most=0.4 * MS)
    assert row.holds is holds
    assert row.target == "≤ 0.4 ms"


def test_a_difference_in_our_favour_is_shown_as_less() -> None:
    assert difference("x", [1 * MS], [2 * MS], most=0.4 * MS).compared == "- 1.00 ms"


def test_a_limit_holds_when_it_is_just_reached() -> None:
    assert at_most("x", 5.0, 5.0, str).holds is True
    assert at_most("x", 5.1, 5.0, str).holds is False


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(0.000_421, "0.42 ms", id="fractions"),
        pytest.param(0.012_34, "12.3 ms", id="tens"),
        pytest.param(1.234_5, "1234 ms", id="a second"),
    ],
)
def test_times_are_shown_with_about_three_digits(value: float, shown: str) -> None:
    assert milliseconds(value) == shown


def test_the_table_says_what_holds_and_what_misses() -> None:
    rows = [at_most("good", 1.0, 2.0, str), at_most("bad", 3.0, 2.0, str), left_out("rest", "no node")]
    lines = table.table(rows).splitlines()
    assert lines[2].endswith("| ≤ 2.0 | holds |")
    assert lines[3].endswith("| ≤ 2.0 | **misses** |")
    assert lines[4] == "| rest | – | no node | – | – |  |"


def test_a_pipe_in_a_cell_does_not_make_a_column() -> None:
    assert r"`yes \| head`" in table.table([left_out("`yes | head`", "x")])


def test_results_replace_only_what_lies_between_the_marks() -> None:
    document = f"before\n{table.START}\nold\n{table.END}\nafter\n"
    assert table.renewed(document, "new") == f"before\n{table.START}\n\nnew\n\n{table.END}\nafter\n"


@pytest.mark.parametrize(
    "document",
    [
        pytest.param("", id="no marks"),
        pytest.param(table.START, id="no end"),
        pytest.param(f"{table.END}{table.START}", id="wrong order"),
        pytest.param(f"{table.START}{table.START}{table.END}", id="two starts"),
        pytest.param(f"{table.START}{table.END}{table.END}", id="two ends"),
    ],
)
def test_a_document_without_the_marks_is_left_alone(document: str) -> None:
    with pytest.raises(ValueError, match="once each"):
        table.renewed(document, "new")
