"""Notes of the git tools about what they omitted; each is one line, or empty."""

from collections.abc import Iterable, Iterator

from mcp_toolserver.capabilities.git import GitText


def hidden(count: int, what: str) -> Iterator[str]:
    """Yield a note that a rule hides something, if it does."""
    if count:
        yield f"[{counted(count, what)} left out, hidden by a rule of the operator]"


def counted(count: int, what: str) -> str:
    """Count in words: `1 file`, `2 files`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def about(found: GitText, *, asked: str) -> Iterator[str]:
    """Yield notes on what git printed, given the form that was `asked` for."""
    yield from hidden(found.left_out, "file")
    if found.folder != "." and found.form in ("patch", "stat"):
        yield f"[names are relative to {found.folder}]"
    if found.form == "stat" and asked == "patch":
        yield "[too long to show whole, so this only counts; name a `path` to see the changes there]"
    elif not found.complete:
        yield "[cut: too long to show whole; name a `path`]"


def joined(text: str, notes: Iterable[str]) -> str:
    """Return the output of git, followed by the notes, one per line."""
    return "\n".join((*([text.removesuffix("\n")] if text else []), *notes))
