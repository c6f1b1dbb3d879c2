"""What the broker may do. It is fixed before the fork, and no request changes it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp_toolserver.runtime.sandbox.wire import Program, Request, Script

UNCONFINED = "danger-full-access"
"""The one mode in which a command may run with no walls around it."""


@dataclass(frozen=True, kw_only=True)
class Charter:
    """What the broker holds constant for its whole life."""

    mode: str
    """The permission mode, as the flag spells it."""
    environment: Mapping[str, str]
    """All that commands and helper programs get; see `command_environment`."""
    helpers: tuple[tuple[str, ...], ...] = ()
    """How the argument lists of the server's own programs begin: an absolute path, and arguments that must
    follow it. A program that runs whatever it is told (an interpreter) is named with its script."""
    shell: tuple[str, ...] = field(default=())
    """The shell and its options, up to where the script goes; found by the broker when empty."""


def refusal(charter: Charter, request: Request) -> str | None:
    """Why `charter` does not allow `request`, or None."""
    match request:
        case Script() if charter.mode != UNCONFINED:
            return (
                f"commands run only with --permission-mode {UNCONFINED}, and this server has {charter.mode}"
            )
        case Program(argv=argv) if not any(argv[: len(start)] == start for start in charter.helpers):
            return "the program is none of the helpers that this server was started with"
        case _:
            return None


def find_shell(path: str) -> tuple[str, ...]:
    """Bash by absolute path with no start-up file, or else /bin/sh."""
    places = ("/bin", "/usr/bin", *(entry for entry in path.split(":") if entry.startswith("/")))
    bashes = (f"{place}/bash" for place in places)
    bash = next((file for file in bashes if os.access(file, os.X_OK)), None)
    return (bash, "--noprofile", "--norc", "-c") if bash else ("/bin/sh", "-c")
