"""Read a text file, Jupyter notebook or image (PNG, JPEG, GIF, WebP). Each line of text comes as its number,
a tab and the line. A file of over 10 MiB needs limit.
"""

from dataclasses import replace
from io import BytesIO
from typing import BinaryIO

from mcp_toolserver import tool as t
from mcp_toolserver.text.documents.file_type import (
    HEAD_BYTES,
    MOST_BYTES,
    DocumentKind,
    caption,
    document_kind,
    image_type,
)
from mcp_toolserver.text.lines.page import Page, page

_LINES = 2_000
_WHOLE_BYTES = 10 * 1024 * 1024
_DOCUMENT_BYTES = 50 * 1024 * 1024


class ReadFile(t.Args):
    path: t.WorkspacePath = t.Field(description="Path of the file, relative to the first root or absolute")
    offset: int = t.Field(
        default=0,
        description="Lines to skip: 199 starts at line 200, -20 shows the last 20; cells of a notebook, "
        "pages of a PDF",
    )
    limit: int | None = t.Field(
        default=None,
        ge=1,
        description=f"Most lines, cells or pages to return; default for text: {_LINES} lines",
    )
    column: int = t.Field(default=0, ge=0, description="Bytes of a long first line to skip")


async def run(args: ReadFile, rt: t.Runtime) -> t.Output:
    room = rt.room.of_file
    found = await rt.fs.read(args.path, lambda file, size: _shown(args, file, size, room))
    return found if isinstance(found, t.Output) else await rt.compute(lambda: _document(args, room, *found))


def _shown(args: ReadFile, file: BinaryIO, size: int, room: t.Room) -> t.Output | tuple[DocumentKind, bytes]:
    """Show the file, or return a document that has to be parsed, which may take long."""
    head = file.read(HEAD_BYTES)
    file.seek(0)
    if (mime_type := image_type(head)) is not None:
        data = file.read(MOST_BYTES)
        image = t.Image(data=data, mime_type=mime_type)
        return t.Output(caption(args.path, data, mime_type, size), images=(image,))
    if (kind := document_kind(args.path, head)) is not None:
        if size > _DOCUMENT_BYTES:
            raise t.InvalidInput(
                f"'{args.path}' has {size} bytes, and documents of up to {_DOCUMENT_BYTES} bytes are taken "
                "apart. Ask the user for a smaller one, or for its text."
            )
        return kind, file.read(_DOCUMENT_BYTES)
    if size > _WHOLE_BYTES and args.limit is None and args.offset >= 0:
        raise t.InvalidInput(
            f"'{args.path}' has {size} bytes. Set `limit` (and `offset`) to read a part of it, or find the "
            "place with grep_search."
        )
    return _lines(args, file, room)


def _document(args: ReadFile, room: t.Room, kind: DocumentKind, content: bytes) -> t.Output:
    from mcp_toolserver.text.documents.documents import Shown, Wanted
    from mcp_toolserver.text.documents.documents import shown as taken_apart

    wanted = Wanted(skip=args.offset, take=args.limit, room=room.bytes, column=args.column)
    try:
        shown = taken_apart(kind, content, wanted)
    except t.ToolError as error:
        raise type(error)(f"'{args.path}' {error}.") from None
    if isinstance(shown, Shown):
        return t.Output(shown.text, images=shown.pictures, truncated=shown.truncated)
    text, note = shown
    output = _lines(args, BytesIO(text), room)
    return replace(output, text=f"{output.text}\n[{note}]") if note else output


def _lines(args: ReadFile, file: BinaryIO, room: t.Room) -> t.Output:
    skip = args.offset
    if skip < 0:
        skip = max(0, page(file, skip=0, take=1, max_bytes=room.bytes).total + skip)
        file.seek(0)
    take = int(min(args.limit or _LINES, room.lines))
    found = page(file, skip=skip, column=args.column, take=take, max_bytes=room.bytes)
    is_cut = found.cut_by_bytes or (args.limit != take and found.next_skip is not None)
    numbered = (f"{number}\t{line}" for number, line in enumerate(found.lines, found.first))
    return t.Output("\n".join((*numbered, *_notes(args, found))), truncated=is_cut)


def _notes(args: ReadFile, found: Page) -> list[str]:
    notes: list[str] = []
    if found.long_line is not None:
        end, size = found.long_line
        more = f"; go on inside it with offset={found.first - 1}, column={end}" if end < size else ""
        notes.append(f"[bytes {min(args.column, size)}-{end} of the {size} of line {found.first}{more}]")
    # What matters for editing.
    about = [found.encoding] * (found.encoding != "utf-8")
    about += [f"{found.line_endings} line endings"] * (found.line_endings in ("CRLF", "mixed"))
    if about:
        notes.append(f"[{', '.join(about)}]")
    if found.total == 0:
        notes.append("[the file is empty]")
    elif not found.lines:
        notes.append(f"[nothing at offset {found.first - 1}: the file has {found.total} lines]")
    elif found.next_skip is not None:
        notes.append(
            f"[lines {found.first}-{found.last} of {found.total}; go on with offset={found.next_skip}]"
        )
    return notes


def _lines_before(number: int) -> int:
    """Lines to skip, from the number of the first line wanted; 0 means the start as well."""
    return max(number - 1, 0) if number >= 0 else number


def _documents(host: t.HostFacts) -> str:
    *others, last = host.documents or ("",)
    return (
        last and f"Also reads the text of {' and '.join((*filter(None, [', '.join(others)]), last))} files."
    )


TOOL = t.ToolSpec(
    name="read_file",
    title="Read file",
    needs=frozenset({t.Capability.FS_READ}),
    args=ReadFile,
    run=run,
    kind="read",
    idempotent=True,
    host_note=_documents,
    aliases=(
        t.Alias("read_text_file"),
        t.Alias("Read", converts={"offset": _lines_before}),
        t.Alias("read", converts={"offset": _lines_before}),
    ),
    profile=t.Profile.LEAN,
)
