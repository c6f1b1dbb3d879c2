"""Ignore files, as git and ripgrep read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from mcp_toolserver.runtime.fallback.options import Options
from mcp_toolserver.runtime.fallback.reading import content

_NAMES = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")
"""The strongest first."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """The ignore rules of a folder, by file name, and those of the folders above it."""

    base: str
    """The folder's path with a slash at the end; empty for the searched one."""
    specs: dict[str, GitIgnoreSpec]
    above: "Level | None"

    def verdict(self, name: str, path: str) -> bool | None:
        """What the ignore files called `name` say: the nearest one that says anything."""
        level: Level | None = self
        while level is not None:
            spec = level.specs.get(name)
            if spec and (said := spec.check_file(path[len(level.base) :]).include) is not None:
                return said
            level = level.above
        return None


@dataclass(frozen=True, kw_only=True)
class Ignoring:
    """What is left out of a walk."""

    hidden: bool
    """Whether dot files are left out."""
    rules: bool
    """Whether ignore files count."""
    weakest: GitIgnoreSpec | None
    """Rules from above the searched folder."""

    def level(self, folder: int, base: str, above: Level | None) -> Level | None:
        """The rules that hold in an open folder."""
        if not self.rules:
            return None
        specs = {name: spec for name in _NAMES if (spec := _spec_of(folder, name))}
        return Level(base=base, specs=specs, above=above)

    def leaves_out(self, path: str, name: str, level: Level | None) -> bool:
        """Whether the file, or the folder with a slash at the end, is not for the search."""
        if name == ".git" or (self.hidden and name.startswith(".")):
            return True
        if level is None:
            return False
        verdicts = (level.verdict(file, path) for file in _NAMES)
        said = next((verdict for verdict in verdicts if verdict is not None), None)
        if said is None and self.weakest is not None:
            said = self.weakest.check_file(path).include
        return said is True


def ignoring(given: Options) -> Ignoring:
    """What the options leave out."""
    file = given.value("ignore-file")
    weakest = None
    if file is not None:
        text = Path(file).read_text(encoding="utf-8", errors="surrogateescape")
        weakest = _spec(text.splitlines())
    return Ignoring(hidden="hidden" not in given.flags, rules="no-ignore" not in given.flags, weakest=weakest)


def ruled_by(rules: bytes, *, hidden: bool) -> Ignoring:
    """What ignore files leave out, and `rules` from above; dot files too when `hidden`."""
    weakest = _spec(rules.decode("utf-8", "surrogateescape").splitlines())
    return Ignoring(hidden=hidden, rules=True, weakest=weakest)


def _spec_of(folder: int, name: str) -> GitIgnoreSpec | None:
    try:
        data = content(folder, name)
    except OSError:
        return None
    return _spec(data.decode("utf-8", "surrogateescape").splitlines()) if data else None


def _spec(lines: Sequence[str]) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:
        return GitIgnoreSpec.from_lines(filter(_is_valid, lines))


def _is_valid(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
