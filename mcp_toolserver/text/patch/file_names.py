"""File names in the headers of diffs, as diff and git write them."""

import re

NOWHERE = "/dev/null"

_PREFIXES = frozenset({("a", "b"), ("c", "i"), ("c", "w"), ("i", "w"), ("o", "w"), ("b", "a")})
"""Git's prefixes of old and new names."""

_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)")
_MEANINGS = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


def name(text: str) -> str:
    """Parse a name: without the time stamp that may follow, and without the quotes around unusual ones.

    Raises:
        ValueError: its bytes are no UTF-8.
    """
    text = text.strip(" ")
    if text.startswith('"') and (end := _end_of_quotes(text)) > 0:
        return _unquoted(text[1:end])
    return text.split("\t", 1)[0].rstrip()


def git_names(text: str) -> tuple[str, str] | None:
    """Parse the two names after `diff --git`; None if the end of the first is ambiguous."""
    if text.startswith('"'):
        end = _end_of_quotes(text)
        return (name(text[: end + 1]), name(text[end + 1 :])) if end > 0 else None
    if text.endswith('"'):
        start = text.find(' "')
        return (text[:start], name(text[start:])) if start > 0 else None
    gaps = [match.start() for match in re.finditer(" ", text)]
    pairs = [(text[:gap], text[gap + 1 :]) for gap in gaps]
    alike = [pair for pair in pairs if _is_one_file(*pair)]
    return alike[0] if alike else pairs[0] if len(pairs) == 1 else None


def has_prefixes(old: str, new: str) -> bool:
    """Whether both names have in front what git puts there; a file that is nowhere has it anyway."""
    one, _, one_rest = old.partition("/")
    two, _, two_rest = new.partition("/")
    if old == NOWHERE:
        return bool(two_rest) and two in {after for _, after in _PREFIXES}
    if new == NOWHERE:
        return bool(one_rest) and one in {before for before, _ in _PREFIXES}
    return (one, two) in _PREFIXES and bool(one_rest and two_rest)


def _is_one_file(old: str, new: str) -> bool:
    return old == new or (has_prefixes(old, new) and _cut(old) == _cut(new))


def without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Remove the prefixes of git, such as `a/` and `b/`, from both names, if they are there."""
    if not has_prefixes(old, new):
        return old, new
    return _cut(old), _cut(new)


def _cut(path: str) -> str:
    return path if path == NOWHERE else path.partition("/")[2]


def _end_of_quotes(text: str) -> int:
    """Return the index of the closing quote of `text`; -1 if there is none."""
    place = 1
    while place < len(text) and text[place] != '"':
        place += 2 if text[place] == "\\" else 1
    return place if place < len(text) else -1


def _unquoted(text: str) -> str:
    raw, last = bytearray(), 0
    for escape in _ESCAPE.finditer(text):
        raw += text[last : escape.start()].encode()
        said = escape[1]
        if said[0] in "01234567":
            raw.append(int(said, 8) & 0xFF)
        else:
            raw += bytes([_MEANINGS[said]]) if said in _MEANINGS else said.encode()
        last = escape.end()
    raw += text[last:].encode()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(
            f"the file name {text!r} in the patch is not valid UTF-8; leave that file out"
        ) from None
