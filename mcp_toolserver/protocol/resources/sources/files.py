"""Files in the roots, unchanged; the permission and rules of read_file apply."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import mcp_types as mcp

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.pipeline.call import OutputOverride, Result
from mcp_toolserver.protocol.resources.source import LARGEST, Refused, Visitor, text
from mcp_toolserver.protocol.resources.sources.path_completion import TOOL, completed
from mcp_toolserver.text.documents.file_type import image_type
from mcp_toolserver.tool_spec import Image, Output, Runtime

TEMPLATE = "file:///{+path}"

_ESCAPES = 10
"""Factor by which a text grows if all of it is escaped."""

_BINARY = "application/octet-stream"


@dataclass(frozen=True, kw_only=True)
class RootFiles:
    """Implements `Source`. Files are not listed; tools find them."""

    roots: Sequence[str]
    offered: Callable[[str], bool]
    """Whether the server has a tool of this name."""

    def listed(self, _: str) -> Sequence[mcp.Resource]:
        """None."""
        return ()

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        """See `Source.templates`."""
        if not self.offered(TOOL):
            return ()
        template = mcp.ResourceTemplate(
            name="file",
            uri_template=TEMPLATE,
            description="A whole file in the roots, unchanged.",
        )
        return [template]

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        """See `Source.read`."""
        if (path := path_of(uri)) is None or not self.offered(TOOL):
            return None
        output_override = OutputOverride(run=_read, output_bytes=LARGEST * _ESCAPES)
        return _content(uri, await visitor.call(TOOL, {"path": path}, output_override))

    def watched(self, _: str, __: str) -> bool:
        """Files are not watched."""
        return False

    async def complete(self, _: str, __: str, value: str, visitor: Visitor) -> Sequence[str]:
        """Paths without the leading slash, which is part of the template."""
        path = f"/{value.removeprefix('/')}"
        roots = [f"{root}/" for root in self.roots if f"{root}/" != path and f"{root}/".startswith(path)]
        found = roots or await completed(path, visitor)
        return [name.removeprefix("/") for name in found]


def path_of(uri: str) -> str | None:
    """The path of a local `file:` URI, decoded once; None for any other URI."""
    try:
        parts = urlsplit(uri)
        path = unquote(parts.path, errors="strict")
    except ValueError:
        return None
    local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return path if local and path.startswith("/") and not (parts.query or parts.fragment) else None


async def _read(args: Any, rt: Runtime) -> Output:
    return await rt.fs.read(args.path, lambda file, size: _whole(args.path, file, size))


def _whole(path: str, file: BinaryIO, size: int) -> Output:
    if size > LARGEST:
        raise InvalidInput(f"'{path}' has {size} bytes; read a part of it with read_file.")
    content = file.read(LARGEST)
    try:
        if b"\0" not in content:
            return Output(content.decode())
    except UnicodeDecodeError:
        pass
    return Output("", images=(Image(data=content, mime_type=image_type(content) or _BINARY),))


def _content(uri: str, result: Result) -> mcp.ReadResourceResult:
    for image in result.images:
        blob = base64.b64encode(image.data).decode()
        found = mcp.BlobResourceContents(uri=uri, blob=blob, mime_type=image.mime_type)
        return mcp.ReadResourceResult(contents=[found], ttl_ms=0, cache_scope="private")
    if len(result.text) > LARGEST:
        raise Refused("invalid_input", "With its escapes it is too long; read a part of it with read_file.")
    return text(uri, result.text)
