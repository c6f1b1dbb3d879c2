"""Narrows the type of parsed JSON, and walks through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    # The broker imports this module, and nothing but the standard library.
    from pydantic import JsonValue


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether parsed JSON is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether parsed JSON is an array."""
    return isinstance(value, list)


def nodes(value: JsonValue) -> Iterator[JsonValue]:
    """Yield a JSON value and all values inside it."""
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        yield from nodes(part)


def texts_in(value: JsonValue) -> Iterator[str]:
    """Yield every text among a JSON value and those inside it; names of members are none."""
    return (one for one in nodes(value) if isinstance(one, str))


def with_texts(value: JsonValue, change: Callable[[str], str]) -> JsonValue:
    """A copy in which `change` has replaced every text, names of members included."""
    match value:
        case str():
            return change(value)
        case list():
            return [with_texts(part, change) for part in value]
        case dict():
            return {change(name): with_texts(part, change) for name, part in value.items()}
        case _:
            return value
