"""Registers, selects and exports tools."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from pydantic import JsonValue

from mcp_toolserver.custom_tools.build import as_entry
from mcp_toolserver.custom_tools.tool import Tool
from mcp_toolserver.errors import RegistrationError
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
    declaration = translate.tool(entry, entry.spec.own_permission, entry.spec.needs)
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


Precedence = Literal["builtin", "latest", "error"]
"""Which tool wins a duplicate name: the first of built-in, custom and MCP; the last; or neither (an error).
"""


@dataclass(frozen=True)
class ToolPool(Sequence[Tool]):
    """Selected tools, and messages about the selection."""

    tools: tuple[Tool, ...] = ()
    diagnostics: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.tools)

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tool, ...]: ...
    def __getitem__(self, index: int | slice) -> Tool | tuple[Tool, ...]:
        return self.tools[index]


def assemble_tool_pool(
    built_in: Iterable[Tool],
    mcp_tools: Iterable[Tool] = (),
    deny_rules: Iterable[str] = (),
    *,
    custom: Iterable[Tool] = (),
    precedence: Precedence = "builtin",
) -> ToolPool:
    """Combine built-in, custom and MCP tools, each sorted by name, without denied ones.

    An added tool leaves the order of those before it unchanged. Names are compared without case.

    Raises:
        RegistrationError: with precedence "error", two sources have the same name.
    """
    denied = frozenset(map(str.casefold, deny_rules))
    sources = [
        sorted((tool for tool in source if tool.name.casefold() not in denied), key=lambda tool: tool.name)
        for source in (built_in, custom, mcp_tools)
    ]
    everything = [tool for source in sources for tool in source]
    winners: dict[str, Tool] = {}
    diagnostics: list[str] = []
    for tool in everything:
        before = winners.setdefault(tool.name.casefold(), tool)
        if before is tool:
            continue
        if precedence == "error":
            raise RegistrationError(f"two tools are called {tool.name}")
        diagnostics.append(f"{tool.name}: there are two, and the {_WINS[precedence]} is taken")
        if precedence == "latest":
            winners[tool.name.casefold()] = tool
    kept = set(map(id, winners.values()))
    return ToolPool(tuple(tool for tool in everything if id(tool) in kept), tuple(diagnostics))


_WINS = {"builtin": "first", "latest": "last"}


def filter_tools(
    tools: Iterable[Tool], allowed: Iterable[str] | None = None, disallowed: Iterable[str] | None = None
) -> ToolPool:
    """Return the allowed tools without the disallowed ones, ignoring case.

    A missing or empty list allows everything. A list that names no existing tool allows nothing, and adds a
    diagnostic.
    """
    given = tuple(tools)
    names = {tool.name.casefold() for tool in given}
    wanted, unwanted = tuple(allowed or ()), tuple(disallowed or ())
    chosen = set(map(str.casefold, wanted)) if wanted else names
    left = chosen.difference(map(str.casefold, unwanted))
    kept = tuple(tool for tool in given if tool.name.casefold() in left)
    unknown = [name for name in (*wanted, *unwanted) if name.casefold() not in names]
    diagnostics = [f"no tool is called {name}" for name in unknown]
    if given and not kept:
        diagnostics.append("no tool is left: the lists allow none of them")
    return ToolPool(kept, tuple(diagnostics))


Nesting = Literal["intersect", "replace"]
"""Whether an inner restriction intersects with the outer ones, or replaces them while it lasts."""


class ToolRestrictionStack:
    """A thread-safe stack of restrictions.

    Without restrictions every tool may be used; an empty restriction allows none. Extra pops are ignored.
    """

    def __init__(self, nesting: Nesting = "intersect") -> None:
        self._nesting = nesting
        self._lock = threading.Lock()
        self._levels: tuple[frozenset[str], ...] = ()

    def push(self, allowed: Iterable[str]) -> None:
        """Add a restriction that allows only these tools."""
        level = frozenset(name.casefold() for name in allowed)
        with self._lock:
            outer = self._levels[-1] if self._levels and self._nesting == "intersect" else level
            self._levels = (*self._levels, level & outer)

    def pop(self) -> None:
        """Remove the last restriction."""
        with self._lock:
            self._levels = self._levels[:-1]

    def __len__(self) -> int:
        return len(self._levels)

    def allows(self, name: str) -> bool:
        """Whether the tool may be used now."""
        levels = self._levels
        return not levels or name.casefold() in levels[-1]

    def filter(self, tools: Iterable[Tool]) -> ToolPool:
        """Return those of `tools` that may be used now."""
        levels = self._levels
        return ToolPool(tuple(tool for tool in tools if not levels or tool.name.casefold() in levels[-1]))
