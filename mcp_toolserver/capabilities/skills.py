"""Skills: instructions for a kind of work, which users keep as files and models save."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    unsupported: tuple[str, ...] = ()
    """The fields of its file that have no effect here."""


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
class SavedSkill(SkillCard):
    """A skill that a model saves."""

    prompt: str
