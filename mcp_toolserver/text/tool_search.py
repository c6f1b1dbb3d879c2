"""Parses tool search queries and selects the matching tools; ranks texts by Okapi BM25."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from mcp_toolserver.capabilities.call_scope import ToolCard

PROXY = "CallTool"
"""The tool that calls tools which are not in the client's list."""

_SELECT = re.compile(r"\s*select\s*:", re.IGNORECASE)
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can do does for from how i in into is it its me my of on or that the this "
        "to use what when where which with you",
    )
)
"""Words that are in the description of nearly every tool."""

Weights = Mapping[str, float]
"""Word → how much it is worth in a text."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_SATURATION = 1.2

_LENGTH = 0.75

_BEGINNING = 0.5
"""Weight of a word that only shares a prefix."""

_SEPARATOR = re.compile(r"[\s,]+")


@dataclass(frozen=True, kw_only=True)
class Found:
    """The tools that answer, best first."""

    cards: tuple[ToolCard, ...] = ()
    total: int = 0
    """Number of matches, including omitted ones."""
    unknown: tuple[str, ...] = ()
    """Requested names of tools that do not exist."""


def find(query: str, cards: Sequence[ToolCard], most: int, selected: int) -> Found:
    """Answer a query: `select:A,B` names tools, up to `selected`; else words, of which `+this` is required.

    Words look for tools that are not core, since those are known; what is exactly a name comes first.
    """
    if prefix := _SELECT.match(query):
        return _named(_parts(query[prefix.end() :]), cards, selected)
    terms = _parts(query)
    required = [term[1:] for term in terms if term.startswith("+") and len(term) > 1]
    wanted = " ".join(term.removeprefix("+") for term in terms if term.lower() not in _STOP_WORDS)
    texts = [_weights(card) for card in cards]
    ranked = [
        # An exact name comes first.
        (_plain(wanted) not in map(_plain, (card.name, *card.aliases)), -score, card.name, card)
        for card, score in zip(cards, scores(words(wanted), texts), strict=True)
        if score > 0 and not card.core and all(_holds(card, term) for term in required)
    ]
    ranked.sort(key=lambda found: found[:3])
    return Found(cards=tuple(card for *_, card in ranked[:most]), total=len(ranked))


def _parts(text: str) -> list[str]:
    return [part for part in _SEPARATOR.split(text) if part]


def _plain(name: str) -> str:
    """Reduce a name to its letters and digits, in lower case."""
    return "".join(filter(str.isalnum, name)).lower()


def _named(names: Sequence[str], cards: Sequence[ToolCard], most: int) -> Found:
    known = {_plain(name): card for card in cards for name in (*card.aliases, card.name)}
    given = [
        (name, known.get(_plain(name)) or known.get(_plain(name).removesuffix("tool"))) for name in names
    ]
    found = tuple(dict.fromkeys(card for _, card in given if card is not None))
    unknown = tuple(name for name, card in given if card is None)
    return Found(cards=found[:most], total=len(found), unknown=unknown)


def _weights(card: ToolCard) -> Weights:
    names = (card.name, *card.aliases, card.toolset)
    return weights(((" ".join(names), 3.0), (card.description, 1.0), (" ".join(card.arguments), 0.5)))


def _holds(card: ToolCard, term: str) -> bool:
    """Find a term anywhere in a name; elsewhere only at the start of a word: `git` does not match `digit`."""
    names = " ".join((card.name, *card.aliases))
    text = words(" ".join((names, card.toolset, card.description, *card.arguments)))
    is_said = bool(words(term)) and all(any(w.startswith(part) for w in text) for part in words(term))
    return term.lower() in names.lower() or is_said


def names(cards: Sequence[ToolCard]) -> str:
    """List every tool that is not core, by toolset."""
    others = sorted((card for card in cards if not card.core), key=lambda card: (card.toolset, card.name))
    lines = [
        f"{toolset}: {', '.join(card.name for card in group)}"
        for toolset, group in groupby(others, key=lambda card: card.toolset)
    ]
    return "\n".join((f"{len(others)} tools; `select:A,B` shows how to call them.", *lines))


def answer(found: Found, cards: Sequence[ToolCard]) -> str:
    """Return the matching tools, each as one line of JSON with its schema."""
    proxy = f"; if your client cannot, with {PROXY}" * any(card.name == PROXY for card in cards)
    how = [f"[call them by name{proxy}]"] * bool(found.cards)
    return "\n".join((*_head(found), *map(_line, found.cards), *how))


def _head(found: Found) -> list[str]:
    head = [f"No tool here is called {', '.join(found.unknown)}."] if found.unknown else []
    if not found.cards:
        return [*head, "No tool found. An empty query lists all."]
    left = found.total - len(found.cards)
    return [*head, f"[{left} more; ask more exactly, or for more]"] if left else head


def _line(card: ToolCard) -> str:
    record = {"name": card.name, "permission": card.permission.flag, "description": card.description}
    return f'{json.dumps(record, ensure_ascii=False)[:-1]}, "inputSchema": {card.schema}}}'


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


def _count(word: str, text: Weights) -> float:
    if word in text or len(word) < 3:
        return text.get(word, 0.0)
    return _BEGINNING * sum(worth for other, worth in text.items() if other.startswith(word))


def scores(
    query: Iterable[str], texts: Sequence[Weights], count: Callable[[str, Weights], float] = _count
) -> list[float]:
    """Return the relevance of each text for `query`; 0 means none. `count` weighs a word in a text."""
    lengths = [sum(text.values()) for text in texts]
    usual = sum(lengths) / (len(texts) or 1)
    totals = [0.0] * len(texts)
    for word in dict.fromkeys(query):
        counts = [count(word, text) for text in texts]
        holding = sum(found > 0 for found in counts)
        rarity = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        for index, (found, length) in enumerate(zip(counts, lengths, strict=True)):
            share = 1 - _LENGTH + _LENGTH * length / (usual or 1)
            totals[index] += rarity * found * (_SATURATION + 1) / (found + _SATURATION * share)
    return totals
