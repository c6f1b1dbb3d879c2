"""How a volume compares the names of files, paths that are compared in that way, and which it can have.

Linux volumes usually compare names byte by byte. Volumes of macOS also take the composed and the decomposed
form of a letter for the same, and most of them upper and lower case too. (Apple, "Apple File System Guide",
Frequently Asked Questions: "How does Apple File System handle filenames?")
"""

import posixpath
import re
import unicodedata
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache

from mcp_toolserver.text.search.glob import matcher

Matches = Callable[[str], bool]


class NameComparison(Enum):
    """Which names a volume takes for the same."""

    EXACT = "exact"
    """Only equal ones."""
    NORMALIZED = "normalized"
    """Those that differ in the form of their letters only, as `é` in one character or in two."""
    CASELESS = "caseless"
    """Those that differ in case only, too."""


EXACT = NameComparison.EXACT
"""A name of its own, because every call compares with it, and the look-up in an enumeration is slow."""


def widest(*comparisons: NameComparison) -> NameComparison:
    """The one of `comparisons` that takes the most names for the same."""
    return max(comparisons, key=tuple(NameComparison).index)


class VolumePath(str):
    """A path on a volume that does not compare names exactly."""

    __slots__ = ("comparison",)

    comparison: NameComparison


def volume_path(path: str, comparison: NameComparison) -> str:
    """`path` with how its volume compares names."""
    if comparison is NameComparison.EXACT:
        return path
    on_volume = VolumePath(path)
    on_volume.comparison = comparison
    return on_volume


# Unicode 16, DerivedCoreProperties.txt, Default_Ignorable_Code_Point, and the other format characters: ext4
# and f2fs with `casefold` ignore the first (Linux, fs/unicode/mkutf8data.c), HFS+ some of both (Apple,
# Technical Note TN1150, "Case-Insensitive String Comparison Algorithm").
_IGNORED = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def folded(name: str, comparison: NameComparison = NameComparison.CASELESS) -> str:
    """One form for all names that a volume with this comparison may take for the same, and perhaps for more.

    File systems differ in details, so this is for refusing. No file is ever opened by a folded name.
    """
    if comparison is NameComparison.EXACT:
        return name
    if name.isascii():
        return name if comparison is NameComparison.NORMALIZED else name.lower()
    visible = unicodedata.normalize("NFD", _IGNORED.sub("", name))
    if comparison is NameComparison.CASELESS:
        # Some volumes compare in upper case, which makes a dotless i an i; a dotted capital I decomposes.
        visible = unicodedata.normalize("NFD", visible.upper().casefold()).replace("i\u0307", "i")
    return unicodedata.normalize("NFC", visible)


def equivalent(name: str, comparison: NameComparison) -> str:
    """One form for names that every volume with this comparison takes for the same, and for no others."""
    if comparison is NameComparison.EXACT or name.isascii():
        return name.lower() if comparison is NameComparison.CASELESS else name
    form = unicodedata.normalize("NFD", name)
    if comparison is NameComparison.CASELESS:
        # Not all volumes take one character and two, as ß and ss, for the same.
        form = "".join(lower if len(lower := one.casefold()) == 1 else one for one in form)
    return unicodedata.normalize("NFC", form)


def path_tests(pattern: str) -> tuple[Matches, Matches]:
    """Compile a glob on paths (see `text/search/glob.py`) for a rule that denies, and for one that allows.

    Both compare a `VolumePath` as its volume does. In doubt the first matches and the second does not.
    Raises: as `matcher`.
    """
    exact = matcher(pattern)

    def test(form: Callable[[str, NameComparison], str]) -> Matches:
        @cache
        def folding(comparison: NameComparison) -> Matches:
            return matcher(form(pattern, comparison))

        def matches(path: str) -> bool:
            if exact(path):
                return True
            return isinstance(path, VolumePath) and folding(path.comparison)(form(path, path.comparison))

        return matches

    return test(folded), test(equivalent)


MAX_COMPONENT = 255
"""Bytes; the limit of every common Linux file system."""


def path_spellings(text: str, folder: str, roots: Sequence[str]) -> tuple[str, ...]:
    """What rules may call `text` if it is a path or file URL, relative to `folder` or not: as it is, absolute
    and relative to the roots that it lies in."""
    path = posixpath.normpath(posixpath.join(folder, text.removeprefix("file://")))
    return (text, path, *(posixpath.relpath(path, root) for root in roots if path.startswith(f"{root}/")))


def lies_in(folder: str, path: str) -> bool:
    """Whether the absolute `path` is `folder`, or lies in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def check_spelling(path: str) -> str:
    """Check that a file can have this name; return `path` unchanged.

    A path is taken as written: no URL decoding, no `~`, no Unicode folding.

    Raises:
        ValueError: control characters, lone surrogates, or a component over 255 bytes.
    """
    if not path.isprintable():
        _refuse_unprintable(path)
    if len(path) * 4 > MAX_COMPONENT and any(len(part.encode()) > MAX_COMPONENT for part in path.split("/")):
        raise ValueError(f"no part of a path may be over {MAX_COMPONENT} bytes; shorten the name")
    return path


def _refuse_unprintable(path: str) -> None:
    """Refuse unprintable characters, except those that names may contain, such as rare spaces."""
    if any(ord(c) < 32 or ord(c) == 127 for c in path):
        raise ValueError("a path cannot hold control characters; send the plain path")
    if any(0xD800 <= ord(c) <= 0xDFFF for c in path):
        raise ValueError("a path cannot hold half of a surrogate pair; send valid Unicode")
