"""From where a user's own code is called."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CustomToolContext:
    """What such code is told of the call."""

    folder: str
    """The first root, absolute; empty where the client left none."""
    session: str
    """Whose call it is."""
