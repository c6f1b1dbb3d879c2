"""Skills as prompts, which users call by name. The permission and the rules of the tool `Skill` apply."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from mcp_toolserver.errors import NotFound
from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.resources.source import LARGEST, Refused, UnaskedCaller, Visitor, Waiting
from mcp_toolserver.text.skills import skill_content
from mcp_toolserver.tool_spec import Output, Runtime

TOOL = "Skill"
"""The tool whose permission and rules apply."""

ARGUMENT = "args"

_Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, kw_only=True)
class SkillPrompts:
    """The skills that users can call."""

    handlers: Handlers
    is_offered: bool
    """Whether the server has the tool."""

    async def prompts(self, context: _Context, taken: Collection[str]) -> Sequence[mcp.Prompt]:
        """One for each skill whose name is not `taken`."""
        caller, _ = self.handlers.caller(context, mcp.InputResponseRequestParams())
        visitor = self._visitor(context, UnaskedCaller(caller))
        try:
            found = await visitor.call(TOOL, {}, OutputOverride(run=_cards, output_bytes=LARGEST))
        except Refused:
            return ()
        cards: Sequence[dict[str, str]] = json.loads(found.text)
        shown = self.handlers.dispatcher.shown
        return [
            _prompt({key: shown(value) for key, value in card.items()})
            for card in cards
            if card["name"] not in taken
        ]

    async def get(
        self, context: _Context, params: mcp.GetPromptRequestParams
    ) -> mcp.GetPromptResult | mcp.InputRequiredResult | None:
        """The text of a skill, which is active from now on; None if there is no such skill.

        Raises:
            MCPError: the arguments are wrong, or the skill cannot be used.
        """
        given = params.arguments or {}
        if unknown := sorted(given.keys() - {ARGUMENT}):
            raise MCPError(
                mcp.INVALID_PARAMS, f"A skill has no argument {unknown[0][:64]!r}; it takes {ARGUMENT}."
            )
        caller, asker = self.handlers.caller(context, params)
        visitor = self._visitor(context, caller)
        call = {"skill": params.name, ARGUMENT: given.get(ARGUMENT, "")}
        try:
            with self.handlers.changes.on_behalf_of(visitor.owner):
                found = await visitor.call(TOOL, call, OutputOverride(run=_text, output_bytes=LARGEST))
        except Waiting:
            assert asker.pending is not None
            return asker.pending
        except Refused as refused:
            if refused.kind == NotFound.kind:
                return None
            raise MCPError(mcp.INVALID_PARAMS, str(refused)) from None
        content = mcp.TextContent(type="text", text=found.text)
        return mcp.GetPromptResult(messages=[mcp.PromptMessage(role="user", content=content)])

    def _visitor(self, context: _Context, caller: Any) -> Visitor:
        owner = self.handlers.client_ids.id_for(context)
        return Visitor(context=context, owner=owner, dispatcher=self.handlers.dispatcher, caller=caller)


def _prompt(card: dict[str, str]) -> mcp.Prompt:
    hint = card["hint"] or "What the skill is to work on"
    return mcp.Prompt(
        name=card["name"],
        description=card["description"],
        arguments=[mcp.PromptArgument(name=ARGUMENT, description=hint, required=False)],
    )


async def _cards(_: Any, rt: Runtime) -> Output:
    index = await rt.skills.index()
    cards = [
        {"name": card.name, "description": card.description, "hint": card.argument_hint}
        for card in index.cards
        if card.user_invocable
    ]
    return Output(json.dumps(cards))


async def _text(args: Any, rt: Runtime) -> Output:
    skill = await rt.skills.open(args.skill)
    if not skill.card.user_invocable:
        raise NotFound("It is no prompt.")
    rt.skills.activate(skill, is_top_level=True)
    return Output(skill_content(skill, args.args))
