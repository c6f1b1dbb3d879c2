"""What the search tools say about what they did not show."""

from collections.abc import Sequence

_ERRORS = 5


def nothing(what: str, *, hidden: bool, ignored: bool) -> str:
    """That there is none of `what`, and which switches let a search see more."""
    switches = (
        ("hidden", "hidden files", hidden),
        ("include_ignored", "files that .gitignore excludes", ignored),
    )
    notes = [f"Set `{switch}` to search {files} too." for switch, files, searched in switches if not searched]
    return " ".join((f"No {what}.", *notes))


def unsearched(errors: Sequence[str]) -> list[str]:
    """One line on what could not be searched, when there is something."""
    if not errors:
        return []
    more = f"; and {len(errors) - _ERRORS} more" if len(errors) > _ERRORS else ""
    return [f"[not searched: {'; '.join(errors[:_ERRORS])}{more}]"]
