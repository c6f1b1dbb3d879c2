"""The packages of servers that a package runner such as `npx` or `uvx` starts, fetched before any session.

A runner needs a network and caches that it can write; a confined server has neither. `upstream prepare`
installs the package into a folder of the server, which no server can write, and a start replaces the runner
by the installed program. So every start runs the same version until the package is prepared again.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from getopt import GetoptError, getopt
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.stores.disk import PREPARED_FOLDER

RECORD = "prepared.json"
"""In the folder of a server: a list of texts, see `PreparedPackage.load`."""

Installer = Literal["npm", "uv"]

_RUNNERS: dict[Installer, tuple[str, str, str, tuple[str, ...]]] = {
    "npm": (
        r"(npx|bunx|pnpm dlx|npm (exec|x))( |$)",
        "yqp:",
        "yes quiet bun registry= package=",
        ("-p", "--package"),
    ),
    "uv": (
        r"(uvx|uv tool run)( |$)",
        "qnw:p:c:f:i:",
        """quiet no-cache refresh isolated from= with= python= prerelease= index= default-index= index-url=
        extra-index-url= find-links= constraints=""",
        ("--from",),
    ),
}
"""What matches the runners; their options, in the form of `getopt`; and those of them that name a package to
install, with which a program of it follows the options. The installer takes all others that have a value."""

_RECORDS = TypeAdapter(tuple[str, ...])


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The command of a package runner, taken apart."""

    words: tuple[str, ...]
    """Up to where the arguments of the server begin."""
    installer: Installer
    arguments: tuple[str, ...]
    """Of the installer."""
    program: str
    """The one to run; empty for that of the package."""


def package_runner(command: Sequence[str]) -> tuple[Installer, int] | None:
    """What installs the packages of the runner that `command` begins with, and how many words name it."""
    text = " ".join((os.path.basename(command[0]), *command[1:3]))
    for installer, (pattern, *_) in _RUNNERS.items():
        if found := re.match(pattern, text):
            return installer, len(found[0].split())
    return None


def launch_of(command: Sequence[str]) -> Launch | None:
    """Take `command` apart; None if no package runner starts it.

    Raises:
        SettingsError: it names no package, or has an option that is not known here.
    """
    if (runner := package_runner(command)) is None:
        return None
    installer, count = runner
    _, short, long, naming = _RUNNERS[installer]
    try:
        options, rest = getopt(list(command[count:]), short, long.split())
    except GetoptError as error:
        raise SettingsError(f"{command[0]}: {error}") from None
    if not rest:
        raise SettingsError(f"{' '.join(command)} names no package")
    packages = [value for name, value in options if name in naming]
    forwarded = [one for one in options if one[1] and one[0] not in naming]
    # npm takes the second for its own.
    is_npm_exec = installer == "npm" and count == 2 and rest[1:2] == ["--"]
    return Launch(
        words=tuple(command[: len(command) - len(rest) + 1 + is_npm_exec]),
        installer=installer,
        arguments=(*(word for one in forwarded for word in one), "--", *(packages or rest[:1])),
        program=rest[0] if packages else "",
    )


@dataclass(frozen=True)
class PreparedPackage:
    """What is prepared for a server, in the folder `state`."""

    state: str
    server: str

    @property
    def folder(self) -> str:
        return f"{self.state}/{PREPARED_FOLDER}/{self.server}"

    def load(self) -> tuple[str, ...]:
        """The program, relative to the folder, and the words of the `Launch` that it replaces; empty if
        nothing is prepared."""
        try:
            return _RECORDS.validate_json(Path(self.folder, RECORD).read_bytes())
        except (OSError, ValueError):
            return ()

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """`command` with the prepared program in place of the runner; empty if it is not prepared."""
        program, *words = self.load() or ("",)
        if not words or list(command[: len(words)]) != words:
            return ()
        return (f"{self.folder}/{program}", *command[len(words) :])
