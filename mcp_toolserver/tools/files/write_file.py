"""Create or overwrite a whole file, with missing parent folders, and return the diff if it is short.
To change part of a file, use edit_file. The replaced content is kept for undo; the answer says how to
restore it.
"""

from mcp_toolserver import tool as t
from mcp_toolserver.text.lines.encoding import detect
from mcp_toolserver.text.undo_note import undo_notes


class WriteFile(t.Args):
    path: t.WorkspacePath = t.Field(description="Path of the file, relative to the first root or absolute")
    content: str | None = t.Field(
        default=None, min_length=0, description="Whole new content, stored as UTF-8; required without restore"
    )
    expected_sha256: str | None = t.Field(
        default=None,
        pattern="^[0-9a-fA-F]{64}$",
        description="SHA-256 (hex) of the current file; if it differs, nothing is written",
    )
    overwrite: bool = t.Field(
        default=False,
        description="Replace a file that was not read in this session even if most of its content goes",
    )
    restore: str | None = t.Field(
        default=None,
        max_length=64,
        description="Instead of content: id from an earlier answer, to put that previous content back",
    )

    append: t.SkipJsonSchema[bool] = t.Field(default=False, description="Put content at the end of the file")

    @t.model_validator(mode="after")
    def _one_source(self) -> "WriteFile":
        if (self.content is None) == (self.restore is None):
            raise ValueError("give content, which may be empty, or restore, and not both")
        if self.append and self.restore is not None:
            raise ValueError("append goes with content, not with restore")
        return self


async def run(args: WriteFile, rt: t.Runtime) -> t.Output:
    if args.restore is not None:
        written = await rt.fs.restore(args.path, args.restore, expected_sha256=args.expected_sha256)
    else:
        content = (args.content or "").encode()
        how = {"overwrite": args.overwrite, "append": args.append}
        written = await rt.fs.write(args.path, content, expected_sha256=args.expected_sha256, **how)
    digest = {args.path: written.sha256}
    about = f"{args.path} ({len(written.after)} bytes)"
    if written.created:
        return t.Output(f"Created {about}.", sha256=digest)
    if written.after == written.before:
        return t.Output(f"Unchanged: {about} has this content already.", sha256=digest)
    diff = await rt.compute(lambda: _diff(args, written))
    return t.Output(
        "\n".join((f"Updated {about}.", *_notes(args.path, written), diff)).rstrip("\n"), sha256=digest
    )


def _diff(args: WriteFile, written: t.Written) -> str:
    from mcp_toolserver.text.edit.unified_diff import ECHOED, unified

    old, new = detect(written.before), detect(written.after)
    if old is None or new is None:
        return f"It replaced {len(written.before)} bytes; the old or the new content is not text."
    before, after = old.decode(written.before), new.decode(written.after)
    diff = unified(before, after, args.path, limit=2 * ECHOED)
    if len(diff.encode()) <= ECHOED:
        return diff
    had, has = (len(text.splitlines()) for text in (before, after))
    return f"It had {had} lines and now has {has}; their diff is not shown."


def _notes(path: str, written: t.Written) -> list[str]:
    """Changes other than the text, and how to undo them."""
    old, new = detect(written.before), detect(written.after)
    notes = undo_notes(path, written)
    if written.previous and written.previous.path:
        notes.append(f"read_file shows the previous content: path {written.previous.path}")
    if old is not None and new is not None and written.before and old.name != new.name:
        notes.append(f"The encoding was {old.name} and is now {new.name}.")
    was, now = _line_endings(written.before), _line_endings(written.after)
    if was and now and was != now:
        notes.append(f"The line endings were {was} and are now {now}.")
    return notes


def _line_endings(content: bytes) -> str:
    """Empty when there are none."""
    crlf, all_of_them = content.count(b"\r\n"), content.count(b"\n")
    if not all_of_them:
        return ""
    return "LF" if not crlf else "CRLF" if crlf == all_of_them else "mixed"


def _after(args: WriteFile, before: bytes) -> bytes:
    return before * (args.append or args.content is None) + (args.content or "").encode()


TOOL = t.ToolSpec(
    name="write_file",
    title="Write file",
    needs=frozenset({t.Capability.FS_WRITE}),
    args=WriteFile,
    run=run,
    kind="edit",
    content_after=_after,
    destructive=True,
    idempotent=True,
    aliases=(t.Alias("Write"), t.Alias("write")),
    profile=t.Profile.LEAN,
)
