"""The handlers of resources, prompts, completion and subscriptions, and the server's own prompts; imported on
first use."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from mcp_toolserver.pipeline.call import InputRequired
from mcp_toolserver.protocol.handlers import Handlers, refuse_cursor
from mcp_toolserver.protocol.resources.own_resources import READ_FILE, RootFiles, completed, own_resources
from mcp_toolserver.protocol.resources.skills import SKILL_TOOL, Skills
from mcp_toolserver.protocol.resources.source import (
    PromptText,
    Reading,
    Refused,
    Source,
    UnaskedVisitor,
    Visitor,
    not_found,
)
from mcp_toolserver.protocol.resources.subscriptions import Subscriptions, change_notification
from mcp_toolserver.protocol.translate import UPSTREAMS_URI, Context
from mcp_toolserver.text.prompts import PROMPTS, Argument
from mcp_toolserver.tool_spec import Output, Runtime

if TYPE_CHECKING:
    from mcp_toolserver.protocol.resources.feature import ResourceFeature

PAGE = 50

COMPLETIONS = 100
"""Maximum values in one completion, set by the protocol."""

LONGEST = 4_000
"""Maximum characters of an argument of a prompt."""

_BRANCHES = "repo_overview"
"""The tool whose permission and rules apply to branch names."""

_FAULTS = frozenset({"internal", "timed_out", "unavailable"})
"""Errors that say nothing about the address."""


@dataclass(frozen=True, eq=False)
class ResourceHandlers:
    """Answers requests by asking the sources, in order; the first that knows an address or name decides."""

    feature: "ResourceFeature"

    @property
    def handlers(self) -> Handlers:
        return self.feature.handlers

    @cached_property
    def sources(self) -> Sequence[Source]:
        files = [RootFiles(roots=self.feature.roots)] if READ_FILE in self.handlers.offered else []
        own = (*own_resources(self.feature), *files, OwnPrompts(self.handlers))
        skills = [self.skills] if SKILL_TOOL in self.handlers.offered else []
        return (*own, *self.feature.sources, *self._upstreams(), *skills)

    def _upstreams(self) -> Sequence[Source]:
        if self.feature.upstreams is None:
            return ()
        # Few servers have any.
        from mcp_toolserver.protocol.upstreams.prompts import UpstreamPrompts
        from mcp_toolserver.protocol.upstreams.resources import UpstreamResources

        servers = self.feature.upstreams
        servers.on_news = self._on_news
        return UpstreamPrompts(self.handlers, servers), UpstreamResources(self.handlers, servers)

    def _on_news(self, server: str, uri: str) -> None:
        """A resource of an upstream server has changed; the list of them, if `uri` is empty."""
        from mcp_toolserver.protocol.upstreams.content import own_uri

        event = ResourceUpdated(own_uri(server, uri)) if uri else ResourcesListChanged()
        self.subscriptions.publish(change_notification(event))

    @cached_property
    def skills(self) -> Skills:
        return Skills(self.handlers)

    @cached_property
    def subscriptions(self) -> Subscriptions:
        feature = self.feature
        made = Subscriptions(self.handlers.client_ids, feature.changing, self._watch, feature.extra)
        made.unwatch = self._unwatch
        return made

    async def _watch(self, uri: str, context: Context) -> bool:
        visitor = UnaskedVisitor(self.handlers, context)
        return any([await source.watch(uri, visitor) for source in self.sources])

    def _unwatch(self, uri: str) -> None:
        for source in self.sources:
            source.unwatch(uri)

    async def list_resources(
        self, context: Context, params: mcp.PaginatedRequestParams
    ) -> mcp.ListResourcesResult:
        """One page, which starts after the last URI of the page before."""
        visitor = UnaskedVisitor(self.handlers, context)
        found = [resource for source in self.sources for resource in await source.listed(visitor)]
        start = _start(params.cursor, [resource.uri for resource in found])
        page = found[start : start + PAGE]
        more = start + PAGE < len(found)
        return mcp.ListResourcesResult(
            resources=page,
            next_cursor=base64.urlsafe_b64encode(page[-1].uri.encode()).decode() if more else None,
            ttl_ms=0,
            cache_scope="private",
        )

    async def list_templates(
        self, context: Context, params: mcp.PaginatedRequestParams
    ) -> mcp.ListResourceTemplatesResult:
        refuse_cursor(params)
        visitor = UnaskedVisitor(self.handlers, context)
        found = [template for source in self.sources for template in await source.templates(visitor)]
        if self.feature.upstreams is None:
            return mcp.ListResourceTemplatesResult(resource_templates=found)
        return mcp.ListResourceTemplatesResult(resource_templates=found, ttl_ms=0, cache_scope="private")

    async def read(self, context: Context, params: mcp.ReadResourceRequestParams) -> Reading:
        client = Visitor(self.handlers, context, params)
        try:
            with self.handlers.changes.on_behalf_of(client.owner):
                for source in self.sources:
                    if (found := await source.read(params.uri, client)) is not None:
                        return found
        except InputRequired:
            assert client.pending is not None
            return client.pending
        except Refused as refused:
            if refused.kind in _FAULTS:
                raise MCPError(mcp.INTERNAL_ERROR, str(refused), {"uri": params.uri}) from None
            raise not_found(params.uri, context, str(refused)) from None
        raise not_found(params.uri, context)

    async def list_prompts(
        self, context: Context, params: mcp.PaginatedRequestParams
    ) -> mcp.ListPromptsResult:
        """All on one page. Skills change with their files, other servers at any time, so a client keeps no
        list that may have something of them."""
        refuse_cursor(params)
        await self.handlers.dispatcher.registry.foreign.look()
        prompts = [prompt for source in self.sources for prompt in source.prompts()]
        if SKILL_TOOL in self.handlers.offered:
            prompts += await self.skills.prompts_for(context, {prompt.name for prompt in prompts})
        elif self.feature.upstreams is None:
            return mcp.ListPromptsResult(prompts=prompts)
        return mcp.ListPromptsResult(prompts=prompts, ttl_ms=0, cache_scope="private")

    async def get_prompt(self, context: Context, params: mcp.GetPromptRequestParams) -> PromptText:
        client = Visitor(self.handlers, context, params)
        try:
            for source in self.sources:
                if (found := await source.get_prompt(params, client)) is not None:
                    return found
        except InputRequired:
            assert client.pending is not None
            return client.pending
        raise MCPError(mcp.INVALID_PARAMS, "There is no such prompt. prompts/list names those there are.")

    async def complete(self, context: Context, params: mcp.CompleteRequestParams) -> mcp.CompleteResult:
        """Values that start with what was typed: paths, handles and branches that the client may see."""
        values = await self._values(params, UnaskedVisitor(self.handlers, context))
        completion = mcp.Completion(
            values=list(values[:COMPLETIONS]), total=len(values), has_more=len(values) > COMPLETIONS
        )
        return mcp.CompleteResult(completion=completion)

    async def _values(self, params: mcp.CompleteRequestParams, client: Visitor) -> Sequence[str]:
        argument = params.argument
        if isinstance(params.ref, mcp.PromptReference):
            name, kind = params.ref.name, "prompt"
        else:
            name, kind = params.ref.uri, "template"
        for source in self.sources:
            found = await source.complete(name, argument.name, argument.value, client)
            if found is not None:
                return found
        raise MCPError(mcp.INVALID_PARAMS, f"There is no such {kind}.")


def _start(cursor: str | None, uris: Sequence[str]) -> int:
    """The index at which the page of `cursor` starts; rejects one whose resource no longer exists."""
    if not cursor:
        return 0
    try:
        last = base64.urlsafe_b64decode(cursor.encode()).decode()
        # An upstream server may have ended meanwhile.
        return len(uris) if last not in uris and last.startswith(UPSTREAMS_URI) else uris.index(last) + 1
    except (ValueError, binascii.Error):
        raise MCPError(mcp.INVALID_PARAMS, "Invalid cursor") from None


@dataclass(frozen=True)
class OwnPrompts(Source):
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

    async def complete(self, name: str, argument: str, value: str, visitor: Visitor) -> Sequence[str] | None:
        if name not in {prompt.name for prompt in PROMPTS}:
            return None
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
    except (Refused, InputRequired):
        return ()
    return found.text.split()


async def _named(args: Any, rt: Runtime) -> Output:
    """Branch names, one a line; they contain no white space."""
    overview = await rt.git.overview(args.path)
    return Output("\n".join(branch.name for branch in overview.branches))
