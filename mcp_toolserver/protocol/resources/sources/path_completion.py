"""Names in a folder that go on from what was typed, as far as rules let them be known."""

from collections.abc import Sequence
from typing import Any

from mcp_toolserver.capabilities.files import FolderQuery
from mcp_toolserver.dispatch import Form
from mcp_toolserver.protocol.source import Refused, Visitor, Waiting
from mcp_toolserver.spec import Output, Runtime

TOOL = "read_file"
"""The tool whose rights and rules hold."""

_LOOKED_AT = 5_000
"""Names of one folder; what a longer one holds beyond is not proposed."""

_BYTES = 4 << 20


async def completed(value: str, visitor: Visitor) -> Sequence[str]:
    """Paths that start with `value`; those of folders end with a slash.

    What is hidden, denied or not there is not named, and nobody is asked for the sake of a name.
    """
    folder, slash, start = value.rpartition("/")
    form = Form(run=lambda args, rt: _names(args, rt, start), output_bytes=_BYTES)
    try:
        found = await visitor.call(TOOL, {"path": folder or slash or "."}, form)
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
        # An escape stands for what cannot be shown; a path with it leads nowhere.
        and "\\" not in entry.name
    )
    return Output("\n".join(names))
