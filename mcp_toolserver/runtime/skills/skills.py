"""Finds, reads and saves the skills of a call."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from anyio import to_thread
from pydantic import JsonValue

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.files import CanonicalPath, FolderQuery
from mcp_toolserver.capabilities.skills import (
    SKILL_FILE,
    LoadedSkill,
    SavedSkill,
    SkillCard,
    SkillIndex,
)
from mcp_toolserver.errors import Conflict, InvalidInput, NotFound, ToolError
from mcp_toolserver.runtime.files.listing import folders
from mcp_toolserver.runtime.files.os_errors import translate
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.search.display_path import inside
from mcp_toolserver.runtime.skills.activation import Activation
from mcp_toolserver.runtime.skills.discovery import (
    Discovery,
    Found,
    SkillSource,
    places_of,
    read_skill,
)
from mcp_toolserver.text.front_matter import Value
from mcp_toolserver.text.path_syntax import lies_in
from mcp_toolserver.text.skills import saved_fields, skill_markdown

MAX_FILE = 10 * 1024 * 1024
"""Bytes of a supporting file that can be read."""

MAX_FILES = 1_024
"""Files that are listed."""

_DEPTH = 8

_NAMED = 40
"""Names in an error message."""

T = TypeVar("T")


class SkillStore(Protocol):
    """The skills that models saved."""

    async def all(self, user: str) -> tuple[SavedSkill, ...]: ...
    async def put(self, user: str, skill: SavedSkill) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class CallSkills:
    """The skills of one call: in the roots, in the folders that the operator named, and what models saved.

    Every method that takes a name also takes an alias, in upper or lower case.
    """

    discovery: Discovery
    stored: SkillStore
    view: Workspace
    """What the client of the call works in."""
    whole: Workspace
    others: Sequence[Workspace]
    """The folders that the operator named."""
    scope: Scope
    user: str
    """See `StoredSkills`."""
    activation: Activation

    async def index(self) -> SkillIndex:
        """Find all skills. What a rule hides or denies is left out."""
        return (await self._found())[0].index()

    async def open(self, name: str) -> LoadedSkill:
        """Read a skill.

        Raises:
            NotFound: there is none of this name, or a rule denies it; the text lists the names.
            Conflict: its file changed while it was read.
        """
        found, saved = await self._found()
        source = self._chosen(name, found, saved)
        if isinstance(source, SavedSkill):
            return LoadedSkill(card=_card(source), body=source.prompt, fields=dict(saved_fields(source)))
        return await _in_thread(partial(_opened, source))

    async def read(self, name: str, file: str) -> bytes:
        """Read a file of a skill, by its path relative to the folder of the skill.

        Raises:
            NotFound: there is no such skill, or no such file in its folder.
            InvalidInput: it is no regular file, or too large.
            Denied: a rule hides it.
        """
        found, saved = await self._found()
        source = self._chosen(name, found, saved)
        if isinstance(source, SavedSkill):
            if file == SKILL_FILE:
                return skill_markdown(source).encode()
            raise NotFound(f"The skill {source.name!r} has no other files.")
        return await _in_thread(partial(_read, source, file))

    def activate(self, skill: LoadedSkill, *, is_top_level: bool) -> None:
        """Take from the caller's calls what the `allowed-tools` of `skill` do not allow.

        Ends the active skills first, unless the last of them allows the tool Skill and not `is_top_level`.

        Raises:
            Conflict: `MAX_NESTED` skills are active.
        """
        self.activation.start(skill, is_top_level=is_top_level)

    def end(self) -> str:
        """End the skill that was activated last, and return it as the subject of a sentence, such as `The
        skill 'release'`; empty if none is active."""
        return self.activation.end()

    async def save(self, skill: SavedSkill) -> bool:
        """Save or replace a skill of the caller; return whether it is new.

        Raises:
            Conflict: the user has a skill of this name, or too many are saved.
        """
        found, _ = await self._found()
        for name in (skill.name, *skill.aliases):
            if (source := _named(name, found)) is not None:
                raise Conflict(
                    f"The user has a skill {source.card.name!r} in {source.card.path}, which nothing that is "
                    f"saved replaces. Choose another name, or tell the user what to change there."
                )
        return await self.stored.put(self.user, skill)

    async def _found(self) -> tuple[Found, dict[str, SavedSkill]]:
        """What there is in folders, and the saved skills whose name no file has, by name in lower case."""
        found = await _in_thread(self._discovered)
        saved: dict[str, SavedSkill] = {}
        for skill in await self.stored.all(self.user):
            name = skill.name.lower()
            if name in found.sources:
                found.warn(f"The saved skill {skill.name!r} is not used: the user has one of the same name.")
            elif self.scope.forbids(skill.name) is None:
                saved[name] = skill
                found.saved.append(_card(skill))
        return found, saved

    def _discovered(self) -> Found:
        found = self.discovery.run(places_of(self.view, self.whole, self.others))
        for name, source in tuple(found.sources.items()):
            if self.scope.forbids(source.card.name) is not None:
                del found.sources[name]
        return found

    def _chosen(self, name: str, found: Found, saved: dict[str, SavedSkill]) -> SkillSource | SavedSkill:
        """The skill with this name or alias; names count before aliases, and files before saved skills."""
        wanted = name.lower()
        if (source := _named(name, found)) is not None and (
            wanted == source.card.name.lower() or wanted not in saved
        ):
            return source
        if wanted in saved:
            return saved[wanted]
        for skill in saved.values():
            if wanted in (alias.lower() for alias in skill.aliases):
                return skill
        names = [card.name for card in found.index().cards]
        listed = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        raise NotFound(
            f"There is no skill {name!r}. " + (f"There are: {listed}." if names else "There is none here.")
        )


def _named(name: str, found: Found) -> SkillSource | None:
    wanted = name.lower()
    if (source := found.sources.get(wanted)) is not None:
        return source
    others = found.sources.values()
    return next((one for one in others if wanted in (alias.lower() for alias in one.card.aliases)), None)


def _card(skill: SavedSkill) -> SkillCard:
    return SkillCard(
        name=skill.name,
        description=skill.description,
        when_to_use=skill.when_to_use,
        aliases=skill.aliases,
        user_invocable=skill.user_invocable,
    )


async def _in_thread(work: Callable[[], T]) -> T:
    """Run what reads files; a caller that has given up does not wait for it."""
    return await to_thread.run_sync(work, abandon_on_cancel=True)


def _opened(source: SkillSource) -> LoadedSkill:
    found = read_skill(source)
    return LoadedSkill(
        card=source.card,
        body=found.body,
        fields={name: _json(value) for name, value in found.fields.items()},
        allowed_tools=found.allowed_tools,
        files=tuple(_files(source)),
        in_roots=source.place.in_roots,
    )


def _json(value: Value) -> JsonValue:
    if isinstance(value, tuple):
        return [_json(one) for one in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return {name: _json(one) for name, one in value.items()}


def _files(source: SkillSource) -> list[str]:
    """The other files of a skill, relative to its folder. Links are left out."""
    if source.folder is None:
        return []
    query = FolderQuery(path=source.folder, depth=_DEPTH, hidden=True, limit=MAX_FILES, each=MAX_FILES)
    try:
        content = folders(source.place.workspace, query)
    except ToolError:
        return []
    paths = [
        entry.name if below == "." else f"{below}/{entry.name}"
        for below, folder in content.items()
        for entry in folder.entries
        if entry.kind == "file"
    ]
    return sorted(path for path in paths if path != SKILL_FILE)


def _read(source: SkillSource, file: str) -> bytes:
    """Raises: NotFound, InvalidInput, Denied, Conflict."""
    path = _path(source, file)
    with translate(path):
        fd = source.place.workspace.open_file(path)
        try:
            size = os.fstat(fd).st_size
            if size > MAX_FILE:
                raise InvalidInput(f"{file!r} has {size:,} bytes; at most {MAX_FILE:,} can be read.")
            with os.fdopen(os.dup(fd), "rb") as opened:
                return opened.read(MAX_FILE)
        finally:
            os.close(fd)


def _path(source: SkillSource, file: str) -> CanonicalPath:
    """The path of a file in the folder of a skill."""
    if file == SKILL_FILE and source.folder is not None:
        return source.file
    missing = NotFound(
        f"The skill {source.card.name!r} has no file {file!r}. Name a file that the skill lists, by its path "
        "relative to the folder of the skill."
    )
    if source.folder is None or file.startswith("/") or ".." in file.split("/") or not file:
        raise missing
    path = source.place.workspace.canonical(inside(source.folder, file))
    if source.folder != "." and not lies_in(source.folder, path):
        raise missing
    return path
