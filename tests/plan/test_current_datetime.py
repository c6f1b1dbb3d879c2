"""What current_datetime answers."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from tests.plan.planning import planner, refused_each
from tests.support.workbench import call

SECOND = timedelta(seconds=1)


async def test_it_is_the_time_there_and_not_another(tmp_path: Path) -> None:
    server = planner(tmp_path)
    for zone in ("Asia/Kathmandu", "Europe/Paris", "UTC", ""):
        before = datetime.now(UTC)
        text = (await call(server, "current_datetime", timezone=zone)).text
        after = datetime.now(UTC)
        there, names = re.findall(r"^(\S+) \((.*)\)$", text, re.MULTILINE)[0]
        said = datetime.fromisoformat(there)
        assert before - SECOND <= said <= after
        there_now = said.astimezone(ZoneInfo(zone)) if zone else said.astimezone()
        assert said.utcoffset() == there_now.utcoffset()
        assert names.split(", ")[0] == f"{said:%A}"
        assert zone in names
        utc, unix = re.findall(r"UTC (\S+), Unix (\d+)$", text)[0]
        assert datetime.fromisoformat(utc) == said
        assert int(unix) == int(said.timestamp())


async def test_an_unknown_zone_is_named_with_a_likely_one(tmp_path: Path) -> None:
    hints = (
        ("Europe/Pariss", "did you mean Europe/Paris"),
        ("xyzzy", "for example Europe/Paris"),
        ("America", "no time zone"),
        ("../../etc/passwd", "no time zone"),
        ("/etc/passwd", "no time zone"),
        ("zone.tab", "no time zone"),
        ("x" * 101, "timezone"),
    )
    wrong = [({"timezone": zone}, hint) for zone, hint in hints]
    await refused_each(planner(tmp_path), "current_datetime", wrong)


BARE = """
import sys, zoneinfo
import anyio
sys.modules["tzdata"] = None
zoneinfo.reset_tzpath(to=[])
from mcp_toolserver.runtime.clock import SystemClock
from mcp_toolserver.errors import Unavailable
try:
    anyio.run(SystemClock().now, "Europe/Paris")
except Unavailable as error:
    print(error)
"""


def test_a_machine_without_zones_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, encoding="utf-8", check=True)
    assert "tzdata" in done.stdout
