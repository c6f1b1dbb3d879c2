"""The texts of skills: their files, and what the model gets."""

from __future__ import annotations

import json
import re
import shlex
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

_PLACEHOLDER = re.compile(r"\$ARGUMENTS(?:\[(\d)\])?|\$([1-9])(?!\d)|\$\{CLAUDE_SKILL_DIR\}")

_DESCRIPTIVE = ("license", "compatibility", "metadata")
"""Fields of the specification of Agent Skills that only describe."""

_FIELDS = (
    *("name", "description", "when-to-use", "argument-hint", "aliases", "user-invocable", "allowed-tools"),
    *("disable-model-invocation", *_DESCRIPTIVE),
)

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
    own_name = "-".join(_text(found, "name").split()) or name
    if NAME.fullmatch(own_name) is None:
        raise ValueError(
            f"has the name {own_name[:80]!a}; a name has 1 to 64 letters, digits, - _ or :, and begins "
            "with a letter or digit"
        )
    aliases = _names(found.first("aliases"))
    card = SkillCard(
        name=own_name,
        description=(_text(found, "description") or _first_line(found.body))[:MAX_DESCRIPTION],
        when_to_use=_text(found, "when-to-use")[:MAX_DESCRIPTION],
        argument_hint=_hint(found.first("argument-hint")),
        aliases=tuple(dict.fromkeys(one for one in (*aliases, name) if one != own_name)),
        user_invocable=_flag(found, "user-invocable", default=True),
        model_invocable=not _flag(found, "disable-model-invocation", default=False),
        path=path,
        has_folder=has_folder,
        unsupported=found.others(_FIELDS),
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
    if not found.has("allowed-tools"):
        return None
    value = found.first("allowed-tools")
    entries = value if isinstance(value, tuple) else ("" if value is None else value,)
    if not all(isinstance(entry, str) for entry in entries):
        raise ValueError("has allowed-tools that are no list of tools")
    rules = tool_rules(",".join(map(str, entries)))
    return None if "*" in rules else rules


def _text(found: FrontMatter, name: str) -> str:
    value = found.first(name)
    if value is None:
        return ""
    if isinstance(value, (tuple, Mapping)):
        raise ValueError(f"has a list or mapping as its {name}, which is text")
    return " ".join(str(value).split())


def _flag(found: FrontMatter, name: str, *, default: bool) -> bool:
    value = found.first(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ValueError(f"has a value of {name} that is neither true nor false")
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
    card = skill.card
    body = with_arguments(
        skill.body,
        arguments,
        folder=card.path.rpartition("/")[0],
        has_numbers=bool(arguments or card.argument_hint),
    )
    return wrapped(card.name, body, tuple(_notes(skill)))


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


def with_arguments(body: str, arguments: str, *, folder: str = "", has_numbers: bool = True) -> str:
    """The text with `$ARGUMENTS`, `$1` to `$9` and `${CLAUDE_SKILL_DIR}` replaced; arguments for which it has
    no place follow it. Unless it `has_numbers`, `$1` stays: it may be that of a shell script."""
    words, places = _words(arguments), 0

    def replaced(found: re.Match[str]) -> str:
        nonlocal places
        if found[0].startswith("${"):
            return folder or found[0]
        if found[2] and not has_numbers:
            return found[0]
        places += 1
        if not (found[1] or found[2]):
            return arguments
        number = int(found[1]) if found[1] else int(found[2]) - 1
        return words[number] if number < len(words) else ""

    text = _PLACEHOLDER.sub(replaced, body)
    return f"{text}\n\nArguments: {arguments}" if arguments and not places else text


def _words(arguments: str) -> Sequence[str]:
    """Separated by spaces, with quotes around those that contain some."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


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
