"""Compare two text files and return a unified diff that patch and apply_patch accept. Equal files are
reported as equal. For changes in a repository, use the git tools.
"""

from typing import BinaryIO

from mcp_toolserver import tool as t
from mcp_toolserver.text.lines.encoding import detect

_WHOLE_BYTES = 10 * 1024 * 1024
_DIFF_BYTES = 199_000


class Diff(t.Args):
    path: t.WorkspacePath = t.Field(description="Path of the old file")
    other_path: t.WorkspacePath = t.Field(description="Path of the new file")


async def run(args: Diff, rt: t.Runtime) -> t.Output:
    old = await rt.fs.read(args.path, lambda file, size: _whole(args.path, file, size))
    new = await rt.fs.read(args.other_path, lambda file, size: _whole(args.other_path, file, size))
    if old == new:
        return t.Output("The files are identical.")
    return t.Output(await rt.compute(lambda: _text(args, old, new)))


def _whole(path: str, file: BinaryIO, size: int) -> bytes:
    if size > _WHOLE_BYTES:
        raise t.InvalidInput(
            f"'{path}' has {size} bytes; files of up to {_WHOLE_BYTES} can be compared. Look at parts of it "
            "with read_file."
        )
    return file.read(_WHOLE_BYTES)


def _text(args: Diff, old: bytes, new: bytes) -> str:
    from mcp_toolserver.text.edit.unified_diff import unified

    encodings = detect(old), detect(new)
    if encodings[0] is None or encodings[1] is None:
        return f"The files differ. Not both are text; they have {len(old)} and {len(new)} bytes."
    before, after = encodings[0].decode(old), encodings[1].decode(new)
    diff = unified(before, after, args.path, to=args.other_path, limit=_DIFF_BYTES)
    names = encodings[0].name, encodings[1].name
    if names[0] == names[1]:
        return diff
    note = f"[{args.path} is {names[0]}, {args.other_path} is {names[1]}]"
    return f"{diff}{note}" if diff else f"The text is the same, but not its encoding.\n{note}"


TOOL = t.ToolSpec(
    name="diff",
    title="Compare two files",
    needs=frozenset({t.Capability.FS_READ}),
    args=Diff,
    run=run,
    kind="read",
    idempotent=True,
    aliases=(t.Alias("diff", renames={"a": "path", "b": "other_path"}),),
)
