"""Reads agent files: types of agents that a workspace defines."""

import re

from mcp_toolserver.text.agents.types import BUILT_IN, AgentType, canonical_type
from mcp_toolserver.text.front_matter import Value, front_matter
from mcp_toolserver.text.lines.escape_invisible import visible

_MAX_TOOLS = 100
"""Names of tools in one file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def custom_type(text: str) -> AgentType:
    """The type that an agent file describes: its front matter has the fields name, description, tools and
    model, and its body has the instructions.

    Raises:
        ValueError: why the file describes none, in words that go on from its name.
    """
    found = front_matter(text)
    name, body = found.fields.get("name"), found.body.strip()
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("has no `name` of 1 to 64 letters, digits, - or _")
    if canonical_type(name) in BUILT_IN:
        raise ValueError(f"has the name {name}, which is that of a type that every workspace has")
    if not body:
        raise ValueError("has no instructions below its front matter")
    return AgentType(
        name=name,
        description=_line(found.fields.get("description")),
        instructions=visible(body),
        tools=_tools(found.fields.get("tools")),
        model=_model(found.fields.get("model")),
    )


def _line(field: Value) -> str:
    return visible(" ".join(field.split()))[:300] if isinstance(field, str) else ""


def _model(field: Value) -> str:
    if field is None or field == "inherit":
        return ""
    if not isinstance(field, str) or not field.isprintable() or not 0 < len(field) <= 100:
        raise ValueError("has a `model` that is not the name of a model")
    return field


def _tools(field: Value) -> tuple[str, ...] | None:
    """Comma-separated or a list; `*` is all of the caller's. Commas in parentheses belong to a rule."""
    parts = re.split(r",(?![^()]*\))", field) if isinstance(field, str) else field
    if parts is None:
        return None
    if not isinstance(parts, list | tuple) or len(parts) > _MAX_TOOLS:
        raise ValueError(f"has `tools` that are not a list of at most {_MAX_TOOLS} names")
    names: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            raise ValueError("has `tools` with a name that is not text")
        names.append(part.strip())
    return None if names == ["*"] else tuple(filter(None, names))
