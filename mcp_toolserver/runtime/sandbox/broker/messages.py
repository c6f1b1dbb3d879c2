"""The requests of the server to the broker: one packet of descriptors per request.

A packet cannot hold a long script, so the first descriptor is an anonymous file with the request.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mcp_toolserver.text.json_values import is_list, is_object

REQUEST = b"r"
"""Starts a packet that asks for a program; the `session_id` of its session follows."""

CHECK = b"check"
"""What the server sends on the control socket of a command to have protected names verified at once."""

SUSPEND, RESUME = b"pause", b"go on"
"""To have all processes of a command stopped, and to have them go on; the time between does not count towards
its timeout. A supervisor that cannot stop them ends the command."""

HIDE = b"p"
"""A packet that is no request: with it comes a file of patterns, see `encode_patterns`."""

TEMPORARY = b"t"
"""Starts a packet that asks for the temporary folder of a session; its id follows. With it comes a socket, on
which the folder is passed; it is closed without one where commands share none."""

END = b"e"
"""Starts a packet that ends a session; its id follows."""

END_UNUSED = b"u"
"""The same, once no command of the session runs, unless something else is asked for it before."""

CONNECTIONS = b"c"
"""With it comes a socket, on which the proxy of commands reports each connection as a packet of JSON."""

RECEIVED = b"a"
"""What the broker of POSIX systems answers to each packet. Until then the sender keeps the descriptors open:
macOS may close a socket that is on its way and that nobody else has open, and Chromium waits too
(crbug.com/298276)."""

MAX_REQUEST = 8 << 20
"""Bytes of an encoded request."""

DESCRIPTORS = 6
"""Control socket, request, folder to run in, standard input, output and error, in this order: a receiver that
has no room for all of them still gets the first, and can say so on it."""

_T = TypeVar("_T")

_GIT_SETTING = re.compile(r"GIT_CONFIG_(COUNT|KEY_[0-9]+|VALUE_[0-9]+)")


@dataclass(frozen=True, kw_only=True)
class Script:
    """A command for the shell, chosen by a model."""

    script: str
    timeout: float | None
    """Seconds; None is no limit."""
    roots: tuple[str, ...] | None = None
    """Absolute folders, without links, each a root of the broker or within one. Of the roots the command sees
    only these; None stands for all."""
    session: str = ""
    """A name. Confined commands of the same session share a temporary folder and, without another network, a
    loopback interface; without a session, each has its own."""
    read_only: bool = False
    """Whether it runs as in read-only mode, where the broker's own mode lets commands write in the roots."""
    keeps_git: bool = False
    """Whether it may not write in repositories, although the broker lets commands do so."""
    hidden_git: tuple[str, ...] = ()
    """Absolute paths of repositories that the command sees empty: git folders, or `.git` files that lead to
    them."""
    user: str = ""
    """Whose package caches it uses: the name of a token, or empty for all clients together."""
    prepared: str = ""
    """The name of the MCP server whose prepared package it reads; empty for none."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One of the server's own helper programs."""

    argv: tuple[str, ...]
    timeout: float | None
    environment: tuple[tuple[str, str], ...] = ()
    """Settings for git that no argument could spell: `GIT_CONFIG_COUNT` and what it counts, nothing else."""
    writes: tuple[str, ...] = ()
    """Absolute folders, without links, that it may write in. The broker permits what the rule of the helper
    names, and nothing in read-only mode."""


Request = Script | Program


def encode(request: Request) -> bytes:
    kind = "command" if isinstance(request, Script) else "helper"
    return json.dumps({"kind": kind, **vars(request)}).encode()


def encode_event(event: Mapping[str, object]) -> bytes:
    """The line in which a supervisor tells the server of its program."""
    return json.dumps(event).encode() + b"\n"


def session_of(request: Request) -> str:
    return request.session if isinstance(request, Script) else ""


def session_id(session: str) -> bytes:
    """The name of a session, short enough for a packet; empty without one."""
    return hashlib.sha256(session.encode()).hexdigest()[:32].encode() if session else b""


def decode(body: bytes) -> Request:
    """The request in `body`. Raises: ValueError: `body` is no valid request."""
    message: object = json.loads(body)
    if not is_object(message):
        raise ValueError("not a request")
    get = message.get
    timeout = _seconds(get("timeout"))
    match get("kind"), get("script"), get("argv"):
        case "command", str() as script, None:
            return Script(
                script=_argument(script),
                timeout=timeout,
                roots=_folders(get("roots")),
                session=_text(get("session", "")),
                read_only=_flag(get("read_only", False)),
                keeps_git=_flag(get("keeps_git", False)),
                hidden_git=_folders(get("hidden_git")) or (),
                user=_text(get("user", "")),
                prepared=_file_name(get("prepared", "")),
            )
        case "helper", None, argv if argv:
            return Program(
                argv=_list(argv, _argument),
                timeout=timeout,
                environment=_list(get("environment", []), _variable),
                writes=_folders(get("writes")) or (),
            )
        case _:
            raise ValueError("not a request")


def encode_patterns(patterns: Sequence[str]) -> bytes:
    return json.dumps(list(patterns)).encode()


def decode_patterns(body: bytes) -> tuple[str, ...]:
    """The patterns in `body`. Raises: ValueError: `body` is no list of patterns."""
    return _list(json.loads(body), _text)


def _list(value: object, item: Callable[[object], _T]) -> tuple[_T, ...]:
    if not is_list(value):
        raise ValueError("not a list")
    return tuple(map(item, value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _file_name(value: object) -> str:
    if "/" in (name := _argument(value)) or name.startswith("."):
        raise ValueError("not the name of a file")
    return name


def _argument(value: object) -> str:
    if "\0" in (text := _text(value)):
        raise ValueError("no program can be given a null character")
    return text


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _folders(value: object) -> tuple[str, ...] | None:
    return None if value is None else _list(value, _folder)


def _folder(value: object) -> str:
    path = _text(value)
    if not path.startswith("/") or path.startswith("//") or path != os.path.normpath(path) or "\0" in path:
        raise ValueError("a folder is an absolute path in its shortest spelling")
    return path


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
