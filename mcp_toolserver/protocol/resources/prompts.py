"""The server's own prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as mcp
from mcp.shared.exceptions import MCPError

from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.resources.own_resources import completed
from mcp_toolserver.protocol.resources.source import Refused, Source, Visitor, Waiting
from mcp_toolserver.text.prompts import PROMPTS, Argument
from mcp_toolserver.tool_spec import Output, Runtime

LONGEST = 4_000
"""Maximum characters of an argument."""

_BRANCHES = "repo_overview"
"""The tool whose permission and rules apply to branch names."""


@dataclass(frozen=True)
class OwnPrompts(Source):
    """The server's own prompts."""

    handlers: Handlers

    def prompts(self) -> Sequence[mcp.Prompt]:
        return [
            mcp.Prompt(
                name=prompt.name,
                title=prompt.title,
                description=prompt.description,
                arguments=[
                    mcp.PromptArgument(
                        name=argument.name, description=argument.description, required=argument.required
                    )
                    for argument in prompt.arguments
                ],
            )
            for prompt in PROMPTS
        ]

    async def get_prompt(self, params: mcp.GetPromptRequestParams, _: Visitor) -> mcp.GetPromptResult | None:
        prompt = next((one for one in PROMPTS if one.name == params.name), None)
        if prompt is None:
            return None
        given = params.arguments or {}
        if wrong := _wrong({argument.name: argument for argument in prompt.arguments}, given):
            raise MCPError(mcp.INVALID_PARAMS, f"{prompt.name}: {wrong}")
        words = prompt.words(given, self.handlers.offered.__contains__)
        shown = self.handlers.dispatcher.shown(words)
        message = mcp.PromptMessage(role="user", content=mcp.TextContent(type="text", text=shown))
        return mcp.GetPromptResult(description=prompt.description, messages=[message])

    async def complete(self, name: str, argument: str, value: str, visitor: Visitor) -> Sequence[str]:
        known = (one for prompt in PROMPTS if prompt.name == name for one in prompt.arguments)
        match next((one.values for one in known if one.name == argument), "text"):
            case "path":
                return await completed(value, visitor)
            case "branch" if _BRANCHES in self.handlers.offered:
                return [name for name in await _branches(visitor) if name.startswith(value)]
            case _:
                return ()


def _wrong(known: Mapping[str, Argument], given: Mapping[str, str]) -> str:
    if missing := [name for name, one in known.items() if one.required and not given.get(name, "").strip()]:
        return f"{missing[0]} is required"
    if unknown := sorted(given.keys() - known.keys()):
        return f"there is no argument {unknown[0][:64]!r}; it takes {', '.join(known)}"
    long = [name for name, value in given.items() if len(value) > LONGEST]
    return f"{long[0]} has more than {LONGEST} characters" if long else ""


async def _branches(visitor: Visitor) -> Sequence[str]:
    """The names of branches, those with the newest commits first."""
    try:
        found = await visitor.call(_BRANCHES, {}, _named)
    except (Refused, Waiting):
        return ()
    return found.text.split()


async def _named(args: Any, rt: Runtime) -> Output:
    """Branch names, one a line; they contain no white space."""
    overview = await rt.git.overview(args.path)
    return Output("\n".join(branch.name for branch in overview.branches))
