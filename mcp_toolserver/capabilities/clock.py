"""The clock."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The clock of this machine."""

    async def now(self, zone: str = "") -> datetime:
        """Return the time in an IANA zone; without one, in the machine's zone.

        Raises:
            InvalidInput: no such zone.
            Unavailable: this machine has no list of zones.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
