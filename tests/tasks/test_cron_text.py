"""Cron expressions: which are accepted, and which moments they mean in a time zone."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_toolserver.text.cron import MAX_CHARACTERS, MAX_COUNTED, next_moment, parse_cron, past_moments
from tests.tasks.schedules import seconds

BERLIN = ZoneInfo("Europe/Berlin")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
"""Its daylight saving is half an hour."""


def moments(fields: str, after: str, count: int, zone: ZoneInfo = BERLIN) -> list[str]:
    found: list[str] = []
    moment = seconds(after)
    for _ in range(count):
        following = next_moment(fields, zone, moment)
        assert following is not None
        found.append(datetime.fromtimestamp(following, zone).isoformat(timespec="minutes"))
        moment = following
    return found


FIELDS = {
    "30 2 * * *": "30 2 * * *",
    "  0  9-17/2 * jan-mar mon,FRI ": "0 9-17/2 * JAN-MAR MON,FRI",
    "@daily": "0 0 * * *",
    " @Hourly ": "0 * * * *",
    "@weekly": "0 0 * * SUN",
    "@yearly": "0 0 1 1 *",
    "0 0 29 2 *": "0 0 29 2 *",
    "0 0 L * *": "0 0 L * *",
    "0 0 * * 7": "0 0 * * 7",
}
REFUSED = {
    "": "five fields",
    "* * * *": "not 4",
    "0 * * * * *": "not 6",
    "60 * * * *": "bad minute",
    "0 0 * * XYZ": "bad day-of-week",
    "@reboot": "choose from @hourly",
    "0 0 30 2 *": "bad day-of-month",
    "0 0 */30 2 MON#5": "never occurs",
    "0 0 ² * *": "numbers, names",
    "0\x00 0 * * *": "numbers, names",
    "1," * MAX_CHARACTERS + "1 * * * *": "at most",
}
"""By expression, the reason."""


def test_expressions_become_five_fields_or_are_refused_with_a_reason() -> None:
    assert {text: parse_cron(text) for text in FIELDS} == FIELDS
    for text, says in REFUSED.items():
        with pytest.raises(ValueError, match=says):
            parse_cron(text)


@given(st.text(alphabet="0123456789*/,-#LWMONJAN@ ", max_size=40) | st.text(max_size=40))
@example("0 0 1#1 * *")
@example("* * * * 1#1/2")
def test_any_text_is_an_expression_that_occurs_or_is_refused(text: str) -> None:
    try:
        fields = parse_cron(text)
    except ValueError:
        return
    assert parse_cron(fields) == fields
    assert next_moment(fields, UTC, 0) is not None


def test_a_job_of_the_hour_that_is_skipped_or_repeated_runs_once() -> None:
    """The scheduler's tests have the days of Berlin; here are half an hour and a start in the second hour."""
    assert moments("15 2 * * *", "2026-10-03T12:00+10:30", 2, LORD_HOWE) == [
        "2026-10-04T02:30+11:00",
        "2026-10-05T02:15+11:00",
    ]
    # The clock shows 02:10 for the second time.
    assert moments("30 2 * * *", "2026-10-25T02:10+01:00", 1) == ["2026-10-26T02:30+01:00"]


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
EXPRESSIONS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "5,35 1-3 * * *", "*/30 2 * * *", "0 0 1 * MON"]
)
CHANGES = st.sampled_from(
    ["2026-03-29T00:00Z", "2026-10-25T00:00Z", "2026-03-08T06:00Z", "2026-10-03T15:00Z"]
)


@given(ZONES, EXPRESSIONS, CHANGES, st.integers(-7_200, 7_200), st.integers(0, 14_400))
def test_the_moments_do_not_depend_on_where_the_search_begins(
    zone: str, fields: str, change: str, before: int, later: int
) -> None:
    where = ZoneInfo(zone)
    start = seconds(change.replace("Z", "+00:00")) + before
    middle = start + later
    found: list[int] = []
    moment: float = start
    while moment <= middle:
        following = next_moment(fields, where, moment)
        assert following is not None
        assert following > moment
        assert following % 60 == 0
        found.append(moment := following)
    assert found[-1] == next_moment(fields, where, middle)


def test_past_moments_are_counted_up_to_a_limit_and_the_latest_is_exact() -> None:
    since = int(seconds("2026-01-01T00:00+01:00"))
    past = past_moments("* * * JAN *", BERLIN, since, seconds("2026-12-01T00:00+01:00"))
    assert past == (MAX_COUNTED, seconds("2026-01-31T23:59+01:00"))
    since = int(seconds("2026-03-28T02:30+01:00"))
    past = past_moments("30 2 * * *", BERLIN, since, seconds("2026-03-31T02:29+02:00"))
    assert past == (3, seconds("2026-03-30T02:30+02:00"))
    since = int(seconds("2026-03-28T02:31+01:00"))
    past = past_moments("30 2 * * *", BERLIN, since, since + 60)
    assert past == (1, since)
