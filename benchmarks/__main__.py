"""`python -m benchmarks [NAME ...] [--quick] [--write]`: measure, and print a table.

It compares and never asserts: each line says whether its target holds. Every ratio comes from one run in
which the two sides take turns. A benchmark that cannot run is named, and the others go on.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    background_jobs,
    bash_true,
    big_file,
    big_output,
    confined,
    exiting,
    git_status,
    glob_tree,
    grep_tree,
    killing,
    list_size,
    load,
    lsp,
    machine,
    notebook,
    planting,
    protected_check,
    sanitizer,
    small_read,
    start,
    table,
    web_fetch,
)
from benchmarks.agent import agent_tasks, first_calls
from benchmarks.benchmark import FULL, QUICK, Benchmark, Effort
from benchmarks.client import Unanswered
from benchmarks.figures import Row

BENCHMARKS: tuple[Benchmark, ...] = (
    start.BENCHMARK,
    small_read.BENCHMARK,
    grep_tree.BENCHMARK,
    glob_tree.BENCHMARK,
    git_status.BENCHMARK,
    big_file.BENCHMARK,
    bash_true.BENCHMARK,
    big_output.BENCHMARK,
    killing.BENCHMARK,
    background_jobs.BENCHMARK,
    exiting.BENCHMARK,
    confined.BENCHMARK,
    protected_check.BENCHMARK,
    planting.BENCHMARK,
    list_size.BENCHMARK,
    first_calls.BENCHMARK,
    sanitizer.BENCHMARK,
    notebook.BENCHMARK,
    web_fetch.BENCHMARK,
    lsp.BENCHMARK,
    load.BENCHMARK,
    agent_tasks.BENCHMARK,
)
DOCUMENT = Path(__file__).parent.parent / "docs" / "internals" / "benchmarks.md"


def main(arguments: Sequence[str]) -> int:
    """Measure what was asked for; the exit status says only whether that was possible."""
    asked = _parser().parse_args(arguments)
    if asked.write and (asked.quick or asked.names):
        _parser().error("--write needs the whole run: give no names, and not --quick")
    chosen = [benchmark for benchmark in BENCHMARKS if benchmark.name in asked.names or not asked.names]
    facts = machine.description()
    print("\n".join(f"* {name}: {value}" for name, value in facts.items()))
    results = measured(chosen, QUICK if asked.quick else FULL)
    if len(results) < len(chosen):
        return 1
    if asked.write:
        document = table.renewed(DOCUMENT.read_text(encoding="utf-8"), table.section(facts, results))
        DOCUMENT.write_text(document, encoding="utf-8")
    return 0


def measured(chosen: Sequence[Benchmark], effort: Effort) -> dict[str, list[Row]]:
    """Run the benchmarks in order, printing each result as it comes; those that could run, by name."""
    results: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        for benchmark in chosen:
            print(f"\n### {benchmark.title}\n", flush=True)
            try:
                results[benchmark.name] = benchmark.run(effort, Path(folder))
            except (Unanswered, OSError, subprocess.SubprocessError) as error:
                print(f"could not run: {error}", flush=True)
            else:
                print(table.table(results[benchmark.name]), flush=True)
    return results


def _known(name: str) -> str:
    names = [benchmark.name for benchmark in BENCHMARKS]
    if name not in names:
        raise argparse.ArgumentTypeError(f"no benchmark is called {name}; choose from {', '.join(names)}")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument(
        "names", nargs="*", metavar="NAME", type=_known, help=f"all if not given; {', '.join(names)}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds and less data, to see that it runs"
    )
    parser.add_argument(
        "--write", action="store_true", help=f"renew the table in docs/internals/{DOCUMENT.name}"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
