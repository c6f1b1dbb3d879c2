"""How the server asks the broker: one packet of descriptors a request, the words in the first of them.

A packet could not hold a long script, so the request itself lies in an anonymous file.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import TypeGuard

COMMAND, HELPER = b"c", b"h"
"""What a packet says of its request, so that it gets to the nanny that can serve it soonest."""

MAX_REQUEST = 8 << 20
"""Bytes of an encoded request."""

DESCRIPTORS = 6
"""Request, control socket, folder to run in, standard input, output and error, in this order."""

_GIT_SETTING = re.compile(r"GIT_CONFIG_(COUNT|KEY_[0-9]+|VALUE_[0-9]+)")


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
    environment: tuple[tuple[str, str], ...] = ()
    """Settings for git that no argument could spell: `GIT_CONFIG_COUNT` and what it counts, nothing else."""


Request = Script | Program


def encode(request: Request) -> bytes:
    """The bytes that `decode` reads."""
    kind = "command" if isinstance(request, Script) else "helper"
    return json.dumps({"kind": kind, **vars(request)}).encode()


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
            environment = _variables(message.get("environment", []))
            return Program(argv=tuple(argv), timeout=timeout, environment=environment)
        case _:
            raise ValueError("not a request")


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether parsed JSON is an object."""
    return isinstance(value, dict)


def _is_argv(value: object) -> TypeGuard[list[str]]:
    return is_list(value) and bool(value) and all(map(_is_argument, value))


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether parsed JSON is an array."""
    return isinstance(value, list)


def _is_argument(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _variables(value: object) -> tuple[tuple[str, str], ...]:
    if not is_list(value):
        raise ValueError("an environment is a list of pairs")
    return tuple(map(_variable, value))


def _variable(value: object) -> tuple[str, str]:
    match value:
        case [str() as name, str() as content] if _GIT_SETTING.fullmatch(name) and "\0" not in content:
            return name, content
        case _:
            raise ValueError("a variable that a helper program may not be given")


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError("a timeout is a number of seconds")
    return float(value)
