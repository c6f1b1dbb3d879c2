"""An immutable registry of tools."""

from collections.abc import Iterator, Mapping

from mcp_toolserver.custom_tools.export import Definition, to_acp, to_anthropic, to_mcp, to_openai
from mcp_toolserver.custom_tools.tool import Tool
from mcp_toolserver.errors import RegistrationError


class ToolRegistry:
    """Tools in the order of registration. Immutable: `register` returns a new registry."""

    def __init__(self, tools: Mapping[str, Tool] | None = None) -> None:
        self._tools: Mapping[str, Tool] = dict(tools or {})

    def register(self, tool: Tool) -> "ToolRegistry":
        """Return a registry that also contains this tool.

        Raises:
            RegistrationError: the name is taken.
        """
        if tool.name in self._tools:
            raise RegistrationError(f"there is a tool {tool.name} already")
        return ToolRegistry({**self._tools, tool.name: tool})

    def get(self, name: str) -> Tool:
        """Return a tool. Raises: KeyError: no tool has this name."""
        if name not in self._tools:
            raise KeyError(f"Unknown tool: {name}")
        return self._tools[name]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def to_anthropic_tools(self) -> list[Definition]:
        """Return all tools for Anthropic's Messages API."""
        return [to_anthropic(tool) for tool in self]

    def to_openai_tools(self) -> list[Definition]:
        """Return all tools for OpenAI's Responses API."""
        return [to_openai(tool) for tool in self]

    def to_mcp_tools(self) -> list[Definition]:
        """Return all tools as an MCP server lists them."""
        return [to_mcp(tool) for tool in self]

    def to_acp_tools(self) -> list[Definition]:
        """Return all tools with their Agent Client Protocol kind."""
        return [to_acp(tool) for tool in self]
