"""Completes arguments: paths, handles and branches that the client may see."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.resources.prompts import PromptSource
from mcp_toolserver.protocol.resources.source import Source, UnaskedCaller, Visitor

MOST = 100
"""Maximum values in one result, set by the protocol."""

_Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Completions:
    """Answers `completion/complete`."""

    handlers: Handlers
    sources: Sequence[Source]
    prompts: Sequence[PromptSource]

    async def complete(self, context: _Context, params: mcp.CompleteRequestParams) -> mcp.CompleteResult:
        """Values that start with what was typed."""
        caller, _ = self.handlers.caller(context, mcp.InputResponseRequestParams())
        owner = self.handlers.client_ids.id_for(context)
        visitor = Visitor(
            context=context, owner=owner, dispatcher=self.handlers.dispatcher, caller=UnaskedCaller(caller)
        )
        return _result(await self._values(params, visitor))

    async def _values(self, params: mcp.CompleteRequestParams, visitor: Visitor) -> Sequence[str]:
        ref, argument = params.ref, params.argument
        if isinstance(ref, mcp.PromptReference):
            for source in self.prompts:
                if any(prompt.name == ref.name for prompt in source.prompts()):
                    return await source.complete(ref.name, argument.name, argument.value, visitor)
            raise MCPError(mcp.INVALID_PARAMS, "There is no such prompt.")
        for source in self.sources:
            if any(template.uri_template == ref.uri for template in source.templates()):
                return await source.complete(ref.uri, argument.name, argument.value, visitor)
        raise MCPError(mcp.INVALID_PARAMS, "There is no such template.")


def _result(values: Sequence[str]) -> mcp.CompleteResult:
    completion = mcp.Completion(values=list(values[:MOST]), total=len(values), has_more=len(values) > MOST)
    return mcp.CompleteResult(completion=completion)
