"""The system clock and its time zones."""

import os
import time
from datetime import datetime, timedelta, tzinfo
from difflib import get_close_matches

import anyio
from anyio import to_thread

from mcp_toolserver.errors import InvalidInput, Unavailable


class SystemClock:
    async def now(self, zone: str = "") -> datetime:
        """Return the time in an IANA zone; without one, in the machine's zone. Raises: as `find_zone`."""
        if not zone:
            return datetime.now().astimezone()
        return datetime.now(await to_thread.run_sync(find_zone, zone))

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


def find_zone(name: str) -> tzinfo:
    """Return the time zone with this IANA name.

    Raises:
        InvalidInput: no such zone.
        Unavailable: this machine has no list of zones.
    """
    # Most servers never need this import.
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # The name may also be a folder of zones, or a file that is not a zone.
        known = zoneinfo.available_timezones()
    if not known:
        raise Unavailable(
            "This machine has no time zone data. Omit the zone to get the server's local time; the operator "
            "can install the package tzdata."
        )
    close = get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else "for example Europe/Paris or UTC."
    raise InvalidInput(f"There is no time zone {name!r}: {hint}")


def machine_zone(link: str = "/etc/localtime") -> str:
    """Return the IANA name of the machine's time zone.

    Raises:
        InvalidInput: it is not known, because the link does not name it or the variable TZ overrides it.
    """
    try:
        name = os.readlink(link).partition("zoneinfo/")[2]
    except FileNotFoundError:
        name = "UTC"
    except OSError:
        name = ""
    if not name or not _is_local(name):
        raise InvalidInput("The name of the server's time zone is not known. Give one, such as Europe/Paris.")
    return name


def _is_local(name: str) -> bool:
    """Whether the clock of this process has the offsets of a zone in every month of this year."""
    zone = find_zone(name)
    year = time.localtime().tm_year
    moments = (datetime(year, month, 1, tzinfo=zone) for month in range(1, 13))
    return all(
        time.localtime(moment.timestamp()).tm_gmtoff == (moment.utcoffset() or timedelta()).total_seconds()
        for moment in moments
    )
