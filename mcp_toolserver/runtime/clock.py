"""The system clock and its time zones."""

from datetime import datetime
from difflib import get_close_matches

import anyio
from anyio import to_thread

from mcp_toolserver.errors import InvalidInput, Unavailable


class SystemClock:
    """Implements `Clock`."""

    async def now(self, zone: str = "") -> datetime:
        """See `Clock.now`."""
        return await to_thread.run_sync(_now, zone) if zone else datetime.now().astimezone()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await anyio.sleep(seconds)


def _now(zone: str) -> datetime:
    # Most servers never need this import.
    import zoneinfo

    try:
        return datetime.now(zoneinfo.ZoneInfo(zone))
    except (KeyError, ValueError, OSError):
        # The name may also be a folder of zones, or a file that is not a zone.
        known = zoneinfo.available_timezones()
    if not known:
        raise Unavailable(
            "This machine has no time zone data. Omit the zone to get the server's local time; the operator "
            "can install the package tzdata."
        )
    close = get_close_matches(zone, known, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else "for example Europe/Paris or UTC."
    raise InvalidInput(f"There is no time zone {zone!r}: {hint}")
