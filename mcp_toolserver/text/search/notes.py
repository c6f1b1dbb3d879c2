"""What the search tools say about what they did not show."""

from collections.abc import Mapping, Sequence

_ERRORS = 5


def nothing(what: str, switches: Mapping[str, bool], adds: Mapping[str, str]) -> str:
    """That there is none of `what`, and what those of the `switches` that are off would add to the search."""
    notes = [f"Set `{name}` to search {adds[name]} too." for name, is_on in switches.items() if not is_on]
    return " ".join((f"No {what}.", *notes))


def unsearched(errors: Sequence[str]) -> list[str]:
    """One line on what could not be searched, when there is something."""
    if not errors:
        return []
    more = f"; and {len(errors) - _ERRORS} more" if len(errors) > _ERRORS else ""
    return [f"[not searched: {'; '.join(errors[:_ERRORS])}{more}]"]
