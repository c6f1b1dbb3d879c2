"""The regular files beneath the working folder, each folder opened in the one above it."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcp_toolserver.runtime.fallback.ignoring import Ignoring, Level

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def say(text: str) -> None:
    """Complain, as ripgrep does."""
    sys.stderr.buffer.write(f"rg: {text}\n".encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file, beneath the open folder it lies in."""

    folder: int
    name: str
    path: str


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A folder that is being walked through."""

    folder: int
    base: str
    level: Level | None
    entries: Iterator[os.DirEntry[str]]


@dataclass
class Walk:
    """Regular files beneath the working folder in path order. Links are not followed."""

    ignoring: Ignoring
    failed: bool = field(default=False, init=False)
    """Whether something could not be read."""

    def files(self) -> Iterator[Found]:
        """The files that are not left out."""
        visits = [self._visit(os.open(".", _FOLDER), "", None)]
        while visits:
            visit = visits[-1]
            entry = next(visit.entries, None)
            if entry is None:
                os.close(visits.pop().folder)
            elif entry.is_dir(follow_symlinks=False):
                self._enter(visit, entry.name, visits)
            elif self._is_wanted(visit, entry):
                yield Found(folder=visit.folder, name=entry.name, path=visit.base + entry.name)

    def complain(self, path: str, error: OSError) -> None:
        """Say that something could not be read."""
        self.failed = True
        say(f"./{path}: {error.strerror} (os error {error.errno})")

    def _is_wanted(self, visit: Visit, entry: os.DirEntry[str]) -> bool:
        path = visit.base + entry.name
        return entry.is_file(follow_symlinks=False) and not self.ignoring.leaves_out(
            path, entry.name, visit.level
        )

    def _enter(self, visit: Visit, name: str, visits: list[Visit]) -> None:
        path = visit.base + name
        if self.ignoring.leaves_out(f"{path}/", name, visit.level):
            return
        try:
            visits.append(self._visit(os.open(name, _FOLDER, dir_fd=visit.folder), f"{path}/", visit.level))
        except OSError as error:
            self.complain(path, error)

    def _visit(self, folder: int, base: str, above: Level | None) -> Visit:
        try:
            with os.scandir(folder) as entries:
                ordered = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        except OSError:
            os.close(folder)
            raise
        level = self.ignoring.level(folder, base, above)
        return Visit(folder=folder, base=base, level=level, entries=iter(ordered))
