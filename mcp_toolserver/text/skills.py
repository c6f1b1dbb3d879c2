"""The texts of skills: what the model gets, and the file of a skill that a model saved."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from mcp_toolserver.capabilities.skills import LoadedSkill, SavedSkill

_NAMED_FILES = 60
"""Supporting files that the text names."""

_PLACEHOLDER = "$ARGUMENTS"

_END = re.compile(r"</(?=skill_content)", re.IGNORECASE)


def skill_content(skill: LoadedSkill, arguments: str) -> str:
    """The text of a skill for the model."""
    return wrapped(skill.card.name, with_arguments(skill.body, arguments), tuple(_notes(skill)))


def _notes(skill: LoadedSkill) -> Iterator[str]:
    card = skill.card
    if not card.path:
        yield "A model saved this skill; the user did not write it."
    elif card.has_folder:
        yield f"Folder of this skill, where its relative paths start: {card.path.rpartition('/')[0]}"
    if skill.files:
        more = f" and {len(skill.files) - _NAMED_FILES} more" if len(skill.files) > _NAMED_FILES else ""
        reader = "read_file, or this tool with file" if skill.in_roots else "this tool with file"
        yield f"Its files, which {reader} reads: {', '.join(skill.files[:_NAMED_FILES])}{more}"
    if skill.allowed_tools is not None:
        names = ", ".join(skill.allowed_tools) or "none"
        yield f"Tools it allows until you call Skill with end: true: {names}"


def with_arguments(body: str, arguments: str) -> str:
    """The text with `$ARGUMENTS` replaced; without it, non-empty arguments follow the text."""
    if _PLACEHOLDER in body:
        return body.replace(_PLACEHOLDER, arguments)
    return f"{body}\n\nArguments: {arguments}" if arguments else body


def wrapped(name: str, body: str, notes: Sequence[str] = ()) -> str:
    """The text that the model gets. The body cannot imitate its end; `notes` are lines of the server."""
    inside = _END.sub("&lt;/", "\n".join((body, *(("", *notes) if notes else ()))))
    return f'<skill_content name="{name}">\n{inside}\n</skill_content>'


def saved_fields(skill: SavedSkill) -> Mapping[str, str]:
    """The front matter that a skill saved by a model would have."""
    fields = {"name": skill.name, "description": skill.description, "when-to-use": skill.when_to_use}
    return {name: value for name, value in fields.items() if value}


def skill_markdown(skill: SavedSkill) -> str:
    """The file that a skill saved by a model would have."""
    # YAML contains JSON.
    lines = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in saved_fields(skill).items()
    ]
    return "\n".join(("---", *lines, "---", "", skill.prompt, ""))
