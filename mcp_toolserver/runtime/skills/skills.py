"""Finds, reads, activates and saves the skills of a call.

An active skill takes rights from the calls of its caller. It is a narrowing with the key `skill 1`, `skill 2`
and so on, one for each level of nesting, so whatever ends a narrowing ends the skill.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anyio import to_thread

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.files import CanonicalPath, FolderQuery
from mcp_toolserver.capabilities.skills import MAX_NESTED, SKILL_FILE, LoadedSkill, SavedSkill, SkillIndex
from mcp_toolserver.errors import Conflict, InvalidInput, NotFound, ToolError
from mcp_toolserver.pipeline.narrowings import Narrowings
from mcp_toolserver.policy.rules import Narrowing, Rule
from mcp_toolserver.runtime.files.listing import folders
from mcp_toolserver.runtime.files.os_errors import translate
from mcp_toolserver.runtime.files.path_resolver import inside
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.skills.discovery import (
    Discovery,
    Found,
    SkillSource,
    card_of,
    places_of,
    read_skill,
)
from mcp_toolserver.stores.skills import StoredSkills
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.skills import saved_fields, skill_markdown

MAX_FILE = 10 * 1024 * 1024
"""Bytes of a supporting file that can be read."""

MAX_FILES = 1_024
"""Files that are listed."""

_DEPTH = 8

_NAMED = 40
"""Names in an error message."""

IDLE_SECONDS = 1_800.0
"""Time without a call of the caller after which a skill ends."""

TOOL = "Skill"
"""The tool that every skill allows, because it ends them."""


@dataclass(frozen=True, kw_only=True)
class CallSkills:
    """The skills of one call: in the roots, in the folders that the operator named, and what models saved.

    Every method that takes a name also takes an alias, in upper or lower case.
    """

    discovery: Discovery
    stored: StoredSkills
    view: Workspace
    """What the client of the call works in."""
    whole: Workspace
    others: Sequence[Workspace]
    """The folders that the operator named."""
    restricts: bool
    """Whether `allowed-tools` of the skills in those takes rights too."""
    scope: Scope
    user: str
    """See `StoredSkills`."""
    narrowings: Narrowings
    rules: Callable[[Sequence[str]], tuple[Rule, ...]]

    async def index(self) -> SkillIndex:
        """Find all skills. What a rule hides or denies is left out."""
        return (await self._found()).index()

    async def open(self, name: str) -> LoadedSkill:
        """Read a skill.

        Raises:
            NotFound: there is none of this name, or a rule denies it; the text lists the names.
            Conflict: its file changed while it was read.
        """
        source = await self._chosen(name)
        if isinstance(source, SavedSkill):
            return LoadedSkill(card=card_of(source), body=source.prompt, fields=dict(saved_fields(source)))
        in_roots = source.place.in_roots
        found = await to_thread.run_sync(
            lambda: replace(read_skill(source), files=tuple(_files(source)), in_roots=in_roots),
            abandon_on_cancel=True,
        )
        return found if in_roots or self.restricts else replace(found, allowed_tools=None)

    async def read(self, name: str, file: str) -> bytes:
        """Read a file of a skill, by its path relative to the folder of the skill.

        Raises:
            NotFound: there is no such skill, or no such file in its folder.
            InvalidInput: it is no regular file, or too large.
            Denied: a rule hides it.
        """
        source = await self._chosen(name)
        if isinstance(source, SavedSkill):
            if file == SKILL_FILE:
                return skill_markdown(source).encode()
            raise NotFound(f"The skill {source.name!r} has no other files.")
        return await to_thread.run_sync(_read, source, file, abandon_on_cancel=True)

    def activate(self, skill: LoadedSkill) -> None:
        """Take from the caller's calls what the `allowed-tools` of `skill` do not allow.

        Ends the active skills first, unless the last of them allows the tool Skill.

        Raises:
            Conflict: `MAX_NESTED` skills are active.
        """
        owner, active = self.scope.owner, self._active()
        # The skill itself has to allow the tool; the last rule is that of every skill.
        nests = bool(active) and any(rule.tool == TOOL for rule in (active[-1].tools or ())[:-1])
        if not nests:
            for level in range(len(active), 0, -1):
                self.narrowings.remove(owner, _key(level))
            active = []
        if skill.allowed_tools is None:
            return
        if len(active) >= MAX_NESTED:
            raise Conflict(
                f"{len(active)} skills are active inside one another, and no more can be. End the last: call "
                f"{TOOL} with end: true."
            )
        narrowing = Narrowing(
            source=f"The skill {skill.card.name!r}",
            advice=f"When you are done with the skill, call {TOOL} with end: true.",
            tools=(*self.rules(skill.allowed_tools), *self.rules((TOOL,))),
        )
        self.narrowings.put(owner, _key(len(active) + 1), narrowing, idle_seconds=IDLE_SECONDS)

    def end(self) -> str:
        """End the skill that was activated last, and return it as the subject of a sentence, such as `The
        skill 'release'`; empty if none is active."""
        active = self._active()
        if not active:
            return ""
        self.narrowings.remove(self.scope.owner, _key(len(active)))
        return active[-1].source

    def _active(self) -> list[Narrowing]:
        found: list[Narrowing] = []
        while (narrowing := self.narrowings.get(self.scope.owner, _key(len(found) + 1))) is not None:
            found.append(narrowing)
        return found

    async def save(self, skill: SavedSkill) -> bool:
        """Save or replace a skill of the caller; return whether it is new.

        Raises:
            Conflict: the user has a skill of this name, or too many are saved.
        """
        found = await self._in_folders()
        for name in (skill.name, *skill.aliases):
            if (source := found.named(name)) is not None:
                card = card_of(source)
                raise Conflict(
                    f"The user has a skill {card.name!r} in {card.path}, which nothing that is saved "
                    "replaces. Choose another name, or tell the user what to change there."
                )
        return await self.stored.put(self.user, skill)

    async def _in_folders(self) -> Found:
        """The skills of users, without those that a rule denies."""
        found = await to_thread.run_sync(
            lambda: self.discovery.run(places_of(self.view, self.whole, self.others)), abandon_on_cancel=True
        )
        for name, source in tuple(found.skills.items()):
            if self.scope.forbids(card_of(source).name) is not None:
                del found.skills[name]
        return found

    async def _found(self) -> Found:
        """The skills of users and those that models saved, without those that a rule denies."""
        found = await self._in_folders()
        for skill in await self.stored.all(self.user):
            name = skill.name.lower()
            if name in found.skills:
                found.warn(f"The saved skill {skill.name!r} is not used: the user has one of the same name.")
            elif self.scope.forbids(skill.name) is None:
                found.skills[name] = skill
        return found

    async def _chosen(self, name: str) -> SkillSource | SavedSkill:
        found = await self._found()
        if (skill := found.named(name)) is not None:
            return skill
        names = [card.name for card in found.index().cards]
        listed = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        raise NotFound(
            f"There is no skill {name!r}. " + (f"There are: {listed}." if names else "There is none here.")
        )


def _key(level: int) -> str:
    return f"skill {level}"


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
    with translate(path), os.fdopen(source.place.workspace.open_file(path), "rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        if size > MAX_FILE:
            raise InvalidInput(f"{file!r} has {size:,} bytes; at most {MAX_FILE:,} can be read.")
        return opened.read(MAX_FILE)


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
