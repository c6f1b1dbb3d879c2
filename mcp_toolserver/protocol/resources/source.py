"""The interface of a resource source, which owns a set of URIs.

A source that reads what a tool could read calls that tool through the dispatcher (`Visitor.call`), so the
same rules, roots, hidden paths, limits and audit log apply.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from mcp_toolserver.pipeline.call import CallOptions, InputRequired, OutputOverride, Result
from mcp_toolserver.protocol.handlers import Client, Handlers
from mcp_toolserver.protocol.translate import Context, is_stateless
from mcp_toolserver.tool_spec import Image, Output, Runtime

Reading = mcp.ReadResourceResult | mcp.InputRequiredResult
PromptText = mcp.GetPromptResult | mcp.InputRequiredResult

LARGEST = 10 * 1024 * 1024
"""Maximum bytes of one resource; clients read longer ones in parts with read_file."""

ESCAPES = 10
"""Factor by which a text grows if all of it is escaped."""

BINARY = "application/octet-stream"

_NOT_FOUND = -32002
"""The error code of the handshake protocol; since 2026-07-28 it is "invalid params"."""


class Refused(Exception):
    """A call failed; the text is the reason."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class Visitor(Client):
    """The client that requests a resource, a prompt or a completion."""

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, JsonValue],
        run: Callable[[Any, Runtime], Awaitable[Output]] | None = None,
        output_bytes: int = LARGEST,
    ) -> Result:
        """Run a tool as if the client had called it; `run` replaces its function, see `OutputOverride`.

        Raises:
            Refused: the tool returned an error.
            InputRequired: the client has to answer a question first, which `pending` asks.
        """
        override = OutputOverride(run=run, output_bytes=output_bytes) if run else None
        options = CallOptions(output_override=override)
        result = await self.handlers.dispatcher.call(tool, arguments, self, options)
        if result.pending:
            raise InputRequired
        if result.error is not None:
            raise Refused(result.error, result.text)
        return result


class UnaskedVisitor(Visitor):
    """A visitor whose user is not asked questions, for the sake of a completion or a list."""

    def __init__(self, handlers: Handlers, context: Context) -> None:
        super().__init__(handlers, context, mcp.InputResponseRequestParams())

    def can_be_asked(self, request: mcp.ElicitRequest | None = None) -> bool:
        return False

    async def tell(self, message: str) -> bool:
        return False

    async def report(self, message: str) -> None:
        return


class Source(Protocol):
    """Resources or prompts of one origin."""

    async def listed(self, visitor: Visitor, /) -> Sequence[mcp.Resource]:
        """The resources of this client: permanent ones first, then the newest first."""
        return ()

    async def templates(self, visitor: Visitor, /) -> Sequence[mcp.ResourceTemplate]:
        return ()

    def prompts(self) -> Sequence[mcp.Prompt]:
        """All of them, always in the same order."""
        return ()

    async def read(self, uri: str, visitor: Visitor, /) -> Reading | None:
        """The resource; None for a URI of another source. Raises: see `Visitor.call`."""
        return None

    async def get_prompt(self, params: mcp.GetPromptRequestParams, visitor: Visitor, /) -> PromptText | None:
        """The text of a prompt; None for a name of another source. Raises: MCPError: it cannot be used so."""
        return None

    async def watch(self, uri: str, visitor: Visitor, /) -> bool:
        """Whether the client may subscribe to it; if so, its changes are announced from now on."""
        return False

    def unwatch(self, uri: str, /) -> None:
        """No client is subscribed to it any more."""

    async def complete(
        self, name: str, argument: str, value: str, visitor: Visitor, /
    ) -> Sequence[str] | None:
        """Values for an argument of one of its prompts or templates that start with `value`, best first; None
        for a name of another source."""
        return None


def text(
    uri: str, content: str, *, mime_type: str = "text/plain", ttl_ms: int = 0, public: bool = False
) -> mcp.ReadResourceResult:
    """A text resource. `public`: the same for every client."""
    return mcp.ReadResourceResult(
        contents=[mcp.TextResourceContents(uri=uri, text=content, mime_type=mime_type)],
        ttl_ms=ttl_ms,
        cache_scope="public" if public else "private",
    )


def decoded(content: bytes) -> str | None:
    """The text of a file; None if it is binary."""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def file_output(content: bytes, mime_type: str) -> Output:
    """The output of a call that reads a file: its text, or an image of `mime_type` if it is binary."""
    if (found := decoded(content)) is not None:
        return Output(found)
    return Output("", images=(Image(data=content, mime_type=mime_type),))


def file_resource(uri: str, result: Result, mime_type: str | None = None) -> mcp.ReadResourceResult:
    """The resource of a file, from the result of a call with `file_output`."""
    for image in result.images:
        encoded = base64.b64encode(image.data).decode()
        found = mcp.BlobResourceContents(uri=uri, blob=encoded, mime_type=mime_type or image.mime_type)
        return mcp.ReadResourceResult(contents=[found], ttl_ms=0, cache_scope="private")
    return text(uri, result.text, mime_type=mime_type or "text/plain")


def not_found(uri: str, context: Context, why: str = "") -> MCPError:
    """There is no such resource for this client."""
    code = mcp.INVALID_PARAMS if is_stateless(context) else _NOT_FOUND
    return MCPError(code, f"Resource not found. {why}".rstrip(), {"uri": uri})
