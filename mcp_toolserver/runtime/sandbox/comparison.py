"""After a command: what protected paths came to be, which are set aside, and which are not what they were.

Nothing can be put back here: who changed a protected path meanwhile may have been the user.
"""

import os
from collections.abc import Iterator

from mcp_toolserver.runtime.sandbox.git_folder import is_harmless
from mcp_toolserver.runtime.sandbox.guard import Before, Place, places_in, print_of, survey_roots
from mcp_toolserver.runtime.sandbox.quarantine import new_name, set_aside

CLOCK_NS = 20_000_000
"""By how much the clock of a file system may lag behind the machine's."""

MOST_NOTES = 20


def after(before: Before, quarantine: str) -> tuple[str, ...]:
    """Set aside in the folder `quarantine` what was created, and say that and what changed, in sentences.

    To be called when everything that the command started is gone. The folder is made when it is needed.
    """
    surveys = survey_roots(before.walls, before.roots, before.surveys)
    places = places_in(before.walls, before.roots, surveys, known=before.known, thorough=not before.mounted)
    created = [place for place in places if place.key not in before.known and _is_unwanted(before, place)]
    notes = [*_changes(before), *_set_aside(before, created, quarantine)]
    more = len(notes) - MOST_NOTES
    return (*notes[:MOST_NOTES], *((f"There are {more} more such paths.",) if more > 0 else ()))


def _changes(before: Before) -> Iterator[str]:
    reason = (
        "commands cannot write there, so somebody else did, or replaced it and let the command write"
        if before.mounted
        else "the command did it or somebody else"
    )
    for place, guarded in before.guarded.items():
        now = print_of(before, place, is_folder=guarded.is_folder)
        if now != guarded.print:
            yield (
                f"{_shown(before, place)} {'is gone' if now is None else 'changed'} while the command ran: "
                f"{reason}. The user should look at it before using it."
            )


def _is_unwanted(before: Before, place: Place) -> bool:
    """Whether a place that was not known before is the command's, and not for commands to make."""
    if before.walls.git_writable:
        if place.role == "repository":
            return False
        if place.role == "steering" and is_harmless(before.roots[place.root], place.path):
            return False
    return _was_missing(before, place) or _appeared_since(before, place)


def _was_missing(before: Before, place: Place) -> bool:
    """Whether the place was looked at before, and nothing was there."""
    if place.role == "steering":
        return any(
            known.role == "repository"
            and known.root == place.root
            and place.path.startswith(f"{known.path}/")
            for known in before.guarded
        )
    listing = before.surveys[place.root].get(os.path.dirname(place.path))
    return listing is not None and listing.inode != 0


def _appeared_since(before: Before, place: Place) -> bool:
    """Whether it was made or renamed since: what merely came nearer with its folder is not the command's."""
    try:
        status = os.stat(place.path, dir_fd=before.roots[place.root], follow_symlinks=False)
    except OSError:
        return False
    return status.st_ctime_ns >= before.started - CLOCK_NS


def _set_aside(before: Before, created: list[Place], quarantine: str) -> Iterator[str]:
    moved: set[tuple[str, str]] = set()
    folders = {root: os.path.join(quarantine, new_name()) for root in before.roots}
    for place in sorted(created, key=lambda place: place.key):
        if any(place.root == root and place.path.startswith(f"{path}/") for root, path in moved):
            continue
        moved.add(place.key)
        shown = f"The command created {_shown(before, place)}, which programs act upon unasked."
        try:
            where = set_aside(before.roots[place.root], place.path, folders[place.root])
        except OSError:
            yield f"{shown} It could not be moved away: the user should remove it before opening the folder."
        else:
            yield f"{shown} It was moved to {where}; what needs it must be set up by the user."


def _shown(before: Before, place: Place) -> str:
    return place.path if len(before.roots) == 1 else os.path.join(place.root, place.path)
