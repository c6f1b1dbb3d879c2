"""Glob patterns for paths, and wildcards for other text, both matched in time linear in the subject.

Rules match untrusted paths with these, so matching must not backtrack. docs/internals/architecture.md has
figures that show why wcmatch cannot be used here.

    *  ?  [a-z] [!a]    within one component; never "/"
    **                  any number of components, also none; `a/**` matches `a` too
    {a,b} {1..9}        braces, expanded first, to at most 1,000 alternatives
    \\                   takes the next character as it is
    name, name/         no "/" but at the end: the component at any depth, as in .gitignore
    path/               `path` and everything in it
    ./path, a/b, /a/b   from the start

Files whose names start with a dot are matched like others. Case counts.
"""

import re
from collections.abc import Callable, Sequence
from itertools import groupby

Matches = Callable[[str], bool]

MAX_LENGTH = 4_096
MAX_ALTERNATIVES = 1_000
MAX_EXPANDED = 50_000
"""Characters of all alternatives together."""

_GLOBSTAR = "**"
_TOKEN = re.compile(r"\\.|\[[!^]?+\]?+(?:\\.|[^\]\\])*+\]|\*+|.", re.DOTALL)
_CLASS_ITEM = re.compile(r"(\\.|.)-(\\.|.)|(\\.|.)", re.DOTALL)
_MAGIC = re.compile(r"[*?\[{}\\]")

# Every component of a pattern matches exactly one component of a path, and every token in a component but a
# star matches exactly one character. So between two stars the leftmost match is as good as any other: it
# leaves the most text for the rest. Atomic groups therefore keep the first match and never backtrack.
_SKIP = r"(?:[^/]++/)*?"
_SKIP_TO_LAST = r"(?>(?:[^/]++/)*)"
_END_OF_COMPONENT = r"(?=/|\Z)"


def matcher(pattern: str) -> Matches:
    """Compile a glob for `/`-separated paths in canonical spelling (no `.`, `..` or empty components).

    Raises:
        ValueError: the pattern is empty, too long, has too many alternatives, or holds `..` after expansion.
    """
    compiled = re.compile("|".join(f"(?>{_regex(alternative)})" for alternative in expand(pattern)))
    return lambda path: compiled.match(path) is not None


def expand(pattern: str) -> tuple[str, ...]:
    """Expand the braces of `pattern` into its alternatives. Raises: as `matcher`."""
    if len(pattern) > MAX_LENGTH:
        raise ValueError(f"a pattern may have at most {MAX_LENGTH:,} characters; send a shorter one")
    alternatives = tuple(filter(None, _braces(pattern) if "{" in pattern else (pattern,)))
    if not alternatives:
        raise ValueError("the pattern is empty; `**` matches everything")
    if sum(map(len, alternatives)) > MAX_EXPANDED:
        raise ValueError("the braces of the pattern stand for too much text; use fewer or a `*`")
    if any(".." in alternative.split("/") for alternative in alternatives):
        raise ValueError("a pattern cannot hold `..`; start from a folder instead")
    return alternatives


def escaped(path: str) -> str:
    """Return the pattern for `path` alone."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def listed(pattern: str) -> str:
    """Turn several globs with commas between them, as `*.js,*.ts`, into one with braces."""
    parts = [part.strip() for part in pattern.split(",")]
    if len(parts) < 2 or not all(parts) or set(pattern) & set("{}[]"):
        return pattern
    # A file may be called so, too.
    return f"{{{','.join(parts)},{pattern.replace(',', '[,]')}}}"


def _braces(pattern: str) -> Sequence[str]:
    # Lazy import: most patterns have no braces.
    import bracex

    try:
        return bracex.expand(pattern, keep_escapes=True, limit=MAX_ALTERNATIVES)
    except (bracex.ExpansionLimitException, RecursionError):
        raise ValueError(
            f"the braces of the pattern stand for more than {MAX_ALTERNATIVES:,} alternatives; use fewer"
        ) from None


def wildcard(pattern: str) -> Matches:
    """Compile a pattern in which `*` stands for any text, also "/" and line ends. Nothing else is special."""
    head, *pieces = pattern.split("*")
    if not pieces:
        return pattern.__eq__
    tail = pieces.pop()

    def matches(text: str) -> bool:
        end = len(text) - len(tail)
        if end < len(head) or not (text.startswith(head) and text.endswith(tail)):
            return False
        position = len(head)
        for piece in pieces:
            found = text.find(piece, position, end)
            if found < 0:
                return False
            position = found + len(piece)
        return True

    return matches


def literal_prefix(pattern: str) -> str:
    """Return the folder that `pattern` starts from: the components before the first one with a wildcard.

    The whole pattern when all of it is plain; "" when nothing is; "/" for an absolute pattern at the top.
    """
    magic = _MAGIC.search(pattern)
    if magic is None:
        return pattern
    head, slash, _ = pattern[: magic.start()].rpartition("/")
    return head or slash


def starts(pattern: str) -> tuple[str, ...]:
    """Return where a search for each alternative of `pattern` has to start: a path from the root, an absolute
    path, or "" for the root itself, as for a pattern that matches at any depth. Raises: as `matcher`.
    """
    return tuple(map(_start, expand(pattern)))


def _start(alternative: str) -> str:
    top = "/" if alternative.startswith("/") else ""
    if "/" not in alternative.rstrip("/"):
        return top
    return top + "/".join(part for part in literal_prefix(alternative).split("/") if part not in ("", "."))


def rooted(pattern: str) -> tuple[str, str]:
    """Return the folder that an absolute `pattern` starts from, and the pattern below it."""
    start = literal_prefix(pattern)
    if start == pattern:
        start = pattern.rpartition("/")[0]
    return start.rstrip("/") or "/", f"./{pattern[len(start) :].lstrip('/')}"


def _regex(alternative: str) -> str:
    parts = [part for part in alternative.split("/") if part not in ("", ".")]
    if alternative.endswith("/"):
        parts.append(_GLOBSTAR)
    absolute = alternative.startswith("/")
    if not parts:
        return r"/\Z" if absolute else r"\.\Z"
    if "/" not in alternative.rstrip("/") and not absolute:
        parts.insert(0, _GLOBSTAR)
    # `**/name` also means paths in another root, which are absolute.
    leading = "/" if absolute else "/?+" if parts[0] == _GLOBSTAR else ""
    return leading + _runs(parts)


def _runs(parts: Sequence[str]) -> str:
    runs = [list(run) for starry, run in groupby(parts, _GLOBSTAR.__eq__) if not starry]
    last = len(runs) - 1
    open_end = parts[-1] == _GLOBSTAR

    def one(index: int, run: Sequence[str]) -> str:
        end = "/" if index < last else _END_OF_COMPONENT if open_end else r"\Z"
        skip = _SKIP_TO_LAST if len(run) == 1 and end == r"\Z" else _SKIP
        floating = index > 0 or parts[0] == _GLOBSTAR
        return f"(?>{skip if floating else ''}{'/'.join(map(_component, run))}{end})"

    return "".join(one(index, run) for index, run in enumerate(runs))


def _component(component: str) -> str:
    tokens: list[str] = _TOKEN.findall(component)
    head, *pieces = _split_at_stars(tokens)
    if not pieces:
        return head
    if not (head or any(pieces)):
        return "[^/]++"
    tail = pieces.pop()
    middle = "".join(f"(?>[^/]*?{piece})" for piece in pieces)
    return f"{head}{middle}(?>[^/]*{tail}{_END_OF_COMPONENT})"


def _split_at_stars(tokens: Sequence[str]) -> list[str]:
    pieces = [""]
    for token in tokens:
        if token.startswith("*"):
            pieces.append("")
        else:
            pieces[-1] += _one_character(token)
    return pieces


def _one_character(written: str) -> str:
    if written == "?":
        return "[^/]"
    if len(written) > 1 and written.startswith("["):
        return _character_class(written[1:-1])
    return re.escape(written[-1])


def _character_class(body: str) -> str:
    negated = body[0] in "!^"
    items = "".join(_class_item(*match) for match in _CLASS_ITEM.findall(body[negated:]))
    if negated:
        return f"[^/{items}]"
    # The lookahead, because a range such as `.-0` spans "/".
    return f"(?!/)[{items}]" if items else "(?!)"


def _class_item(low: str, high: str, single: str) -> str:
    if single:
        return re.escape(single[-1])
    low, high = low[-1], high[-1]
    return f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
