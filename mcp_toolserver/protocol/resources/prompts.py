"""The handlers of prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.protocol.mcp_server import refuse_cursor
from mcp_toolserver.protocol.resources.skill_prompts import SkillPrompts
from mcp_toolserver.protocol.resources.source import LARGEST, Refused, Visitor, Waiting
from mcp_toolserver.protocol.resources.sources.path_completion import completed
from mcp_toolserver.text.prompts import PROMPTS, Argument, Prompt
from mcp_toolserver.tool_spec import Output, Runtime

LONGEST = 4_000
"""Maximum characters of an argument."""

_BRANCHES = "repo_overview"
"""The tool whose permission and rules apply to branch names."""

_Context = ServerRequestContext[Any, Any]

Given = mcp.GetPromptResult | mcp.InputRequiredResult


class PromptSource(Protocol):
    """Prompts of one origin."""

    def prompts(self) -> Sequence[mcp.Prompt]:
        """All of them, always in the same order."""
        ...

    async def get(self, context: _Context, params: mcp.GetPromptRequestParams, /) -> Given | None:
        """The text of a prompt; None for a name of another source.

        Raises:
            MCPError: its arguments are wrong.
        """
        ...

    async def complete(self, name: str, argument: str, value: str, visitor: Visitor, /) -> Sequence[str]:
        """Values for an argument of one of its prompts that start with `value`."""
        ...


@dataclass(frozen=True)
class Prompts:
    """Answers requests from the sources."""

    sources: Sequence[PromptSource]
    skills: SkillPrompts

    async def list_prompts(
        self, context: _Context, params: mcp.PaginatedRequestParams
    ) -> mcp.ListPromptsResult:
        """All on one page. Skills change with their files, so a client keeps no list that may have some."""
        refuse_cursor(params)
        prompts = [prompt for source in self.sources for prompt in source.prompts()]
        if not self.skills.is_offered:
            return mcp.ListPromptsResult(prompts=prompts)
        skills = await self.skills.prompts(context, {prompt.name for prompt in prompts})
        return mcp.ListPromptsResult(prompts=[*prompts, *skills], ttl_ms=0, cache_scope="private")

    async def get(self, context: _Context, params: mcp.GetPromptRequestParams) -> Given:
        """The text of a prompt."""
        for source in self.sources:
            if (found := await source.get(context, params)) is not None:
                return found
        if self.skills.is_offered and (found := await self.skills.get(context, params)) is not None:
            return found
        raise MCPError(mcp.INVALID_PARAMS, "There is no such prompt. prompts/list names those there are.")


@dataclass(frozen=True, kw_only=True)
class OwnPrompts:
    """The server's own prompts. Implements `PromptSource`."""

    offered: Callable[[str], bool]
    """Whether the server has a tool of this name."""
    shown: Callable[[str], str]
    """Redacts and escapes a text for output."""

    def prompts(self) -> Sequence[mcp.Prompt]:
        """See `PromptSource.prompts`."""
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

    async def get(self, _: _Context, params: mcp.GetPromptRequestParams) -> mcp.GetPromptResult | None:
        """See `PromptSource.get`."""
        prompt = next((one for one in PROMPTS if one.name == params.name), None)
        if prompt is None:
            return None
        words = prompt.words(_checked(prompt, params.arguments or {}), self.offered)
        message = mcp.PromptMessage(role="user", content=mcp.TextContent(type="text", text=self.shown(words)))
        return mcp.GetPromptResult(description=prompt.description, messages=[message])

    async def complete(self, name: str, argument: str, value: str, visitor: Visitor) -> Sequence[str]:
        """See `PromptSource.complete`."""
        known = (one for prompt in PROMPTS if prompt.name == name for one in prompt.arguments)
        match next((one.values for one in known if one.name == argument), "text"):
            case "path":
                return await completed(value, visitor)
            case "branch" if self.offered(_BRANCHES):
                return [name for name in await _branches(visitor) if name.startswith(value)]
            case _:
                return ()


def _checked(prompt: Prompt, given: Mapping[str, str]) -> Mapping[str, str]:
    """Raises: MCPError: one is missing, unknown or too long."""
    known = {argument.name: argument for argument in prompt.arguments}
    if wrong := _wrong(known, given):
        raise MCPError(mcp.INVALID_PARAMS, f"{prompt.name}: {wrong}")
    return given


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
        found = await visitor.call(_BRANCHES, {}, OutputOverride(run=_named, output_bytes=LARGEST))
    except (Refused, Waiting):
        return ()
    return found.text.split()


async def _named(args: Any, rt: Runtime) -> Output:
    """Branch names, one a line; they contain no white space."""
    overview = await rt.git.overview(args.path)
    return Output("\n".join(branch.name for branch in overview.branches))
