"""How the server asks the broker: one packet of descriptors a request, the words in the first of them.

A packet could not hold a long script, so the request itself lies in an anonymous file.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import TypeGuard

MAX_REQUEST = 8 << 20
"""Bytes of an encoded request."""

DESCRIPTORS = 6
"""Request, control socket, folder to run in, standard input, output and error, in this order."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A command for the shell, chosen by a model."""

    script: str
    timeout: float | None
    """Seconds; None is no limit."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One of the server's own helper programs."""

    argv: tuple[str, ...]
    timeout: float | None


Request = Script | Program


def encode(request: Request) -> bytes:
    """The bytes that `decode` reads."""
    kind = "command" if isinstance(request, Script) else "helper"
    return json.dumps({"kind": kind, **asdict(request)}).encode()


def decode(body: bytes) -> Request:
    """The request in `body`.

    Raises:
        ValueError: it is no request, or none that a program could be started from.
    """
    message: object = json.loads(body)
    if not is_object(message):
        raise ValueError("not a request")
    timeout = _seconds(message.get("timeout"))
    match message.get("kind"), message.get("script"), message.get("argv"):
        case "command", str() as script, None if "\0" not in script:
            return Script(script=script, timeout=timeout)
        case "helper", None, argv if _is_argv(argv):
            return Program(argv=tuple(argv), timeout=timeout)
        case _:
            raise ValueError("not a request")


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether parsed JSON is an object."""
    return isinstance(value, dict)


def _is_argv(value: object) -> TypeGuard[list[str]]:
    return _is_list(value) and bool(value) and all(map(_is_argument, value))


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _is_argument(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError("a timeout is a number of seconds")
    return float(value)
