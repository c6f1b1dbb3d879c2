"""Narrows the type of parsed JSON."""

from typing import TypeGuard


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether parsed JSON is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether parsed JSON is an array."""
    return isinstance(value, list)
