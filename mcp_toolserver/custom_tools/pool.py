"""Which tools there are: those of several sources, without double names, in an order that stays."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.library.values import Tool

Precedence = Literal["builtin", "latest", "error"]
"""Who wins a name that several sources have: the first of built-in, custom and MCP; the last; or nobody."""


@dataclass(frozen=True)
class ToolPool(Sequence[Tool]):
    """Tools, and what there is to say about how they were chosen."""

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
    """Built-in tools by name, then custom ones, then those of MCP servers, without those that are denied.

    So a tool that is added leaves those before it where they were. Names differ by more than their case.

    Raises:
        RegistrationError: with precedence "error", two sources have the same name.
    """
    denied = frozenset(map(_plain, deny_rules))
    sources = [
        sorted((tool for tool in source if _plain(tool.name) not in denied), key=lambda tool: tool.name)
        for source in (built_in, custom, mcp_tools)
    ]
    everything = [tool for source in sources for tool in source]
    winners: dict[str, Tool] = {}
    lost: list[str] = []
    for tool in everything:
        before = winners.setdefault(_plain(tool.name), tool)
        if before is tool:
            continue
        if precedence == "error":
            raise RegistrationError(f"two tools are called {tool.name}")
        lost.append(f"{tool.name}: there are two, and the {_WINS[precedence]} is taken")
        if precedence == "latest":
            winners[_plain(tool.name)] = tool
    kept = set(map(id, winners.values()))
    return ToolPool(tuple(tool for tool in everything if id(tool) in kept), tuple(lost))


_WINS = {"builtin": "first", "latest": "last"}


def filter_tools(
    tools: Iterable[Tool], allowed: Iterable[str] | None = None, disallowed: Iterable[str] | None = None
) -> ToolPool:
    """The tools that are allowed and not disallowed, whatever the case of their names.

    No list, or an empty one, allows everything; one that names no tool there is allows nothing, and says so.
    """
    given = tuple(tools)
    names = {_plain(tool.name) for tool in given}
    wanted, unwanted = tuple(allowed or ()), tuple(disallowed or ())
    chosen = frozenset(map(_plain, wanted)) if wanted else names
    denied = frozenset(map(_plain, unwanted))
    kept = tuple(t for t in given if _plain(t.name) in chosen and _plain(t.name) not in denied)
    unknown = [name for name in (*wanted, *unwanted) if _plain(name) not in names]
    said = [f"no tool is called {name}" for name in unknown]
    if given and not kept:
        said.append("no tool is left: the lists allow none of them")
    return ToolPool(kept, tuple(said))


def _plain(name: str) -> str:
    return name.casefold()
