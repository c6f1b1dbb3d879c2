"""Exports tool definitions in the formats of model APIs and clients."""

from pydantic import JsonValue

from mcp_toolserver.custom_tools.build import as_entry
from mcp_toolserver.custom_tools.tool import Tool
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.text.json_schema import Schema

Definition = dict[str, JsonValue]


def to_anthropic(tool: Tool) -> Definition:
    """Return the definition for Anthropic's Messages API."""
    return anthropic(tool.name, tool.description, dict(tool.input_schema))


def to_openai(tool: Tool) -> Definition:
    """Return the definition for OpenAI's Responses API, which is flat."""
    return openai(tool.name, tool.description, dict(tool.input_schema))


def to_acp(tool: Tool) -> Definition:
    """Return name and kind, with which the Agent Client Protocol displays calls."""
    return acp(as_entry(tool))


def to_mcp(tool: Tool) -> Definition:
    """Return the definition as an unsandboxed MCP server lists it."""
    # This needs the MCP SDK, which nothing else here imports.
    from mcp_toolserver.protocol import translate

    entry = as_entry(tool)
    # All it needs is to run its own code, which can reach anything.
    declaration = translate.tool(entry, entry.spec.permission, entry.spec.needs)
    return declaration.model_dump(mode="json", by_alias=True, exclude_none=True)


def anthropic(name: str, description: str, schema: Schema) -> Definition:
    """Return a tool in Anthropic's format."""
    return {"name": name, "description": description.strip(), "input_schema": schema}


def openai(name: str, description: str, schema: Schema) -> Definition:
    """Return a tool in OpenAI's format."""
    return {"type": "function", "name": name, "description": description.strip(), "parameters": schema}


def acp(entry: Entry) -> Definition:
    """A tool in the Agent Client Protocol's words."""
    return {"name": entry.spec.name, "kind": entry.spec.kind}
