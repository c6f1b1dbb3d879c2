"""Decodes the messages of a session's driver, which the user's code could forge.

`repl/sandboxed/driver.py` defines the protocol. Any violation ends the session, and every message is bounded,
so forged messages can claim no more than the code could have printed.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mcp_toolserver.text.json_values import is_object

MAX_LINE = 24 << 20
"""Bytes of one line: enough for the largest picture in base64."""


MAX_TEXT = 300
"""Characters kept of a text about the interpreter."""


class DriverProtocolError(Exception):
    """The data does not follow the driver protocol."""


class Decoder:
    """Decodes a byte stream into lines of JSON objects."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, object]]:
        """Return the messages that `data` completes.

        Raises:
            DriverProtocolError: a line is too long or not an object.
        """
        first, *others = data.split(b"\n")
        # Appending keeps small chunks cheap.
        self._rest += first
        if len(self._rest) > MAX_LINE:
            raise DriverProtocolError
        for rest in others:
            line, self._rest = bytes(self._rest), bytearray(rest)
            yield _parse(line)


def _parse(line: bytes) -> dict[str, object]:
    try:
        word: object = json.loads(line)
    except (ValueError, RecursionError):
        raise DriverProtocolError from None
    if not is_object(word):
        raise DriverProtocolError
    return word


@dataclass(kw_only=True)
class OngoingEvaluation:
    """The state of one evaluation, updated by the driver's messages."""

    tag: str
    """Marks the messages of this evaluation."""
    on_output: Callable[[bytes], None]
    max_pictures: int
    max_picture_bytes: int
    """Largest size of one picture."""
    pictures: list[bytes] = field(default_factory=list[bytes])
    dropped: int = 0
    status: int | None = None
    """Exit status of the code once it has finished; 0 means no error."""
    ended: int | None = None
    """Exit status of the interpreter once it has ended."""
    ready: bool = False
    interpreter: str = ""
    """Path of the interpreter."""
    version: str = ""
    """What the interpreter calls itself."""
    note: str = ""
    """Why the interpreter is not the expected one."""
    missing: str = ""
    """A required program that is not installed."""

    @property
    def is_finished(self) -> bool:
        """Whether no more messages will come."""
        return self.status is not None or self.ended is not None or bool(self.missing)

    def apply(self, word: dict[str, object]) -> None:
        """Apply one message.

        Raises:
            DriverProtocolError: the message is not part of the protocol.
        """
        match word:
            case {"output": str() as data}:
                self.on_output(_bytes(data))
            case {"picture": str() as data, "tag": tag}:
                self._add_picture(_bytes(data), tag)
            case {"done": int() as status, "tag": tag}:
                status = _status(status)
                self.status = status if tag == self.tag else self.status
            case {"ended": int() as status}:
                self.ended = _status(status)
            case {"interpreter": str() as path, "note": str() as note}:
                self.interpreter, self.note = _line(path), _line(note)
            case {"ready": str() as version}:
                self.ready, self.version = True, _line(version)
            case {"missing": str() as program}:
                self.missing = _line(program)
            case _:
                raise DriverProtocolError

    def _add_picture(self, picture: bytes, tag: object) -> None:
        if tag != self.tag:
            return
        if len(self.pictures) < self.max_pictures and len(picture) <= self.max_picture_bytes:
            self.pictures.append(picture)
        else:
            self.dropped += 1


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise DriverProtocolError from None


def _line(text: str) -> str:
    """`text` as one line of bounded length, for messages."""
    return "".join(filter(str.isprintable, text[:MAX_TEXT]))


def _status(status: int) -> int:
    if not 0 <= status <= 255:
        raise DriverProtocolError
    return status
