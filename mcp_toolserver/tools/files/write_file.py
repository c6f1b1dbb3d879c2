"""Create or overwrite a whole file, with missing parent folders, and return the diff. To change part of a
file, use edit_file.
"""

from mcp_toolserver.text.lines.encoding import detect
from mcp_toolserver.tool import (
    Alias,
    Args,
    Capability,
    Field,
    Output,
    Permission,
    Profile,
    Runtime,
    ToolSpec,
    WorkspacePath,
    Written,
)


class WriteFile(Args):
    path: WorkspacePath = Field(description="Path of the file, relative to the first root or absolute")
    content: str = Field(description="Whole new content, stored as UTF-8")
    expected_sha256: str | None = Field(
        default=None,
        pattern="^[0-9a-fA-F]{64}$",
        description="SHA-256 (hex) of the current file; if it differs, nothing is written",
    )


async def run(args: WriteFile, rt: Runtime) -> Output:
    written = await rt.fs.write(args.path, args.content.encode(), expected_sha256=args.expected_sha256)
    digest = {args.path: written.sha256}
    about = f"{args.path} ({len(written.after)} bytes)"
    if written.created:
        return Output(f"Created {about}.", sha256=digest)
    if written.after == written.before:
        return Output(f"Unchanged: {about} has this content already.", sha256=digest)
    diff = await rt.compute(lambda: _diff(args, written))
    return Output("\n".join((f"Updated {about}.", *_notes(written), diff)).rstrip("\n"), sha256=digest)


def _diff(args: WriteFile, written: Written) -> str:
    from mcp_toolserver.text.edit.unified_diff import unified

    encoding = detect(written.before)
    if encoding is None:
        return f"It replaced {len(written.before)} bytes that were not text."
    return unified(encoding.decode(written.before), args.content, args.path)


def _notes(written: Written) -> list[str]:
    """Changes other than the text."""
    old, new = detect(written.before), detect(written.after)
    notes: list[str] = []
    if old is not None and new is not None and written.before and old.name != new.name:
        notes.append(f"The encoding was {old.name} and is now {new.name}.")
    was, now = _line_endings(written.before), _line_endings(written.after)
    if was and now and was != now:
        notes.append(f"The line endings were {was} and are now {now}.")
    if written.links > 1:
        notes.append(f"The file had {written.links} hard links; the other names keep the old content.")
    return notes


def _line_endings(content: bytes) -> str:
    """Empty when there are none."""
    crlf, all_of_them = content.count(b"\r\n"), content.count(b"\n")
    if not all_of_them:
        return ""
    return "LF" if not crlf else "CRLF" if crlf == all_of_them else "mixed"


TOOL = ToolSpec(
    name="write_file",
    description=__doc__ or "",
    permission=Permission.WORKSPACE_WRITE,
    needs=frozenset({Capability.FS_WRITE}),
    args=WriteFile,
    run=run,
    kind="edit",
    subjects=lambda args: (args.path,),
    destructive=True,
    idempotent=True,
    aliases=(
        Alias("write_file", renames={"file_path": "path"}),
        Alias("Write", renames={"file_path": "path"}),
        Alias("write", renames={"file_path": "path"}),
    ),
    profile=Profile.LEAN,
)
