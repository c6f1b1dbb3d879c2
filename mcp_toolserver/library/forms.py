"""What models and clients are told of a tool, in the form that each of them takes."""

from pydantic import JsonValue

from mcp_toolserver.library.entry import OPEN, as_entry
from mcp_toolserver.library.values import Tool
from mcp_toolserver.registry import Entry
from mcp_toolserver.text.schema import Schema

Form = dict[str, JsonValue]


def to_anthropic(tool: Tool) -> Form:
    """For Anthropic's Messages API."""
    return anthropic(tool.name, tool.description, dict(tool.input_schema))


def to_openai(tool: Tool) -> Form:
    """For OpenAI's Responses API, whose form is flat."""
    return openai(tool.name, tool.description, dict(tool.input_schema))


def to_acp(tool: Tool) -> Form:
    """Name and kind, which is how the Agent Client Protocol shows calls."""
    return acp(as_entry(tool))


def to_mcp(tool: Tool) -> Form:
    """As a server lists it that confines nothing."""
    # Making values for this protocol takes its SDK, which nothing else here needs.
    from mcp_toolserver.protocol import translate

    entry = as_entry(tool)
    told = translate.tool(entry, entry.label.permission, OPEN)
    return told.model_dump(mode="json", by_alias=True, exclude_none=True)


def anthropic(name: str, description: str, schema: Schema) -> Form:
    """A tool in Anthropic's form."""
    return {"name": name, "description": description.strip(), "input_schema": schema}


def openai(name: str, description: str, schema: Schema) -> Form:
    """A tool in OpenAI's form."""
    return {"type": "function", "name": name, "description": description.strip(), "parameters": schema}


def acp(entry: Entry) -> Form:
    """A tool in the Agent Client Protocol's words."""
    return {"name": entry.label.name, "kind": entry.label.kind}
