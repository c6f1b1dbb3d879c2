"""Notes of the git tools about what they omitted; each is one line, or empty."""

from collections.abc import Iterable, Iterator, Sequence

from mcp_toolserver.capabilities.git import GitText

MAX_FILES = 200
"""Files that an answer lists."""

MAX_BRANCHES = 30
"""Branches that an answer lists."""


def hidden(count: int, what: str) -> Iterator[str]:
    """Yield a note that a rule hides something, if it does."""
    if count:
        yield f"[{counted(count, what)} left out, hidden by a rule of the operator]"


def counted(count: int, what: str, many: str = "") -> str:
    """Count in words: `1 file`, `2 files`; `many` is the plural if it does not end in a mere s."""
    return f"{count:,} {what if count == 1 else many or f'{what}s'}"


def file_lines(files: Sequence[tuple[str, str]]) -> tuple[list[str], str]:
    """List files, each with a letter of what became of it; the second value is all of a list that is cut."""
    lines = [f"{letter} {path}" for letter, path in files]
    if len(lines) <= MAX_FILES:
        return lines, ""
    return [*lines[:MAX_FILES], f"[the first {MAX_FILES:,} of {len(lines):,} files]"], "\n".join(lines)


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
