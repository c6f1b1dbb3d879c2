"""Notes of the search tools about results that they do not show."""

from collections.abc import Mapping, Sequence

_ERRORS = 5


def nothing(what: str, switches: Mapping[str, bool], adds: Mapping[str, str]) -> str:
    """Say that nothing was found, and what the `switches` that are off would add to the search."""
    notes = [f"Set `{name}` to search {adds[name]} too." for name, is_on in switches.items() if not is_on]
    return " ".join((f"No {what}.", *notes))


def unsearched(errors: Sequence[str]) -> list[str]:
    """Name the first files that could not be searched, and count the others, in one line."""
    if not errors:
        return []
    more = f"; and {len(errors) - _ERRORS} more" if len(errors) > _ERRORS else ""
    return [f"[not searched: {'; '.join(errors[:_ERRORS])}{more}]"]
