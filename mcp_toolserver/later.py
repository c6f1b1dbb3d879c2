"""What is made when it is first used, so that a start does not wait for its imports."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """A part of the server, made by the first call."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None
        """The part, if it has been made."""

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made
