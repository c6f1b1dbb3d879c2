"""Finds skill files: `NAME/SKILL.md` in folders of skills, and `NAME.md` in folders called `commands`; those
in folders within have names such as `FOLDER:NAME`.

Every file is opened through the workspace, so neither a link nor a folder swapped meanwhile leads outside,
and rules that hide files apply. A file that is no valid skill is skipped with a warning.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.skills import SKILL_FILE, LoadedSkill, SavedSkill, SkillCard, SkillIndex
from mcp_toolserver.errors import Conflict, Denied, NotFound, ToolError
from mcp_toolserver.runtime.files.path_resolver import inside
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.front_matter import without_effect
from mcp_toolserver.text.skills import NAME, parse_skill

MAX_BYTES = 256 * 1024
"""Size of a skill file."""

MAX_SKILLS = 200

MAX_NAMES = 2_000
"""Names read of one folder."""

MAX_FOLDERS = 200
"""Folders within a place that are searched too."""

MAX_DEPTH = 4
"""Of such a folder."""

MAX_WARNINGS = 20

_SKILLS = (".agents/skills", ".claude/skills")
_COMMANDS = ".claude/commands"

_CACHED = 2_000
"""Files whose card or warning is kept."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder of skills, or of commands."""

    workspace: Workspace
    path: str
    """Absolute."""
    in_roots: bool

    @property
    def has_commands(self) -> bool:
        """Whether it holds `NAME.md`, and not `NAME/SKILL.md`."""
        return self.path.rpartition("/")[2] == "commands"


@dataclass(frozen=True, kw_only=True)
class SkillSource:
    """Where a skill lies."""

    card: SkillCard
    place: Place
    file: CanonicalPath
    folder: CanonicalPath | None
    """The folder of the skill; None for a command."""


@dataclass
class Found:
    """What a look into the places found."""

    skills: dict[str, SkillSource | SavedSkill] = field(default_factory=dict[str, SkillSource | SavedSkill])
    """By name in lower case, the nearest first; last the saved skills whose name is free."""
    warnings: list[str] = field(default_factory=list[str])

    def warn(self, text: str) -> None:
        """Add a warning; beyond the limit, only say that there are more."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)
        elif len(self.warnings) == MAX_WARNINGS:
            self.warnings.append("There are more warnings.")

    def index(self) -> SkillIndex:
        """The cards and warnings."""
        cards = tuple(map(card_of, self.skills.values()))
        ignored = without_effect((card.name, card.unsupported) for card in cards)
        return SkillIndex(cards=cards, warnings=(*self.warnings, *ignored))

    def named(self, name: str) -> SkillSource | SavedSkill | None:
        """The skill with this name or alias; names count before aliases."""
        wanted = name.lower()
        aliased = (one for one in self.skills.values() if wanted in map(str.lower, card_of(one).aliases))
        return self.skills.get(wanted) or next(aliased, None)


def places_of(view: Workspace, whole: Workspace, others: Sequence[Workspace]) -> tuple[Place, ...]:
    """The places of a call in the order in which they count.

    For each folder that the client works in (`view`), they are those in it and in the folders above it, up
    to the root (`whole` holds the roots). `others` are the folders that the operator named.
    """
    levels: dict[str, Workspace] = {}
    for folder in view.roots:
        *relative, absolute = view.spellings(view.canonical(folder))
        depth = len([part for part in "".join(relative).split("/") if part not in ("", ".")])
        for _ in range(depth + 1):
            levels.setdefault(absolute, view if absolute == folder else whole)
            absolute = os.path.dirname(absolute)
    inner = [
        Place(workspace=workspace, path=f"{level.rstrip('/')}/{name}", in_roots=True)
        for level, workspace in levels.items()
        for name in (*_SKILLS, _COMMANDS)
    ]
    outer = [Place(workspace=one, path=folder, in_roots=False) for one in others for folder in one.roots]
    return (*inner, *outer)


def card_of(skill: SkillSource | SavedSkill) -> SkillCard:
    """What the index holds of a skill."""
    return skill.card if isinstance(skill, SkillSource) else skill


class Discovery:
    """Finds skills, and parses a file again only when it changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int, int, int, int, int], SkillCard | str] = {}
        """The card of a file, or why it has none, by path, name, and what changes with the file: device,
        inode, times of change of content and status, size."""
        self._lock = Lock()

    def run(self, places: Sequence[Place]) -> Found:
        """Look into all places. Blocks."""
        found = Found()
        with self._lock:
            for place in places:
                for name, file, folder in _candidates(place, found):
                    if len(found.skills) >= MAX_SKILLS:
                        found.warn(f"There are more than {MAX_SKILLS} skills; the others are left out.")
                        return found
                    self._add(place, name, file, folder, found)
        return found

    def _add(
        self, place: Place, name: str, file: CanonicalPath, folder: CanonicalPath | None, found: Found
    ) -> None:
        path = place.workspace.spellings(file)[-1]
        try:
            card = self._card(place, name, file, path)
        except NotFound:
            return
        except (ToolError, OSError, ValueError) as error:
            found.warn(f"{path} is not used as a skill: it {_reason(error)}")
            return
        source = SkillSource(card=card, place=place, file=file, folder=folder)
        first = card_of(found.skills.setdefault(card.name.lower(), source))
        if first.path != card.path:
            found.warn(f"{card.path} is not used: {first.path} has the same name and is nearer.")

    def _card(self, place: Place, name: str, file: CanonicalPath, path: str) -> SkillCard:
        fd = place.workspace.open_file(file)
        try:
            status = os.fstat(fd)
            changes = status.st_mtime_ns, status.st_ctime_ns, status.st_size
            key = (path, name, status.st_dev, status.st_ino, *changes)
            if (known := self._known.get(key)) is None:
                if len(self._known) >= _CACHED:
                    self._known.clear()
                try:
                    known = parse_skill(_text(fd), name, path=path, has_folder=not place.has_commands).card
                except ValueError as error:
                    known = str(error)
                self._known[key] = known
        finally:
            os.close(fd)
        if isinstance(known, str):
            raise ValueError(known)
        return known


def read_skill(source: SkillSource) -> LoadedSkill:
    """Read a skill again. Raises: ToolError: it cannot be read, or is no valid skill any more."""
    fd = source.place.workspace.open_file(source.file)
    try:
        return replace(parse_skill(_text(fd), source.card.name), card=source.card)
    except ValueError as error:
        raise Conflict(f"{source.card.path} {error}. It changed meanwhile; list the skills again.") from None
    finally:
        os.close(fd)


def _candidates(place: Place, found: Found) -> Iterator[tuple[str, CanonicalPath, CanonicalPath | None]]:
    """Names, files and folders of what may be a skill; those in folders within come last."""
    waiting, count = [""], 0
    while waiting:
        inner = waiting.pop(0)
        for entry in _entries(place, inner, found):
            path, name = f"{inner}{entry.name}", entry.name
            try:
                candidate = _candidate(place, path, name)
            except (ToolError, OSError, ValueError) as error:
                found.warn(f"{place.path}/{path!a} is not used as a skill: it {_reason(error)}")
                continue
            if candidate is not None:
                yield candidate
            elif entry.is_dir(follow_symlinks=False) and path.count("/") < MAX_DEPTH:
                count += 1
                waiting.append(f"{path}/")
        if count > MAX_FOLDERS:
            found.warn(f"{place.path} has more than {MAX_FOLDERS} folders; the others are not searched.")
            del waiting[MAX_FOLDERS:]
            count = len(waiting)


def _entries(place: Place, inner: str, found: Found) -> Sequence[os.DirEntry[str]]:
    """What may be a skill, or hold some, in the folder `inner` of a place, sorted by name."""
    path = f"{place.path}/{inner}".rstrip("/")
    try:
        top = place.workspace.canonical(path)
        if place.workspace.is_hidden(top):
            return ()
        fd = place.workspace.open_dir(top)
    except NotFound:
        return ()
    except (ToolError, OSError) as error:
        found.warn(f"{path} is not searched for skills: it {_reason(error)}")
        return ()
    try:
        with os.scandir(fd) as entries:
            wanted = [entry for entry in islice(entries, MAX_NAMES) if _is_wanted(place, entry)]
    finally:
        os.close(fd)
    return sorted(wanted, key=lambda entry: entry.name)


def _is_wanted(place: Place, entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith("."):
        return False
    is_folder = entry.is_dir(follow_symlinks=False)
    return is_folder or (entry.name.endswith(".md") if place.has_commands else entry.is_symlink())


def _candidate(place: Place, path: str, entry: str) -> tuple[str, CanonicalPath, CanonicalPath | None] | None:
    """The skill at a path in the place; None for a folder that is none, and what a rule hides."""
    name = path.removesuffix(".md").replace("/", ":") if place.has_commands else path.replace("/", ":")
    if NAME.fullmatch(name) is None:
        raise ValueError("has a name that is not 1 to 64 letters, digits, '-', '_' or ':'")
    workspace = place.workspace
    own = workspace.canonical(f"{place.path}/{path}")
    file, folder = own, None
    if not place.has_commands:
        file, folder = workspace.canonical(inside(own, SKILL_FILE)), own
        if not lies_in(own, file) and own != ".":
            raise Denied("has a link as its SKILL.md that leads out of its folder")
    elif not entry.endswith(".md"):
        return None
    if workspace.is_hidden(file) or (folder is not None and workspace.kind(file) == "missing"):
        return None
    return name, file, folder


def _text(fd: int) -> str:
    """Raises: ValueError: it is too large, or not UTF-8."""
    content = os.pread(fd, MAX_BYTES + 1, 0)
    if len(content) > MAX_BYTES:
        size = max(os.fstat(fd).st_size, len(content))
        raise ValueError(f"has {size:,} bytes; a skill file has at most {MAX_BYTES:,}")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror})."
    return f"{error}." if isinstance(error, ValueError) else f"cannot be read. {error}"
