"""The texts of skills: their files, and what the model gets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from mcp_toolserver.capabilities.skills import LoadedSkill, SavedSkill, SkillCard
from mcp_toolserver.text.front_matter import FrontMatter, Value, front_matter

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:-]{0,63}")
"""A name. It has no dot and no slash, so that it never is a path."""

MAX_DESCRIPTION = 1_024
"""Characters, as in the specification of Agent Skills."""

MAX_FRONT_MATTER = 16 * 1024
"""Bytes of front matter. All skills are parsed for one list, and hostile YAML costs about 1 µs per byte."""

MAX_TOOLS = 100
"""Entries of `allowed-tools`."""

MAX_ALIASES = 8

_ENTRY = re.compile(r"(?:[^ \t\r\n,(]|\([^()]*\)|\()+")
_TOOL = re.compile(r"(?:[A-Za-z_][\w-]*|\*)(?:\([^()]*\))?")

_NAMED_FILES = 60
"""Supporting files that the text names."""

_PLACEHOLDER = "$ARGUMENTS"

_END = re.compile(r"</(?=skill_content)", re.IGNORECASE)


def parse_skill(text: str, name: str, *, path: str = "", has_folder: bool = False) -> LoadedSkill:
    """Parse the file of the skill that its folder or file calls `name`.

    Raises:
        ValueError: the file is no valid skill. The message continues a sentence that begins with the name of
            the file.
    """
    found = front_matter(text, max_bytes=MAX_FRONT_MATTER)
    if not found.body.strip():
        raise ValueError("has no text below its front matter")
    own_name = _text(found, "name") or name
    if NAME.fullmatch(own_name) is None:
        raise ValueError(
            f"has the name {own_name[:80]!a}; a name has 1 to 64 letters, digits, - _ or :, and begins "
            "with a letter or digit"
        )
    aliases = _names(_first(found, "aliases"))
    card = SkillCard(
        name=own_name,
        description=(_text(found, "description") or _first_line(found.body))[:MAX_DESCRIPTION],
        when_to_use=_text(found, "when-to-use", "when_to_use", "whenToUse")[:MAX_DESCRIPTION],
        argument_hint=_hint(_first(found, "argument-hint", "argument_hint", "argumentHint")),
        aliases=tuple(dict.fromkeys(one for one in (*aliases, name) if one != own_name)),
        user_invocable=_flag(found, "user-invocable", "user_invocable", "userInvocable", default=True),
        model_invocable=not _flag(found, "disable-model-invocation", default=False),
        path=path,
        has_folder=has_folder,
    )
    # Lists instead of tuples.
    fields: dict[str, JsonValue] = json.loads(json.dumps(found.fields))
    return LoadedSkill(card=card, body=found.body.strip("\n"), fields=fields, allowed_tools=_tools(found))


def tool_rules(text: str) -> tuple[str, ...]:
    """The entries of a list that spaces or commas separate; `Bash(git log *)` is one entry.

    Raises:
        ValueError: it is no such list.
    """
    rules: list[str] = []
    for entry in _ENTRY.finditer(text):
        if _TOOL.fullmatch(entry[0]) is None:
            raise ValueError(f"has allowed-tools that are no list of tools: {text[entry.start() :][:80]!a}")
        rules.append(entry[0])
    if len(rules) > MAX_TOOLS:
        raise ValueError(f"has more than {MAX_TOOLS} allowed-tools")
    return tuple(rules)


def _tools(found: FrontMatter) -> tuple[str, ...] | None:
    names = ("allowed-tools", "allowed_tools", "allowedTools")
    if all(name not in found.fields for name in names):
        return None
    value = _first(found, *names)
    entries = value if isinstance(value, tuple) else ("" if value is None else value,)
    if not all(isinstance(entry, str) for entry in entries):
        raise ValueError("has allowed-tools that are no list of tools")
    rules = tool_rules(",".join(map(str, entries)))
    return None if "*" in rules else rules


def _first(found: FrontMatter, *names: str) -> Value:
    """The value of the first of these fields that the file has."""
    return next((found.fields[name] for name in names if name in found.fields), None)


def _text(found: FrontMatter, *names: str) -> str:
    value = _first(found, *names)
    if value is None:
        return ""
    if isinstance(value, (tuple, Mapping)):
        raise ValueError(f"has a list or mapping as its {names[0]}, which is text")
    return " ".join(str(value).split())


def _flag(found: FrontMatter, *names: str, default: bool) -> bool:
    value = _first(found, *names)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ValueError(f"has a value of {names[0]} that is neither true nor false")
    return value


def _hint(value: Value) -> str:
    """YAML reads `[file]` as a list."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"[:200]
    return "" if value is None or isinstance(value, Mapping) else " ".join(str(value).split())[:200]


def _names(value: Value) -> tuple[str, ...]:
    text = "" if value is None else str(value)
    names = tuple(map(str, value if isinstance(value, tuple) else text.replace(",", " ").split()))
    if len(names) > MAX_ALIASES or not all(map(NAME.fullmatch, names)):
        raise ValueError(f"has aliases that are not at most {MAX_ALIASES} names")
    return names


def _first_line(body: str) -> str:
    """What a file without a description begins with."""
    lines = (line.strip().lstrip("#").strip() for line in body.splitlines())
    return next((line for line in lines if line), "")[:250]


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
