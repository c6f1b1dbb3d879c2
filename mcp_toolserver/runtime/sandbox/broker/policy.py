"""What the broker may do. It is fixed before the fork, and no request changes it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mcp_toolserver.runtime.sandbox.bounds import CommandBounds
from mcp_toolserver.runtime.sandbox.walls import Layer, Proof, Reach, Walls
from mcp_toolserver.runtime.sandbox.wire import Program, Request, Script

UNCONFINED = "danger-full-access"
"""The one mode in which a command may run with no walls around it."""


@dataclass(frozen=True, kw_only=True)
class Helper:
    """One of the server's own programs."""

    argv: tuple[str, ...]
    """How its argument lists begin: an absolute path, and arguments that must follow it. A program that runs
    whatever it is told (an interpreter) is named with its script."""
    reach: Reach = "folder"
    places: tuple[str, ...] = ()
    """What it reads beside that: its own files, where they are none of the system's."""


@dataclass(frozen=True, kw_only=True)
class Charter:
    """What the broker holds constant for its whole life."""

    walls: Walls
    environment: Mapping[str, str]
    """All that commands and helper programs get; see `command_environment`."""
    helpers: tuple[Helper, ...] = ()
    shell: tuple[str, ...] = field(default=())
    """The shell and its options, up to where the script goes; found by the broker when empty."""
    bounds: CommandBounds = field(default_factory=CommandBounds)


@dataclass(frozen=True, kw_only=True)
class Behind:
    """What one program is put behind."""

    layer: Layer
    walls: Walls
    program: str = ""
    """Bubblewrap, where it is the layer."""
    filtered: bool = True
    """Whether system calls are filtered behind bubblewrap; behind Landlock they always are."""
    ahead: bool = False
    """Whether bubblewrap may have built the walls before the command came."""
    helper: Helper | None = None
    """None for a command."""


def decide(charter: Charter, proof: Proof, request: Request) -> Behind | str:
    """What `request` runs behind; or, as text, why it does not run."""
    match request:
        case Script():
            return _command(charter.walls, proof)
        case Program(argv=argv):
            helper = next((one for one in charter.helpers if argv[: len(one.argv)] == one.argv), None)
            if helper is None:
                return "the program is none of the helpers that this server was started with"
            return _helper(charter.walls, proof, helper)


def _command(walls: Walls, proof: Proof) -> Behind | str:
    if proof.commands == "none" and walls.mode != UNCONFINED:
        return f"commands run only behind walls in {walls.mode}, and none were proven at start"
    return Behind(
        layer=proof.commands,
        walls=walls,
        program=proof.program,
        filtered=proof.filtered,
        ahead=proof.ahead,
    )


def _helper(walls: Walls, proof: Proof, helper: Helper) -> Behind | str:
    """A helper only ever reads, whatever the mode is."""
    layer = proof.helpers if helper.reach == "folder" or proof.commands == "none" else proof.commands
    if layer == "none" and walls.mode != UNCONFINED:
        return f"programs run only behind walls in {walls.mode}, and none were proven at start"
    reading = replace(walls, mode="read-only", network=False)
    return Behind(layer=layer, walls=reading, program=proof.program, filtered=proof.filtered, helper=helper)


def find_shell(path: str) -> tuple[str, ...]:
    """Bash by absolute path with no start-up file, or else /bin/sh."""
    places = ("/bin", "/usr/bin", *(entry for entry in path.split(":") if entry.startswith("/")))
    bashes = (f"{place}/bash" for place in places)
    bash = next((file for file in bashes if os.access(file, os.X_OK)), None)
    return (bash, "--noprofile", "--norc", "-c") if bash else ("/bin/sh", "-c")
