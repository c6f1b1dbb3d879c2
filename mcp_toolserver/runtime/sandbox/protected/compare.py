"""Finds the protected paths that changed while a command ran.

It restores nothing, because the user may have made the change.
"""

from collections.abc import Sequence

from mcp_toolserver.runtime.sandbox.protected.snapshot import ProtectedPath, Snapshot, fingerprint_of

MOST_NOTES = 20

LONGEST_SHOWN = 160
"""Characters of a path in a note, so that a report has a bound."""


def changes(before: Snapshot) -> tuple[str, ...]:
    """Describe the changes in sentences. Call it once all processes of the command are gone."""
    reason = (
        "commands cannot write there, so somebody else did, or replaced it and let the command write"
        if before.mounted
        else "the command did it or somebody else"
    )
    notes: list[str] = []
    for place, protected in before.protected.items():
        now = fingerprint_of(before, place, is_folder=protected.is_folder)
        if now != protected.print:
            notes.append(
                f"{_shown(before, place)} {'is gone' if now is None else 'changed'} while the command ran: "
                f"{reason}. The user should look at it before using it."
            )
    return bounded(notes)


def bounded(notes: Sequence[str]) -> tuple[str, ...]:
    """The first of `notes`, and how many more there are."""
    more = len(notes) - MOST_NOTES
    return (*notes[:MOST_NOTES], *((f"There are {more} more such paths.",) if more > 0 else ()))


def shortened(path: str) -> str:
    """`path`, without its middle if it is too long for a note."""
    half = LONGEST_SHOWN // 2
    return path if len(path) <= LONGEST_SHOWN else f"{path[:half]}…{path[-half:]}"


def _shown(before: Snapshot, place: ProtectedPath) -> str:
    return shortened(place.path if len(before.roots) == 1 else place.absolute)
