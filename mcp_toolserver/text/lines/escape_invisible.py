r"""Text in which nothing hides: what moves a cursor, turns letters round or has no shape shows as `\u{1b}`.

Escaped are control characters but tab, line feed and the carriage return before one; direction marks; what
takes no room; tag characters; variation selectors; fillers; halves of surrogate pairs. Nothing is left out,
and the result is a fixed point: an escape is plain ASCII, and what stays next to it stays the second time.

Some invisible characters are spelling. They are kept where the script asks for them, one at a time: joiners
after a letter that can join, a variation selector after an emoji, a joiner between two, a word break between
letters of a script without spaces. Each place has one or two such choices at most, so no text fits in there.
"""

import re
import sys
from collections.abc import Sequence
from functools import cache

from pydantic import JsonValue

from mcp_toolserver.text.json_values import with_texts

_PLAIN = bytes({9, 10, 13, *range(32, 127)})

_HIDDEN: Sequence[tuple[int, int]] = [
    (int(first, 16), int(last, 16))
    for first, last in re.findall(
        r"(\w+)-(\w+)",
        "0-8 b-c e-1f 7f-9f ad-ad 34f-34f 61c-61c 115f-1160 17b4-17b5 180b-180f 200b-200f 2028-202e "
        "2060-206f 3164-3164 d800-dfff fdd0-fdef fe00-fe0f feff-feff ffa0-ffa0 fff0-fffb fffe-ffff "
        "1bca0-1bca3 1d173-1d17a e0000-e0fff",
    )
]

_JOINS = (
    r"\u0620-\u065f\u066e-\u06d3\u06d5\u06fa-\u06ff\u0710-\u074a\u0750-\u077f\u07ca-\u07ea\u0840-\u0858"
    r"\u0860-\u086a\u08a0-\u08c9\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17d3\u1820-\u18aa\u1b00-\u1b7f"
    r"\ua840-\ua873\ua8e0-\ua9df\uaa60-\uaa7f\uabc0-\uabff\ufb50-\ufdcf\ufe70-\ufefc\U00011000-\U00011fff"
)
"""Letters and marks of scripts whose letters join: Arabic and its kin, Brahmi's descendants, Mongolian."""

_EMOJI = (
    r"\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    r"\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
"""The blocks that hold them; everything there has a shape."""

_UNSPACED = r"\u0e01-\u0e5b\u0e81-\u0edf\u1000-\u109f\u1780-\u17b3\u17b6-\u17dd"
"""Thai, Lao, Burmese and Khmer."""

_AFTER_A_LETTER = rf"(?<=[{_JOINS}].)"
_AFTER_A_MONGOLIAN_LETTER = r"(?<=[\u1820-\u18aa].)"
_AFTER_AN_EMOJI = rf"(?<=[{_EMOJI}].)|(?<=[0-9#*].)\u20e3"

_SPELLING = {
    "\u200b": rf"(?<=[{_UNSPACED}].)[{_UNSPACED}]",
    "\u200c": _AFTER_A_LETTER,
    "\u200d": rf"{_AFTER_A_LETTER}|(?:(?<=[{_EMOJI}].)|(?<=[{_EMOJI}]\ufe0f.))[{_EMOJI}]",
    "\ufe0e": _AFTER_AN_EMOJI,
    "\ufe0f": _AFTER_AN_EMOJI,
    **dict.fromkeys("\u180b\u180c\u180d\u180e\u180f", _AFTER_A_MONGOLIAN_LETTER),
}
"""Invisible characters with what must be true where one ends if it is to be kept."""

_FEW = 32
"""Up to this many different characters are replaced one after the other with `str.replace`."""

_SAMPLE = 4_096
_MOSTLY_ASCII = 1.5
"""Bytes for each character of the sample up to which it pays to set ASCII aside before the search."""


def visible(text: str) -> str:
    """Return `text` with escapes for what cannot be seen."""
    # Most of the many texts in structured answers are short and plain, and then this is all.
    if text.isascii() and text.isprintable():
        return text
    found = _found(text)
    if len(found) > _FEW:
        text = _pattern(_ALWAYS).sub(lambda match: "".join(map(escape, match[0])), text)
        found &= _SPELLING.keys()
    for character in found:
        text = _replaced(text, character)
    if "\r" not in text or text.count("\r") == text.count("\r\n"):
        return text
    return text.replace("\r\n", "\0").replace("\r", escape("\r")).replace("\0", "\r\n")


def visible_values(data: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return `data` with every text in it made visible."""
    return {visible(name): with_texts(value, visible) for name, value in data.items()}


def escape(character: str) -> str:
    """Return the escape of an invisible character."""
    return f"\\u{{{ord(character):x}}}"


def unescape(text: str) -> str:
    """Replace the escapes that `visible` makes by their characters."""
    return _pattern(_ESCAPE).sub(lambda match: _meant(match) or match[0], text)


def escapes(text: str) -> dict[str, str]:
    """Return the different escapes in `text`, each with its character."""
    return {match[0]: character for match in _pattern(_ESCAPE).finditer(text) if (character := _meant(match))}


def _meant(match: re.Match[str]) -> str:
    """Return the character of an escape; empty when it is not one that `visible` makes."""
    number = int(match[1], 16)
    character = chr(number) if number <= sys.maxunicode else ""
    return character if is_hidden(character) else ""


def is_hidden(character: str) -> bool:
    """Whether a character is one that is shown as an escape, at least in some places."""
    return character == "\r" or _hidden().fullmatch(character) is not None


_ESCAPE = r"\\u\{([0-9a-f]{1,6})\}"


def _class(ranges: Sequence[tuple[int, int]]) -> str:
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


_ALWAYS = f"(?:(?![{''.join(_SPELLING)}])[{_class(_HIDDEN)}])+"


@cache
def _pattern(source: str) -> re.Pattern[str]:
    """Compile a pattern on first use, because ASCII text needs none."""
    return re.compile(source, re.DOTALL)


@cache
def _hidden() -> re.Pattern[str]:
    """Compile a pattern of the hidden characters, as those in no gap: twice as fast as their ranges."""
    starts = (0, *(last + 1 for _, last in _HIDDEN))
    ends = (*(first - 1 for first, _ in _HIDDEN), sys.maxunicode)
    gaps = [(start, end) for start, end in zip(starts, ends, strict=True) if start <= end]
    return re.compile(f"[^{_class(gaps)}]")


@cache
def _harmless() -> bytes:
    """Return the bytes of UTF-8 that begin no hidden character."""
    ends = {last for _, last in _HIDDEN}
    starts = {number for first, last in _HIDDEN for number in range(first, last, 64)} | ends
    begin = {chr(number).encode(errors="surrogatepass")[0] for number in starts}
    return bytes({*_PLAIN, *range(0x80, 0x100)} - begin)


def _is_harmless(text: str) -> bool:
    return not text.encode(errors="surrogatepass").translate(None, _harmless())


def _found(text: str) -> set[str]:
    """Return the different characters in `text` that may have to be escaped, but for carriage returns."""
    if text.isascii():
        return set(text.encode().translate(None, _PLAIN).decode())
    sample = text[:_SAMPLE]
    if len(sample.encode(errors="surrogatepass")) < len(sample) * _MOSTLY_ASCII:
        rest = text.encode(errors="surrogatepass").translate(None, _PLAIN)
        text = rest.decode(errors="surrogatepass")
    elif _is_harmless(sample) and _is_harmless(text):
        return set()
    return set(_hidden().findall(text))


def _replaced(text: str, character: str) -> str:
    kept_where = _SPELLING.get(character)
    if kept_where is None:
        return text.replace(character, escape(character))
    return _pattern(f"{character}(?!{kept_where})").sub(rf"\{escape(character)}", text)
