"""Lazy construction: defers imports until first use to keep start-up fast."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Closable(Protocol):
    """An object that has to be closed."""

    async def aclose(self) -> None: ...


C = TypeVar("C", bound=Closable)


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


class LazyCloseable(Lazy[C]):
    """A lazy object that has to be closed."""

    async def aclose(self) -> None:
        """Close the object, if it exists."""
        if self.made is not None:
            await self.made.aclose()
