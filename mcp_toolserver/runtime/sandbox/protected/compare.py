"""After a command: which protected places are not what they were before it.

Nothing can be put back here: who changed a protected place meanwhile may have been the user.
"""

from collections.abc import Sequence

from mcp_toolserver.runtime.sandbox.protected.snapshot import ProtectedPath, Snapshot, fingerprint_of

MOST_NOTES = 20

LONGEST_SHOWN = 160
"""Characters of a path in a note, so that a report has a bound."""


def changes(before: Snapshot) -> tuple[str, ...]:
    """What changed, in sentences. To be called when everything that the command started is gone."""
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
    """`path` with its middle left out where it is too long for a note."""
    half = LONGEST_SHOWN // 2
    return path if len(path) <= LONGEST_SHOWN else f"{path[:half]}…{path[-half:]}"


def _shown(before: Snapshot, place: ProtectedPath) -> str:
    return shortened(place.path if len(before.roots) == 1 else place.absolute)
