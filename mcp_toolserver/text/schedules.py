"""Formats schedules for a model and for the command line."""

from collections.abc import Iterator
from datetime import datetime

from mcp_toolserver.capabilities.cron import Schedule, ScheduledRun
from mcp_toolserver.text.lines.truncate import head_bytes

_SHOWN_RUNS = 3

_LINE_BYTES = 160


def listed(schedule: Schedule) -> str:
    """Format a schedule with a line for each of its last runs."""
    return "\n".join((*_facts(schedule), *map(_run_line, schedule.runs[:_SHOWN_RUNS])))


def detailed(schedule: Schedule) -> str:
    """Format a schedule with the output of each stored run."""
    return "\n".join((*_facts(schedule, whole=True), *map(_whole_run, schedule.runs)))


def _facts(schedule: Schedule, *, whole: bool = False) -> Iterator[str]:
    job = schedule.job
    yield schedule.handle + (f": {_first_line(schedule.description)}" if schedule.description else "")
    following = "never again" if schedule.next is None else f"next {at(schedule.next)}"
    catching_up = ", catches up" if schedule.catch_up else ""
    yield f"  {schedule.fields} in {schedule.zone}, {following}{catching_up}"
    yield f"  {job.kind}: {job.text if whole else _first_line(job.text)}"
    if schedule.last_missed is not None:
        last = at(schedule.last_missed)
        yield f"  missed {schedule.missed}, the last {last}: no server ran, or earlier runs had not ended"
    yield f"  runs: {schedule.run_count}" + ("; the last ones:" if schedule.runs else "")


def _run_line(run: ScheduledRun) -> str:
    said = _first_line(run.output)
    return f"    {at(run.due)} {_ending(run)}" + (f": {said}" if said else "")


def _whole_run(run: ScheduledRun) -> str:
    return f"    {at(run.due)} {_ending(run)}" + (f"\n{run.output.rstrip()}" if run.output else "")


def _ending(run: ScheduledRun) -> str:
    if run.outcome == "interrupted":
        return "interrupted, because its server ended; it is not repeated"
    if run.ended is None:
        return f"{run.outcome} since {at(run.started)}"
    return f"{run.outcome} after {(run.ended - run.started).total_seconds():.0f} s"


def at(moment: datetime) -> str:
    """Format a time with its offset from UTC, to the second where it is not a whole minute."""
    return moment.isoformat(timespec="seconds" if moment.second else "minutes")


def _first_line(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    line = head_bytes(lines[0], _LINE_BYTES)
    return line + (" …" if len(lines) > 1 or line != lines[0] else "")
