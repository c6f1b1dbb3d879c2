"""Skills: instructions for a kind of work, which users keep as files and models save."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import JsonValue

SKILL_FILE = "SKILL.md"

MAX_NESTED = 4
"""Skills with `allowed-tools` that are active inside one another."""


@dataclass(frozen=True, kw_only=True)
class SkillCard:
    """What the index holds of a skill."""

    name: str
    description: str
    when_to_use: str = ""
    argument_hint: str = ""
    aliases: tuple[str, ...] = ()
    user_invocable: bool = True
    """Whether it is a prompt."""
    model_invocable: bool = True
    """Whether the model may use it."""
    path: str = ""
    """The absolute path of its file; empty if a model saved it."""
    has_folder: bool = False
    """Whether it has a folder of its own, in which other files may lie."""


@dataclass(frozen=True, kw_only=True)
class SkillIndex:
    """The skills that a call can use."""

    cards: tuple[SkillCard, ...]
    """The nearest first; each name once."""
    warnings: tuple[str, ...] = ()
    """Why files that look like skills are not among them."""


@dataclass(frozen=True, kw_only=True)
class LoadedSkill:
    """A skill that was read."""

    card: SkillCard
    body: str
    fields: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Its front matter."""
    allowed_tools: tuple[str, ...] | None = None
    """The rules one of which must allow each call while it is active; None for no limit."""
    files: tuple[str, ...] = ()
    """Paths of its other files, relative to its folder."""
    in_roots: bool = False
    """Whether `read_file` reads them."""


@dataclass(frozen=True, kw_only=True)
class SavedSkill:
    """A skill that a model saves."""

    name: str
    description: str
    prompt: str
    when_to_use: str = ""
    aliases: tuple[str, ...] = ()
    user_invocable: bool = True


class Skills(Protocol):
    """The skills in the roots, in the folders that the operator named, and those that models saved.

    Every method that takes a name also takes an alias, in upper or lower case.
    """

    async def index(self) -> SkillIndex:
        """Find all skills. What a rule hides or denies is left out."""
        ...

    async def open(self, name: str) -> LoadedSkill:
        """Read a skill.

        Raises:
            NotFound: there is none of this name, or a rule denies it; the text lists the names.
            Conflict: its file changed while it was read.
        """
        ...

    async def read(self, name: str, file: str) -> bytes:
        """Read a file of a skill, by its path relative to the folder of the skill.

        Raises:
            NotFound: there is no such skill, or no such file in its folder.
            InvalidInput: it is no regular file, or too large.
            Denied: a rule hides it.
        """
        ...

    def activate(self, skill: LoadedSkill, *, is_top_level: bool) -> None:
        """Take from the caller's calls what the `allowed-tools` of `skill` do not allow.

        Ends the active skills first, unless the last of them allows the tool Skill and not `is_top_level`.

        Raises:
            Conflict: `MAX_NESTED` skills are active.
        """
        ...

    def end(self) -> str:
        """End the skill that was activated last, and return it as the subject of a sentence, such as `The
        skill 'release'`; empty if none is active."""
        ...

    async def save(self, skill: SavedSkill) -> bool:
        """Save or replace a skill of the caller; return whether it is new.

        Raises:
            Conflict: the user has a skill of this name, or too many are saved.
        """
        ...
