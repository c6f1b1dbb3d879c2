"""What the driver of a session says, read with the distrust that its neighbour, the code, deserves.

`repl/driver.py` has the grammar. Everything that is not of it ends the session, and everything is bounded. So
the code can claim only what it might have printed as well.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mcp_toolserver.runtime.sandbox.wire import is_object

LONGEST = 24 << 20
"""Bytes of one line: a picture of the largest size that an interpreter may send, and some more."""


class Nonsense(Exception):
    """What was said is none of the driver's words."""


class Words:
    """Lines of JSON objects out of a stream that comes in pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def taken(self, data: bytes) -> Iterator[dict[str, object]]:
        """The words that end in `data`.

        Raises:
            Nonsense: a line is too long, or no object.
        """
        first, *others = data.split(b"\n")
        # Joined once a line, however small the pieces are.
        self._rest += first
        if len(self._rest) > LONGEST:
            raise Nonsense
        for rest in others:
            line, self._rest = bytes(self._rest), bytearray(rest)
            yield _word(line)


def _word(line: bytes) -> dict[str, object]:
    try:
        word: object = json.loads(line)
    except (ValueError, RecursionError):
        raise Nonsense from None
    if not is_object(word):
        raise Nonsense
    return word


@dataclass(kw_only=True)
class Hearing:
    """What is heard of one piece of code."""

    tag: str
    """What marks the words that belong to it."""
    printed: Callable[[bytes], None]
    most_pictures: int
    most_bytes: int
    """Of one picture."""
    pictures: list[bytes] = field(default_factory=list[bytes])
    dropped: int = 0
    status: int | None = None
    """Of the code, when it has run; 0 is without an error."""
    ended: int | None = None
    """The exit status of the interpreter, when it has ended."""
    ready: bool = False
    missing: str = ""
    """The program that a session cannot do without."""

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.status is not None or self.ended is not None or bool(self.missing)

    def take(self, word: dict[str, object]) -> None:
        """Take one word.

        Raises:
            Nonsense: it is none.
        """
        match word:
            case {"output": str() as data}:
                self.printed(_bytes(data))
            case {"picture": str() as data, "tag": tag}:
                self._show(_bytes(data), tag)
            case {"done": int() as status, "tag": tag}:
                status = _status(status)
                self.status = status if tag == self.tag else self.status
            case {"ended": int() as status}:
                self.ended = _status(status)
            case {"ready": True}:
                self.ready = True
            case {"missing": str() as program}:
                self.missing = program[:100]
            case _:
                raise Nonsense

    def _show(self, picture: bytes, tag: object) -> None:
        if tag != self.tag:
            return
        if len(self.pictures) < self.most_pictures and len(picture) <= self.most_bytes:
            self.pictures.append(picture)
        else:
            self.dropped += 1


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise Nonsense from None


def _status(status: int) -> int:
    if not 0 <= status <= 255:
        raise Nonsense
    return status
