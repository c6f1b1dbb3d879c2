"""Commands that do harm where nothing stops them, and the run without a sandbox that shows it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.cases import collected, table
from tests.support.confinement import Scene, copy_of, free
from tests.support.extent import rounds
from tests.support.snapshot import Entry, snapshot

COMMANDS = Path(__file__).with_name("commands.txt")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command, and the path that it changes or makes where nothing stops it."""

    script: str
    harms: str
    """In the root, in the folder outside as `$O/...`, or at home as `~/...`."""
    cwd: str = "."
    reported: bool = False
    """A new protected name: in workspace-write it can be made; it is gone and reported when the call ends."""


def cases(part: str) -> dict[str, Case]:
    """The commands of a part of the table, by name."""
    return {
        name: Case(script=script, harms=harms.removeprefix("new "), reported=harms.startswith("new "))
        for name, harms, script in table(COMMANDS, part, 3)
    }


def place(at: Scene, harms: str) -> Path:
    """The path in a scene."""
    start, _, rest = harms.partition("/")
    folder = {"$O": at.outside, "~": at.home}.get(start)
    return at.root / harms if folder is None else Path(os.path.normpath(folder / rest))


def assert_each_does_harm(pattern: Scene, ground: Path, cases: Mapping[str, Case]) -> None:
    """Run each case in a copy of `pattern` with no sandbox, where it must change what it names.

    Nothing of the product runs here, so the gate tries every third.
    """
    with collected() as case:
        for name, one in list(cases.items())[:: rounds(3, 1)]:
            with case(name), copy_of(pattern, ground) as copy:
                target = place(copy, one.harms)
                before = _entry(target)
                free(copy, one.script, one.cwd)
                assert _entry(target) != before


def _entry(path: Path) -> Entry | None:
    return snapshot(path)[str(path)] if os.path.lexists(path) else None
