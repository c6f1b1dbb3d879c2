"""Schemas are what clients can digest: no unions, no titles, no noise."""

from typing import Literal

from pydantic import Field, JsonValue

from mcp_toolserver.text.json_schema import plain_schema
from mcp_toolserver.tool import WorkspacePath
from mcp_toolserver.tool_spec import Args


class Inner(Args):
    """A documented part."""

    title: str = Field(description="A field that is called title.")
    size: int = Field(ge=0, description="How large.")


class Example(Args):
    """A documented model."""

    path: WorkspacePath = Field(description="Where.")
    mode: Literal["a", "b"] = Field(default="a", description="Which.")
    note: str | None = Field(default=None, description="Why.")
    loud: bool = Field(default=False, description="Whether.")
    parts: tuple[Inner, ...] = Field(default=(), strict=False, description="What.")
    title: str = Field(default="t", description="A field that is called title.")
    count: int = Field(default=5, description="How many (5).")
    fifty: int = Field(default=5, description="At most (50).")
    anything: dict[str, JsonValue] = Field(default_factory=dict, description="Whatever.")


class Nothing(Args):
    """None."""


def test_a_schema_says_nothing_twice_and_nothing_obvious() -> None:
    inner = {
        "type": "object",
        "properties": {"title": {"type": "string"}, "size": {"type": "integer", "description": "How large."}},
        "required": ["title", "size"],
    }
    assert plain_schema(Example) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where."},
            "mode": {"type": "string", "enum": ["a", "b"], "description": "Which."},
            "note": {"type": "string", "description": "Why."},
            "loud": {"type": "boolean", "description": "Whether."},
            "parts": {"type": "array", "items": inner, "description": "What."},
            "title": {"type": "string", "default": "t", "description": "A field that is called title."},
            "count": {"type": "integer", "description": "How many (5)."},
            "fifty": {"type": "integer", "default": 5, "description": "At most (50)."},
            "anything": {"type": "object", "description": "Whatever."},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    assert plain_schema(Nothing) == {"type": "object", "properties": {}, "additionalProperties": False}
