"""Completes paths with the names in a folder that the rules allow."""

from collections.abc import Sequence
from typing import Any

from mcp_toolserver.capabilities.files import FolderQuery
from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.protocol.resources.source import Refused, Visitor, Waiting
from mcp_toolserver.tool_spec import Output, Runtime

TOOL = "read_file"
"""The tool whose permission and rules apply."""

_LOOKED_AT = 5_000
"""Maximum names read from one folder."""

_BYTES = 4 << 20


async def completed(value: str, visitor: Visitor) -> Sequence[str]:
    """Paths that start with `value`; those of folders end with a slash.

    Hidden, denied and missing paths are omitted, and no question is asked.
    """
    folder, slash, start = value.rpartition("/")
    output_override = OutputOverride(run=lambda args, rt: _names(args, rt, start), output_bytes=_BYTES)
    try:
        found = await visitor.call(TOOL, {"path": folder or slash or "."}, output_override)
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
