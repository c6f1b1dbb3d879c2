"""Selects the sections of a long text that share words with a query. Uses no model."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_BREAK = re.compile(r"\n\s*\n")
_WORD = re.compile(r"\w+")
_LONGEST = 3_000
"""Maximum characters of a part; longer sections are split between paragraphs."""

_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a about all an and any are as at be by can do does find for from get give has have how i in is it "
        "its list me of on or page please say says show summarize summary tell that the their there these "
        "they this to was what when where which who why will with you your",
    )
)

_K1, _B = 1.2, 0.75


@dataclass(frozen=True, kw_only=True)
class Part:
    """A range of characters in a text."""

    start: int
    end: int


def relevant(text: str, question: str, most: int) -> tuple[Part, ...]:
    """Return the parts most relevant to `question`, up to `most` characters, in the order of the text."""
    wanted = set(_words(question)) - _COMMON
    parts = _parts(text)
    scores = _scores([_words(text[part.start : part.end]) for part in parts], wanted)
    ranked = sorted((i for i, score in enumerate(scores) if score > 0), key=lambda i: (-scores[i], i))
    chosen: list[Part] = []
    for i in ranked:
        most -= parts[i].end - parts[i].start
        if most < 0 and chosen:
            break
        chosen.append(parts[i])
    return tuple(sorted(chosen, key=lambda part: part.start))


def joined_parts(text: str, parts: Sequence[Part]) -> str:
    """Return the parts with a line before each that says where it is from."""
    shown = (f"[characters {part.start}-{part.end}]\n{text[part.start : part.end].strip()}" for part in parts)
    return "\n\n".join(shown)


def _words(text: str) -> list[str]:
    return [word.removesuffix("s") if len(word) > 3 else word for word in _WORD.findall(text.casefold())]


def _parts(text: str) -> list[Part]:
    """Split into sections, and long sections into pieces."""
    starts = [0, *(found.start() for found in _HEADING.finditer(text) if found.start())]
    ends = [*starts[1:], len(text)]
    return [piece for start, end in zip(starts, ends, strict=True) for piece in _pieces(text, start, end)]


def _pieces(text: str, start: int, end: int) -> list[Part]:
    found: list[Part] = []
    for gap in _BREAK.finditer(text, start, end):
        if gap.end() - start >= _LONGEST:
            found.append(Part(start=start, end=gap.end()))
            start = gap.end()
    while end - start > 2 * _LONGEST:
        found.append(Part(start=start, end=start + _LONGEST))
        start += _LONGEST
    return [*found, Part(start=start, end=end)] if end > start else found


def _scores(documents: Sequence[Sequence[str]], wanted: set[str]) -> list[float]:
    """Return the BM25 score of each document."""
    counts = [Counter(word for word in document if word in wanted) for document in documents]
    holding = Counter(word for count in counts for word in count)
    mean = sum(map(len, documents)) / max(len(documents), 1)
    return [
        sum(
            log(1 + (len(documents) - holding[word] + 0.5) / (holding[word] + 0.5))
            * times
            * (_K1 + 1)
            / (times + _K1 * (1 - _B + _B * len(document) / max(mean, 1)))
            for word, times in count.items()
        )
        for document, count in zip(documents, counts, strict=True)
    ]
