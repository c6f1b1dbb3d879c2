"""Combines the tools of several sources without duplicate names, in a stable order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from mcp_toolserver.custom_tools.tool import Tool
from mcp_toolserver.errors import RegistrationError

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

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)


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
    denied = frozenset(map(_fold, deny_rules))
    sources = [
        sorted((tool for tool in source if _fold(tool.name) not in denied), key=lambda tool: tool.name)
        for source in (built_in, custom, mcp_tools)
    ]
    everything = [tool for source in sources for tool in source]
    winners: dict[str, Tool] = {}
    diagnostics: list[str] = []
    for tool in everything:
        before = winners.setdefault(_fold(tool.name), tool)
        if before is tool:
            continue
        if precedence == "error":
            raise RegistrationError(f"two tools are called {tool.name}")
        diagnostics.append(f"{tool.name}: there are two, and the {_WINS[precedence]} is taken")
        if precedence == "latest":
            winners[_fold(tool.name)] = tool
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
    names = {_fold(tool.name) for tool in given}
    wanted, unwanted = tuple(allowed or ()), tuple(disallowed or ())
    chosen = frozenset(map(_fold, wanted)) if wanted else names
    denied = frozenset(map(_fold, unwanted))
    kept = tuple(t for t in given if _fold(t.name) in chosen and _fold(t.name) not in denied)
    unknown = [name for name in (*wanted, *unwanted) if _fold(name) not in names]
    diagnostics = [f"no tool is called {name}" for name in unknown]
    if given and not kept:
        diagnostics.append("no tool is left: the lists allow none of them")
    return ToolPool(kept, tuple(diagnostics))


def _fold(name: str) -> str:
    return name.casefold()
