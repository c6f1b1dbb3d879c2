"""Twelve tasks on third-party projects, with this server and with the official one and a bare shell.

A model does not take part. Each task is the sequence of calls that a good agent makes with the tools it has,
and ends in a check of what came of it: tests that pass, the content of a file, the answer of a server.
"""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.agent.agent import Usage
from benchmarks.agent.projects import CACHE
from benchmarks.agent.setups import Outcome, done_with_other, done_with_ours
from benchmarks.agent.task import Task
from benchmarks.agent.tasks import (
    database,
    dev_server,
    failing_build,
    failing_test,
    feature,
    long_job,
    long_output,
    notebook_cell,
    refactoring,
    rename,
    review,
    understanding,
)
from benchmarks.benchmark import FULL, Benchmark, Effort
from benchmarks.client import Unanswered
from benchmarks.figures import Row, left_out
from benchmarks.list_size import characters

TASKS: tuple[Task, ...] = (
    failing_test.TASK,
    rename.TASK,
    feature.TASK,
    failing_build.TASK,
    dev_server.TASK,
    database.TASK,
    notebook_cell.TASK,
    long_job.TASK,
    understanding.TASK,
    review.TASK,
    refactoring.TASK,
    long_output.TASK,
)
ON_CLICK = (failing_test.TASK, rename.TASK, feature.TASK, failing_build.TASK)
"""Of the kind that were once done by hand with this server's tools, in `CALLS_BEFORE` calls."""

CALLS_BEFORE = 34
CALLS_OF_JOB = 3
JOB_SECONDS = 70
QUICK_JOB_SECONDS = 2
NO_NODE = "needs node and npm"


def run(effort: Effort, _folder: Path) -> list[Row]:
    job_seconds = JOB_SECONDS if effort == FULL else QUICK_JOB_SECONDS
    # Not in the given folder: commands share no /tmp where a root is below it.
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="work-", dir=CACHE) as folder:
        return _rows(Path(folder), job_seconds)


def _rows(folder: Path, job_seconds: int) -> list[Row]:
    ours: dict[str, Outcome] = {}
    other: dict[str, Outcome] = {}
    rows: list[Row] = []
    for number, task in enumerate(TASKS):
        place = folder / str(number)
        try:
            mine = done_with_ours(task, place / "ours", job_seconds)
            theirs = done_with_other(task, place / "other", job_seconds)
        except (Unanswered, OSError, subprocess.SubprocessError) as error:
            print(f"{task.name}: {error}", file=sys.stderr)
            rows.append(left_out(task.name, "could not be done"))
            continue
        ours[task.name] = mine
        if theirs is not None:
            other[task.name] = theirs
        is_job = task is long_job.TASK and job_seconds == JOB_SECONDS
        rows.append(
            _compared(task.name, mine.usage, theirs and theirs.usage, CALLS_OF_JOB if is_job else None)
        )
    for what, tasks, most in (
        (f"all {len(TASKS)} tasks", TASKS, None),
        ("the four tasks on click", ON_CLICK, CALLS_BEFORE),
    ):
        total = _total(tasks, ours)
        rows.append(
            left_out(what, "not all of them could be done")
            if total is None
            else _compared(what, total, _total(tasks, other), most)
        )
    return [*rows, *_list_sizes(ours, other)]


def _total(tasks: Sequence[Task], outcomes: Mapping[str, Outcome]) -> Usage | None:
    """None unless all were done: a sum of fewer would compare different work."""
    if any(task.name not in outcomes for task in tasks):
        return None
    return sum((outcomes[task.name].usage for task in tasks), Usage())


def _compared(what: str, ours: Usage, other: Usage | None, most: int | None) -> Row:
    return Row(
        what=what,
        ours=_shown(ours),
        other=NO_NODE if other is None else _shown(other),
        compared="–" if other is None else f"{ours.characters / other.characters:.2f} ×",
        target="–" if most is None else f"≤ {most} calls, 0 rejected",
        holds=None if most is None else ours.calls <= most and ours.rejected == 0,
    )


def _shown(usage: Usage) -> str:
    """`4 calls, 0 rejected, 3,210 characters, 5.1 s`."""
    calls = "1 call" if usage.calls == 1 else f"{usage.calls} calls"
    counts = f"{calls}, {usage.rejected} rejected"
    return f"{counts}, {characters(usage.characters)}, {usage.seconds:.1f} s"


def _list_sizes(ours: Mapping[str, Outcome], other: Mapping[str, Outcome]) -> list[Row]:
    """One row for each list of ours that a task uses."""
    sizes = {task.toolsets: ours[task.name].list_size for task in TASKS if task.name in ours}
    theirs = next((outcome.list_size for outcome in other.values()), None)
    return [
        Row(
            what=f"list of tools, sent once: `{toolsets}`",
            ours=characters(size),
            other=NO_NODE if theirs is None else characters(theirs),
            compared="–" if theirs is None else f"{size / theirs:.2f} ×",
        )
        for toolsets, size in sizes.items()
    ]


BENCHMARK = Benchmark(
    name="agent-tasks",
    title="Tasks on real projects, against the official filesystem server with a shell",
    run=run,
)
