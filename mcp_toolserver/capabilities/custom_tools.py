"""The context in which the server calls a user's own code."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CustomToolContext:
    """The facts of a call that custom tools may read."""

    folder: str
    """The first root, absolute; empty where the client left none."""
    session: str
    """Whose call it is."""
