"""Ranks short texts by relevance to a query: Okapi BM25, with compound names split into words."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SATURATION = 1.2
_LENGTH = 0.75
_BEGINNING = 0.5
"""Weight of a word that only shares a prefix."""

Weights = Mapping[str, float]
"""Word → how much it is worth in a text."""


def words(text: str) -> list[str]:
    """Return the words of `text` in lower case and singular; `NotebookEdit` and `git_log` are two each."""
    return [_singular(found[0].lower()) for found in _WORD.finditer(text)]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def weights(parts: Iterable[tuple[str, float]]) -> Weights:
    """Add up, for each word of a text, the worth of the parts that contain it."""
    found: dict[str, float] = {}
    for part, worth in parts:
        for word in words(part):
            found[word] = found.get(word, 0.0) + worth
    return found


def scores(query: Sequence[str], texts: Sequence[Weights]) -> list[float]:
    """Return the relevance of each text for `query`; 0 means none."""
    usual = sum(sum(text.values()) for text in texts) / (len(texts) or 1)
    totals = [0.0] * len(texts)
    for word in dict.fromkeys(query):
        counts = [_count(word, text) for text in texts]
        holding = sum(count > 0 for count in counts)
        rarity = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        for index, (count, text) in enumerate(zip(counts, texts, strict=True)):
            length = 1 - _LENGTH + _LENGTH * sum(text.values()) / (usual or 1)
            totals[index] += rarity * count * (_SATURATION + 1) / (count + _SATURATION * length)
    return totals


def _count(word: str, text: Weights) -> float:
    if word in text or len(word) < 3:
        return text.get(word, 0.0)
    return _BEGINNING * sum(worth for other, worth in text.items() if other.startswith(word))
