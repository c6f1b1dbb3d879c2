"""Files in the roots, as they are: read with the rights of read_file, and by the same rules."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import mcp_types as mcp

from mcp_toolserver.dispatch import Form, Result
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.protocol.source import LARGEST, Refused, Visitor, text
from mcp_toolserver.protocol.sources.names import TOOL, completed
from mcp_toolserver.spec import Image, Output, Runtime
from mcp_toolserver.text.kinds import image_type

TEMPLATE = "file:///{+path}"

_ESCAPES = 10
"""How much longer a text can become when all of it is shown as escapes."""

_BINARY = "application/octet-stream"


@dataclass(frozen=True, kw_only=True)
class RootFiles:
    """Implements `Source`. They are not listed; there are tools to find them with."""

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
            description="A file in the roots: the whole of it, as it is.",
        )
        return [template]

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        """See `Source.read`."""
        if (path := path_of(uri)) is None or not self.offered(TOOL):
            return None
        form = Form(run=_read, output_bytes=LARGEST * _ESCAPES)
        return _content(uri, await visitor.call(TOOL, {"path": path}, form))

    def watched(self, _: str, __: str) -> bool:
        """Nobody looks at files until they are read."""
        return False

    async def complete(self, _: str, __: str, value: str, visitor: Visitor) -> Sequence[str]:
        """Paths without the slash that the template has."""
        path = f"/{value.removeprefix('/')}"
        roots = [f"{root}/" for root in self.roots if f"{root}/" != path and f"{root}/".startswith(path)]
        found = roots or await completed(path, visitor)
        return [name.removeprefix("/") for name in found]


def path_of(uri: str) -> str | None:
    """The path that a `file:` address of this machine names, decoded once; None for any other address."""
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
