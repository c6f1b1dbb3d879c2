"""What is made when it is first used, so that a start does not wait for its imports."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Closable(Protocol):
    """What has to be closed."""

    async def aclose(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Lazy(Generic[T]):
    """A part of the server, made by the first call."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None
        """The part, if it has been made."""

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made


class LazyCloseable(Lazy[C]):
    """One that has to be closed."""

    async def aclose(self) -> None:
        """Close it, if it has been made."""
        if self.made is not None:
            await self.made.aclose()
