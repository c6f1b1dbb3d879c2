"""Tools by name."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.library.forms import to_acp, to_anthropic, to_mcp, to_openai
from mcp_toolserver.library.values import Tool

Told = list[dict[str, JsonValue]]


class ToolRegistry:
    """Tools in the order in which they were registered. It never changes: `register` gives a new one."""

    def __init__(self, tools: Mapping[str, Tool] | None = None) -> None:
        self._tools: Mapping[str, Tool] = dict(tools or {})

    def register(self, tool: Tool) -> "ToolRegistry":
        """A registry with this tool too.

        Raises:
            RegistrationError: the name is taken.
        """
        if tool.name in self._tools:
            raise RegistrationError(f"there is a tool {tool.name} already")
        return ToolRegistry({**self._tools, tool.name: tool})

    def get(self, name: str) -> Tool:
        """Raises: KeyError: no tool has this name."""
        if name not in self._tools:
            raise KeyError(f"Unknown tool: {name}")
        return self._tools[name]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def to_anthropic_tools(self) -> Told:
        """All tools for Anthropic's Messages API."""
        return [to_anthropic(tool) for tool in self]

    def to_openai_tools(self) -> Told:
        """All tools for OpenAI's Responses API."""
        return [to_openai(tool) for tool in self]

    def to_mcp_tools(self) -> Told:
        """All tools as an MCP server lists them."""
        return [to_mcp(tool) for tool in self]

    def to_acp_tools(self) -> Told:
        """All tools with their kind in the Agent Client Protocol."""
        return [to_acp(tool) for tool in self]
