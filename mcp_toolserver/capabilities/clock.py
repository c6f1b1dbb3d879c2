"""Time."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time, as this machine has it."""

    async def now(self, zone: str = "") -> datetime:
        """The time in an IANA zone; without one, in that of the machine.

        Raises:
            InvalidInput: no such zone.
            Unavailable: this machine has no list of zones.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
