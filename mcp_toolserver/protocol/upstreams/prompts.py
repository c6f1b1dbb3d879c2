"""The prompts of upstream servers among those of this one."""

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from mcp_toolserver.gateway.definitions import is_clear
from mcp_toolserver.pipeline.call import InputRequired
from mcp_toolserver.policy.rules import FOREIGN
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.resources.handlers import COMPLETIONS, LONGEST
from mcp_toolserver.protocol.resources.source import PromptText, Refused, Source, Visitor
from mcp_toolserver.protocol.upstreams.servers import UpstreamServers, own_name
from mcp_toolserver.text.lines.escape_invisible import visible
from mcp_toolserver.tool_spec import Image, Output, Runtime

READ = "ReadMcpResource"
_MOST_PROMPTS = 100
"""Of a server; and the most arguments of a prompt."""
_LONGEST_TEXT = 500
"""Of a description."""
_MOST_BYTES = 256 * 1024


@dataclass(frozen=True)
class UpstreamPrompts(Source):
    """The prompts `mcp__SERVER__NAME`. Users pick them, so they need no more than reading a resource of the
    server: the rules, the level and the audit entry are those of `ReadMcpResource`, with the URI
    `prompt:NAME`."""

    handlers: Handlers
    servers: UpstreamServers

    def prompts(self) -> Sequence[mcp.Prompt]:
        return [_shown(name, server, prompt) for name, (server, prompt) in self._known().items()]

    async def get_prompt(self, params: mcp.GetPromptRequestParams, visitor: Visitor) -> PromptText | None:
        if not params.name.startswith(FOREIGN):
            return None
        given = params.arguments or {}
        if any(len(text) > LONGEST for text in (*given, *given.values())):
            raise MCPError(
                mcp.INVALID_PARAMS, f"{params.name}: an argument has more than {LONGEST} characters"
            )
        await self.servers.look()
        if (known := self._known().get(params.name)) is None:
            return None
        server, prompt = known

        async def run(_: Any, rt: Runtime) -> Output:
            return await rt.upstreams.prompt(server, prompt.name, given)

        try:
            found = await visitor.call(READ, _asked(server, prompt), run, _MOST_BYTES)
        except Refused as refused:
            raise MCPError(mcp.INVALID_PARAMS, str(refused)) from None
        content: list[mcp.ContentBlock] = [mcp.TextContent(text=found.text), *map(_picture, found.images)]
        return mcp.GetPromptResult(messages=[mcp.PromptMessage(role="user", content=one) for one in content])

    async def complete(self, name: str, argument: str, value: str, visitor: Visitor) -> Sequence[str] | None:
        if (known := self._known().get(name)) is None:
            return None
        server, prompt = known
        reference = mcp.PromptReference(name=prompt.name)
        return await completions(visitor, _asked(server, prompt), reference, argument, value)

    def _known(self) -> Mapping[str, tuple[str, mcp.Prompt]]:
        """The prompts with their servers, by the names that they have here."""
        found: dict[str, tuple[str, mcp.Prompt]] = {}
        if READ not in self.handlers.offered:
            return found
        for name, server in self.servers.servers.items():
            every = [mcp.Prompt.model_validate(one) for one in server.prompts[:_MOST_PROMPTS]]
            for prompt in every:
                arguments = prompt.arguments or ()
                if len(arguments) <= _MOST_PROMPTS and all(is_clear(one.name) for one in arguments):
                    found[own_name(name, prompt.name, found)] = name, prompt
        return found


async def completions(
    visitor: Visitor,
    asked: Mapping[str, JsonValue],
    of: mcp.PromptReference | mcp.ResourceTemplateReference,
    argument: str,
    value: str,
) -> Sequence[str]:
    """What a server proposes, as a call of the tool with these arguments; nothing if it is refused."""
    found: list[str] = []

    async def run(args: Any, rt: Runtime) -> Output:
        found.extend(await rt.upstreams.completions(args.server, of, argument, value))
        return Output("")

    with suppress(Refused, InputRequired):
        await visitor.call(READ, asked, run)
    return [one for one in found if is_clear(one)][:COMPLETIONS]


def _shown(name: str, server: str, prompt: mcp.Prompt) -> mcp.Prompt:
    """The prompt for clients: bounded, and nothing hidden."""
    arguments = [
        mcp.PromptArgument(name=one.name, description=clipped(one.description), required=one.required)
        for one in prompt.arguments or ()
    ]
    text = clipped(f"[{server}] {prompt.description or prompt.title or prompt.name}")
    return mcp.Prompt(name=name, description=text, arguments=arguments)


def clipped(text: str | None) -> str:
    return visible((text or "")[:_LONGEST_TEXT])


def _asked(server: str, prompt: mcp.Prompt) -> dict[str, JsonValue]:
    return {"server": server, "uri": f"prompt:{prompt.name}"}


def _picture(image: Image) -> mcp.ImageContent:
    return mcp.ImageContent(data=base64.b64encode(image.data).decode(), mime_type=image.mime_type)
