"""What resources come from: any number of sources, each of which knows its own addresses.

A source that reads what a tool could read asks the dispatcher for it, as a call of that tool: rules, roots,
hidden paths, limits and the record are the same for both (`Visitor.call`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from pydantic import JsonValue

from mcp_toolserver.dispatch import Caller, Dispatcher, Form, Manner, Result

Reading = mcp.ReadResourceResult | mcp.InputRequiredResult

LARGEST = 10 * 1024 * 1024
"""Bytes of one resource; longer ones are read in slices with read_file."""


class Refused(Exception):
    """A call came to nothing, for the reason given in words."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class Waiting(Exception):
    """The client has to answer a question first."""


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """Who asks for a resource, a prompt or a completion."""

    context: ServerRequestContext[Any, Any]
    owner: str
    """Whose things are listed to them."""
    dispatcher: Dispatcher
    caller: Caller

    async def call(self, tool: str, arguments: Mapping[str, JsonValue], form: Form | None = None) -> Result:
        """Run a tool as if they had called it.

        Raises:
            Refused: it gave an error.
            Waiting: they have to answer a question first.
        """
        return _answered(await self.dispatcher.call(tool, arguments, self.caller, Manner(form=form)))


def _answered(result: Result) -> Result:
    if result.pending:
        raise Waiting
    if result.error is not None:
        raise Refused(result.error, result.text)
    return result


class Source(Protocol):
    """Resources of one kind."""

    def listed(self, owner: str, /) -> Sequence[mcp.Resource]:
        """What there is for this caller, what never goes away first, then the newest first."""
        ...

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        """Addresses with something to fill in."""
        ...

    async def read(self, uri: str, visitor: Visitor, /) -> Reading | None:
        """The resource; None for an address that is none of its own.

        Raises:
            Refused: it cannot be read.
            Waiting: as `Visitor.call`.
        """
        ...

    def watched(self, uri: str, owner: str, /) -> bool:
        """Whether changes of it are told."""
        ...

    async def complete(self, template: str, argument: str, value: str, visitor: Visitor, /) -> Sequence[str]:
        """Values for an argument of one of its templates that go on from `value`, best first."""
        ...


def text(
    uri: str, content: str, *, mime_type: str = "text/plain", ttl_ms: int = 0, public: bool = False
) -> mcp.ReadResourceResult:
    """A resource as text. `public`: every caller would get the same."""
    return mcp.ReadResourceResult(
        contents=[mcp.TextResourceContents(uri=uri, text=content, mime_type=mime_type)],
        ttl_ms=ttl_ms,
        cache_scope="public" if public else "private",
    )
