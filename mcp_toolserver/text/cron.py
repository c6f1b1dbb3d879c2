"""Cron expressions: five fields as in Debian's cron, and the moments that they mean in a time zone. Formats
schedules.

A moment that falls into the hour that a daylight-saving change skips is moved to the end of that hour, and
in the hour that is repeated a job runs once, unless its minute or hour is `*` (or `*/n`): such a job runs at
regular intervals of elapsed time. Moments are whole seconds since 1970.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice, takewhile

from mcp_toolserver.capabilities.cron import Schedule, ScheduledRun
from mcp_toolserver.text.lines.encoding import head_bytes

MAX_CHARACTERS = 200

MAX_COUNTED = 1_000
"""Past moments that are counted at most."""

_SHORTCUTS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * SUN",
    "@monthly": "0 0 1 * *",
    "@annually": "0 0 1 1 *",
    "@yearly": "0 0 1 1 *",
}

_CHARACTERS = re.compile(r"[0-9A-Za-z*/,#\-\s]+")

_FIRST_WINDOW = 3_600
"""Seconds."""


def parse_cron(text: str) -> str:
    """Return the five fields of an expression, which is valid and occurs at some time.

    Raises:
        ValueError: it is not, or it never occurs.
    """
    words = text.split()
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"a schedule has at most {MAX_CHARACTERS} characters")
    if text.strip().startswith("@"):
        if (fields := _SHORTCUTS.get(text.strip().lower())) is None:
            raise ValueError(f"unknown shortcut {text.strip()!r}; choose from {', '.join(_SHORTCUTS)}")
        return fields
    if len(words) != 5:
        raise ValueError(
            f"a schedule has five fields (minute, hour, day of month, month, day of week), not {len(words)}; "
            "for example '30 2 * * MON-FRI', or a shortcut such as @daily"
        )
    if _CHARACTERS.fullmatch(text) is None:
        raise ValueError("a schedule consists of numbers, names such as MON or JAN, and * , - / #")
    fields = " ".join(words).upper()
    if next_moment(fields, UTC, 0) is None:
        raise ValueError(f"'{fields}' never occurs, because no month has such a day")
    return fields


def next_moment(fields: str, zone: tzinfo, after: float) -> int | None:
    """Return the first moment after `after`; None if there is none within 50 years.

    Raises:
        ValueError: `fields` is invalid.
    """
    return next(_moments(fields, zone, after), None)


def past_moments(fields: str, zone: tzinfo, since: int, until: float) -> tuple[int, int]:
    """Count `since` and the moments after it to `until`, at most `MAX_COUNTED`; also return the latest.

    Raises:
        ValueError: `fields` is invalid.
    """
    count, latest = 1, since
    for moment in _until(fields, zone, since, until):
        count, latest = count + 1, moment
        if count == MAX_COUNTED:
            return count, _latest(fields, zone, since, until)
    return count, latest


def _latest(fields: str, zone: tzinfo, since: int, until: float) -> int:
    """The last moment after `since` to `until`, of which there is one, searched from the end."""
    window = _FIRST_WINDOW
    while True:
        start = max(since, int(until) - window)
        if moments := tuple(_until(fields, zone, start, until)):
            return moments[-1]
        window *= 4


def _until(fields: str, zone: tzinfo, after: float, until: float) -> Iterator[int]:
    return takewhile(lambda moment: moment <= until, _moments(fields, zone, after))


def _moments(fields: str, zone: tzinfo, after: float) -> Iterator[int]:
    # Most servers never need this import.
    from cronsim import CronSim, CronSimError

    try:
        moments = CronSim(fields, datetime.fromtimestamp(after, zone))
    except CronSimError as error:
        raise ValueError(f"'{fields}': {str(error).lower()}") from None
    previous = after
    for moment in moments:
        # In the second pass through a repeated hour, cronsim begins with moments of the first.
        found = int(moment.timestamp())
        if found > previous:
            yield found
            previous = found


_SHOWN_RUNS = 3

_LINE_BYTES = 160


def listed(schedule: Schedule) -> str:
    """Format a schedule with a line for each of its last runs."""
    said = (f": {line}" if (line := _first_line(run.output)) else "" for run in schedule.runs)
    return "\n".join((*_facts(schedule), *islice(map(_run, schedule.runs, said), _SHOWN_RUNS)))


def detailed(schedule: Schedule) -> str:
    """Format a schedule with the output of each stored run."""
    runs = (_run(run, f"\n{run.output.rstrip()}" * bool(run.output)) for run in schedule.runs)
    return "\n".join((*_facts(schedule, whole=True), *runs))


def _facts(schedule: Schedule, *, whole: bool = False) -> Iterator[str]:
    job = schedule.job
    yield schedule.handle + (f": {_first_line(schedule.description)}" if schedule.description else "")
    following = "never again" if schedule.next is None else f"next {at(schedule.next)}"
    catching_up = (", catches up" if schedule.catch_up else "") + (", once" if schedule.once else "")
    yield f"  {schedule.fields} in {schedule.zone}, {following}{catching_up}"
    yield f"  {job.kind}: {job.text if whole else _first_line(job.text)}"
    if schedule.last_missed is not None:
        last = at(schedule.last_missed)
        yield f"  missed {schedule.missed}, the last {last}: {_why_missed(schedule, schedule.last_missed)}"
    if schedule.waits:
        yield f"  waits for a server that can run it; this one cannot: {schedule.waits}"
    yield f"  runs: {schedule.run_count}" + ("; the last ones:" if schedule.runs else "")


def _why_missed(schedule: Schedule, moment: datetime) -> str:
    still = (run for run in schedule.runs if run.due < moment and (run.ended is None or run.ended > moment))
    if any(still):
        return "the run before had not ended"
    return "no server ran that could run it"


def _run(run: ScheduledRun, said: str) -> str:
    ending = "waits for a free place, or for the end of plan mode"
    if run.started is not None:
        ending = f"{run.outcome} since {at(run.started)}"
    if run.started is not None and run.ended is not None:
        ending = f"{run.outcome} after {(run.ended - run.started).total_seconds():.0f} s"
    if run.outcome == "interrupted":
        ending = "interrupted, because its server ended; it is not repeated"
    return f"    {at(run.due)} {ending}{said}"


def at(moment: datetime) -> str:
    """Format a time with its offset from UTC, to the second where it is not a whole minute."""
    return moment.isoformat(timespec="seconds" if moment.second else "minutes")


def _first_line(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    line = head_bytes(lines[0], _LINE_BYTES)
    return line + (" …" if len(lines) > 1 or line != lines[0] else "")
