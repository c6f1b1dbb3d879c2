"""Registers, selects and exports tools."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, Self, Unpack

from pydantic import JsonValue
from pydantic_core import from_json

from mcp_toolserver.custom_tools.build import Declared, as_built, as_entry, define_tool
from mcp_toolserver.custom_tools.tool import Tool, ToolResult
from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.pipeline.registry import Entry, discover
from mcp_toolserver.text.json_schema import Schema
from mcp_toolserver.tool_spec import ToolContext, ToolSpec

Definition = dict[str, JsonValue]


def tool_specs() -> tuple[ToolSpec, ...]:
    """Return the server's own tools by name: `name`, `description`, `schema`, `own_permission`. Starts
    nothing; a `Toolset` has those that run on this machine."""
    return tuple(entry.spec for entry in discover())


def to_anthropic(tool: Tool, *, annotations: bool = False) -> Definition:
    """Return the definition for Anthropic's Messages API, which refuses `annotations`; other readers of the
    format take those of `to_mcp`."""
    definition = anthropic(tool.name, tool.description, dict(tool.input_schema))
    return {**definition, "annotations": to_mcp(tool)["annotations"]} if annotations else definition


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
        self._built = {name: as_built(tool) for name, tool in self._tools.items()}

    def register(
        self, tool: Tool | str, run: Callable[..., object] | None = None, **declared: Unpack[Declared]
    ) -> "ToolRegistry":
        """Return a registry that also contains this tool, or the tool of this name that calls
        `run(dictionary, context)` with any arguments.

        Raises:
            RegistrationError: the name is taken, or the tool is invalid.
        """
        if isinstance(tool, str):
            if run is None:
                raise RegistrationError(f"{tool} needs a function")
            takes: Schema = {"type": "object", "additionalProperties": True}
            tool = define_tool(tool, run.__doc__ or tool, run, takes, **declared)
        elif run is not None or declared:
            raise RegistrationError(f"{tool.name} is a tool already; declare in define_tool")
        if tool.name in self._tools:
            raise RegistrationError(f"there is a tool {tool.name} already")
        return ToolRegistry({**self._tools, tool.name: tool})

    def get(self, name: str) -> Tool:
        """Return a tool. Raises: KeyError: no tool has this name."""
        if name not in self._tools:
            raise KeyError(f"Unknown tool: {name}")
        return self._tools[name]

    async def execute(self, name: str, arguments: JsonValue, context: ToolContext) -> ToolResult:
        """Run one call, whose arguments may be JSON text, once they are valid and `check_permissions` permits
        it. Every failure becomes a result with an error, also an unknown tool."""
        if (tool := self._built.get(name)) is None:
            known = ", ".join(self._tools) or "none"
            return ToolResult(output=None, error=f"Unknown tool: {name}. There are: {known}.")
        if isinstance(arguments, str):
            try:
                # APIs send an empty text where a tool takes nothing.
                arguments = from_json(arguments or "{}", allow_inf_nan=False)
            except ValueError as error:
                return ToolResult(output=None, error=f"The arguments of {name} are not JSON: {error}.")
        if not isinstance(arguments, dict):
            return ToolResult(output=None, error=f"The arguments of {name} must be a JSON object.")
        return await tool.execute(arguments, context, checks_permissions=True)

    def runs_alone(self, name: str) -> bool:
        """Whether a call may change something, or must not run at the same time as others."""
        tool = self._built.get(name)
        return tool is not None and not (tool.is_read_only() and tool.is_concurrency_safe())

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


class ToolPool(tuple[Tool, ...]):
    """Selected tools, and messages about the selection."""

    diagnostics: tuple[str, ...]

    def __new__(cls, tools: Iterable[Tool] = (), diagnostics: Iterable[str] = ()) -> Self:
        made = super().__new__(cls, tools)
        made.diagnostics = tuple(diagnostics)
        return made


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
    return ToolPool((tool for tool in everything if id(tool) in kept), diagnostics)


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
    return ToolPool(kept, diagnostics)


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
        return ToolPool(tool for tool in tools if not levels or tool.name.casefold() in levels[-1])
