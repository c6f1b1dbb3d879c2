"""Lazy construction: defers imports until first use to keep start-up fast."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """Calls `make` on first use, and returns the same object from then on."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None
        """The object; None before the first use."""

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made
