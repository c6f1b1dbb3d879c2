"""Schemas are what clients can digest: no unions, no titles, no noise."""

from typing import Literal

from pydantic import Field

from mcp_toolserver.text.schema import plain_schema
from mcp_toolserver.tool import Args, WorkspacePath


class Inner(Args):
    """A documented part."""

    title: str = Field(description="A field that is called title.")


class Example(Args):
    """A documented model."""

    path: WorkspacePath = Field(description="Where.")
    mode: Literal["a", "b"] = Field(default="a", description="Which.")
    note: str | None = Field(default=None, description="Why.")
    parts: tuple[Inner, ...] = Field(default=(), strict=False, description="What.")
    title: str = Field(default="t", description="A field that is called title.")


def test_a_schema_has_no_titles_no_null_unions_and_no_empty_defaults() -> None:
    assert plain_schema(Example) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "Where."},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a", "description": "Which."},
            "note": {"type": "string", "description": "Why."},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Inner"}, "description": "What."},
            "title": {"type": "string", "default": "t", "description": "A field that is called title."},
        },
        "required": ["path"],
        "additionalProperties": False,
        "$defs": {
            "Inner": {
                "type": "object",
                "description": "A documented part.",
                "properties": {"title": {"type": "string", "description": "A field that is called title."}},
                "required": ["title"],
                "additionalProperties": False,
            }
        },
    }


def test_a_tool_without_arguments_still_has_an_object() -> None:
    class Nothing(Args):
        """None."""

    assert plain_schema(Nothing) == {"type": "object", "properties": {}, "additionalProperties": False}
