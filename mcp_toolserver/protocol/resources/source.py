"""The interface of a resource source, which owns a set of URIs.

A source that reads what a tool could read calls that tool through the dispatcher (`Visitor.call`), so the
same rules, roots, hidden paths, limits and audit log apply.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from pydantic import JsonValue

from mcp_toolserver.capabilities.user import Answers, Question
from mcp_toolserver.errors import NobodyToAsk
from mcp_toolserver.pipeline.call import Caller, CallOptions, OutputOverride, Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher

Reading = mcp.ReadResourceResult | mcp.InputRequiredResult

LARGEST = 10 * 1024 * 1024
"""Maximum bytes of one resource; clients read longer ones in parts with read_file."""


class Refused(Exception):
    """A call failed; the text is the reason."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class Waiting(Exception):
    """The client has to answer a question first."""


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """The client that requests a resource, a prompt or a completion."""

    context: ServerRequestContext[Any, Any]
    owner: str
    """The id of the client, which owns handles."""
    dispatcher: Dispatcher
    caller: Caller

    async def call(
        self, tool: str, arguments: Mapping[str, JsonValue], output_override: OutputOverride | None = None
    ) -> Result:
        """Run a tool as if the client had called it.

        Raises:
            Refused: the tool returned an error.
            Waiting: the client has to answer a question first.
        """
        return _answered(
            await self.dispatcher.call(
                tool, arguments, self.caller, CallOptions(output_override=output_override)
            )
        )


def _answered(result: Result) -> Result:
    if result.pending:
        raise Waiting
    if result.error is not None:
        raise Refused(result.error, result.text)
    return result


class UnaskedCaller:
    """A client whose user is not asked questions, as for the sake of a completion or a list."""

    def __init__(self, caller: Caller) -> None:
        self.name = caller.name
        self.owner = caller.owner
        self.roots = caller.roots
        self.restrictions = caller.restrictions
        self.sampling = caller.sampling

    async def ask(self, question: str) -> bool:
        return False

    async def elicit(self, questions: Sequence[Question]) -> Answers:
        raise NobodyToAsk

    async def tell(self, message: str) -> bool:
        return False

    async def report(self, message: str) -> None:
        return


class Source(Protocol):
    """Resources of one kind."""

    def listed(self, owner: str, /) -> Sequence[mcp.Resource]:
        """The resources of this client: permanent ones first, then the newest first."""
        ...

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        """The URI templates."""
        ...

    async def read(self, uri: str, visitor: Visitor, /) -> Reading | None:
        """The resource; None for a URI of another source.

        Raises:
            Refused: it cannot be read.
            Waiting: see `Visitor.call`.
        """
        ...

    def watched(self, uri: str, owner: str, /) -> bool:
        """Whether a client may subscribe to it."""
        ...

    async def complete(self, template: str, argument: str, value: str, visitor: Visitor, /) -> Sequence[str]:
        """Values for an argument of one of its templates that start with `value`, best first."""
        ...


def text(
    uri: str, content: str, *, mime_type: str = "text/plain", ttl_ms: int = 0, public: bool = False
) -> mcp.ReadResourceResult:
    """A text resource. `public`: the same for every client."""
    return mcp.ReadResourceResult(
        contents=[mcp.TextResourceContents(uri=uri, text=content, mime_type=mime_type)],
        ttl_ms=ttl_ms,
        cache_scope="public" if public else "private",
    )
