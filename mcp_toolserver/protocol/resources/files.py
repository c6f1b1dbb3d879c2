"""Files in the roots, unchanged, and the completion of paths; the permission and rules of read_file apply."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import mcp_types as mcp

from mcp_toolserver.capabilities.files import FolderQuery
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.protocol.client_roots import file_path
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.resources.source import (
    BINARY,
    ESCAPES,
    LARGEST,
    Refused,
    Source,
    Visitor,
    Waiting,
    blob,
    decoded,
    text,
)
from mcp_toolserver.text.documents.file_type import image_type
from mcp_toolserver.tool_spec import Image, Output, Runtime

_TOOL = "read_file"
"""The tool whose permission and rules apply."""

_LOOKED_AT = 5_000
"""Maximum names read from one folder."""

_NAME_BYTES = 4 << 20
"""Maximum bytes of the names found in one folder."""


@dataclass(frozen=True, kw_only=True)
class RootFiles(Source):
    """Files are not listed; tools find them."""

    handlers: Handlers
    roots: Sequence[str]

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        if _TOOL not in self.handlers.offered:
            return ()
        description = "A whole file in the roots, unchanged."
        return [mcp.ResourceTemplate(name="file", uri_template="file:///{+path}", description=description)]

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        if (path := file_path(uri)) is None or _TOOL not in self.handlers.offered:
            return None
        result = await visitor.call(_TOOL, {"path": path}, _read, LARGEST * ESCAPES)
        for image in result.images:
            return blob(uri, image.data, image.mime_type)
        if len(result.text) > LARGEST:
            why = "With its escapes it is too long; read a part of it with read_file."
            raise Refused("invalid_input", why)
        return text(uri, result.text)

    async def complete(self, _: str, __: str, value: str, visitor: Visitor) -> Sequence[str]:
        """Paths without the leading slash, which is part of the template."""
        path = f"/{value.removeprefix('/')}"
        roots = [f"{root}/" for root in self.roots if f"{root}/" != path and f"{root}/".startswith(path)]
        found = roots or await completed(path, visitor)
        return [name.removeprefix("/") for name in found]


async def _read(args: Any, rt: Runtime) -> Output:
    return await rt.fs.read(args.path, lambda file, size: _whole(args.path, file, size))


def _whole(path: str, file: BinaryIO, size: int) -> Output:
    if size > LARGEST:
        raise InvalidInput(f"'{path}' has {size} bytes; read a part of it with read_file.")
    content = file.read(LARGEST)
    if (found := decoded(content)) is not None:
        return Output(found)
    return Output("", images=(Image(data=content, mime_type=image_type(content) or BINARY),))


async def completed(value: str, visitor: Visitor) -> Sequence[str]:
    """Paths that start with `value`; those of folders end with a slash.

    Hidden, denied and missing paths are omitted, and no question is asked.
    """
    folder, slash, start = value.rpartition("/")
    path = folder or slash or "."
    try:
        found = await visitor.call(
            _TOOL, {"path": path}, lambda args, rt: _names(args, rt, start), _NAME_BYTES
        )
    except (Refused, Waiting):
        return ()
    return [f"{folder}{slash}{name}" for name in found.text.split("\n") if name]


async def _names(args: Any, rt: Runtime, start: str) -> Output:
    query = FolderQuery(
        path=args.path,
        hidden=start.startswith("."),
        ignored=start.startswith("."),
        limit=_LOOKED_AT,
        each=_LOOKED_AT,
    )
    content = (await rt.fs.folders(query))["."]
    names = (
        f"{entry.name}/" if entry.kind == "folder" else entry.name
        for entry in content.entries
        if entry.name.startswith(start)
        and entry.kind in ("file", "folder")
        # A name with escapes is not the real name, so the path would not exist.
        and "\\" not in entry.name
    )
    return Output("\n".join(names))
