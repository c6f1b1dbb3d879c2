"""Calls of tools that the server makes itself: for an agent, a task or a schedule.

They pass every stage of the dispatcher, and never have more rights than the call that they are made for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.capabilities.user import Answers, ForeignQuestion, Question
from mcp_toolserver.errors import Denied, NobodyToAsk
from mcp_toolserver.pipeline.call import Caller, CallOptions, OutputOverride, Result, Rights
from mcp_toolserver.policy.dangerous_commands import objection
from mcp_toolserver.policy.rules import Narrowing, Request, Verdict
from mcp_toolserver.tool_spec import unheard

if TYPE_CHECKING:
    from pydantic import JsonValue

    from mcp_toolserver.capabilities.call_scope import Report
    from mcp_toolserver.capabilities.model import Model
    from mcp_toolserver.pipeline.dispatcher import Dispatcher
    from mcp_toolserver.pipeline.registry import Entry
    from mcp_toolserver.policy.client_restrictions import ClientRestrictions


@dataclass(frozen=True, kw_only=True)
class ServerCaller:
    """Implements `Caller` for calls without a client: nobody is asked, and messages go nowhere."""

    name: str
    owner: str
    folders: tuple[str, ...] | None = None
    """The folders that the calls may use; None for all roots of the server."""
    client: Caller | None = None
    """The client for which the calls are made: what it leaves out of its folders is lost to them too."""
    confined_to: ClientRestrictions | None = None
    """The restrictions of that client."""
    progress: Report = unheard
    model: Model | None = None
    """The model of that client, which answers until its call ends."""

    async def elicit(self, questions: Sequence[Question]) -> Answers:
        """Raises: NobodyToAsk."""
        raise NobodyToAsk

    async def forward(self, question: ForeignQuestion) -> None:
        """Raises: NobodyToAsk."""
        raise NobodyToAsk

    async def tell(self, message: str) -> bool:
        """Nobody listens."""
        return False

    async def ask(self, question: str) -> None:
        """Nobody can be asked."""

    async def report(self, message: str) -> None:
        """See `Caller.report`."""
        await self.progress(message)

    async def roots(self) -> Sequence[Sequence[str]]:
        """See `Caller.roots`."""
        now = () if self.client is None else await self.client.roots()
        return now if self.folders is None else (*now, self.folders)

    def restrictions(self) -> ClientRestrictions | None:
        """See `Caller.restrictions`."""
        return self.confined_to

    def sampling(self) -> Model | None:
        """See `Caller.sampling`."""
        return self.model


@dataclass(frozen=True, kw_only=True)
class NestedCalls:
    """Makes calls with at most the rights of the call, agent, task or schedule that they are made for."""

    dispatcher: Dispatcher
    caller: Caller
    rights: Rights
    """The rights, as far as they can be stored. Those of `caller` and what is in force for its owner apply
    in addition."""
    parent_id: str = ""
    """The id of the call that they are made for."""

    def require(self, request: Request, what: str) -> None:
        """Raises: Denied: the policy does not let these calls do, without a question, what this one does, or
        the check of dangerous commands objects.

        The error begins with the sentence `what`.
        """
        verdict = self.decide(request)
        if verdict.action != "run":
            raise Denied(f"{what} {verdict.reason}")
        if danger := objection(request.script):
            raise Denied(danger)

    def decide(self, request: Request) -> Verdict:
        """The decision of the policy on a call of these."""
        rights, policy = self.rights, self.dispatcher.project(self.dispatcher.policy)
        if rights.confined_to is not None:
            policy = policy.under(rights.confined_to)
        return policy.narrowed(rights.narrowings).decide(request)

    def limited(
        self,
        *,
        source: str,
        advice: str = "",
        ceiling: Permission = Permission.DANGER_FULL_ACCESS,
        tools: Sequence[str] | None = None,
    ) -> NestedCalls:
        """The same with fewer rights: at most `ceiling`, and only calls that a rule of `tools` allows.

        A rule is written as in the settings, `Tool` or `Tool(pattern)`; one that cannot be parsed or names
        an unknown tool allows nothing. None allows every tool.
        """
        rules = None if tools is None else self.dispatcher.rules(tools)
        narrowing = Narrowing(source=source, advice=advice, ceiling=ceiling, tools=rules)
        return replace(self, rights=self.rights.narrowed(narrowing))

    def detached(self, *, owner: str, name: str) -> NestedCalls:
        """The calls of an agent, which has handles of its own under `owner` and may outlive the request.

        They keep what is in force for the caller now and what is put for it later. Nobody is asked.
        """
        self.dispatcher.narrowings.adopt(owner, self.caller.owner)
        caller = ServerCaller(
            name=name,
            owner=owner,
            folders=self.rights.folders,
            client=self.caller,
            confined_to=self.rights.confined_to,
            model=self.caller.sampling(),
        )
        return replace(self, caller=caller, rights=replace(self.rights, depth=self.rights.depth + 1))

    def reporting(self, report: Report) -> NestedCalls:
        """The same, with the progress of the calls passed to `report`; for detached calls only."""
        assert isinstance(self.caller, ServerCaller)
        return replace(self, caller=replace(self.caller, progress=report))

    def entries(self) -> tuple[Entry, ...]:
        """The tools that these calls may use, by name; a rule with a pattern counts as the whole tool."""
        every = self.dispatcher.entries_for(self.caller.owner, self.rights.narrowings)
        if self.caller.sampling() is not None:
            return every
        return tuple([entry for entry in every if entry.spec.name not in self.dispatcher.without_model])

    def lacks(self, tool: str) -> str:
        """Why these calls cannot use `tool` later, when no client waits for them; empty if they can."""
        server = self.dispatcher
        if tool in server.without_model:
            return "nobody waits for it, so it needs a model that the operator configured"
        if any(entry.spec.name == tool for entry in self.entries()):
            return ""
        registry = server.registry
        entry = registry.entries.get(tool) or registry.foreign.entries.get(tool)
        if entry in server.available and tool in server.unlisted | registry.foreign.unlisted:
            return ""
        found = server.host.reasons(entry.spec.needs) if entry is not None else []
        return found[0].text if found else f"these calls may not use {tool} here"

    async def call(
        self,
        name: str,
        arguments: Mapping[str, JsonValue],
        *,
        output_override: OutputOverride | None = None,
    ) -> Result:
        """Run one call; see `Dispatcher.call`. It waits for the end of all work: nothing moves to the
        background unasked.

        Raises:
            UnknownTool: no tool has this name.
        """
        options = CallOptions(
            output_override=output_override,
            seconds_to_answer=math.inf,
            parent_id=self.parent_id,
            depth=self.rights.depth,
            narrowings=self.rights.narrowings,
        )
        with self.dispatcher.on_behalf_of(self.caller.owner):
            return await self.dispatcher.call(name, arguments, self.caller, options)


def calls_without_client(dispatcher: Dispatcher, rights: Rights, *, owner: str, name: str) -> NestedCalls:
    """Calls for what was stored with `rights`, such as a task or a schedule. `name` is for the records.

    The ceiling, the rules and the toolsets of the server apply as they are now, and the stored rights in
    addition.
    """
    caller = ServerCaller(
        name=name,
        owner=owner,
        folders=rights.folders,
        client=dispatcher.clients.get(LOCAL),
        confined_to=rights.confined_to,
    )
    return NestedCalls(dispatcher=dispatcher, caller=caller, rights=rights)
