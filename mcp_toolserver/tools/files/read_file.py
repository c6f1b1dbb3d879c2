"""Read a text file or an image. Lines come as number, tab, text. A long file comes in pages; the last line
says how to go on.
"""

from typing import BinaryIO

from mcp_toolserver.text.page import Page, page
from mcp_toolserver.tool import (
    Alias,
    Args,
    Capability,
    Field,
    Image,
    InvalidInput,
    Output,
    Permission,
    Profile,
    Runtime,
    ToolSpec,
    WorkspacePath,
)

_LINES = 2_000
_TEXT_BYTES = 199_000
"""Below the limit of the answer, which also holds the notes at its end."""
_WHOLE_BYTES = 10 * 1024 * 1024
_IMAGE_BYTES = 5 * 1024 * 1024
_HEAD_BYTES = 12


class ReadFile(Args):
    path: WorkspacePath = Field(description="File")
    offset: int = Field(default=0, ge=0, description="Lines to skip")
    limit: int | None = Field(default=None, ge=1, description=f"Lines to read ({_LINES})")


async def run(args: ReadFile, rt: Runtime) -> Output:
    return await rt.fs.read(args.path, lambda file, size: _shown(args, file, size))


def _shown(args: ReadFile, file: BinaryIO, size: int) -> Output:
    mime_type = _image_type(file.read(_HEAD_BYTES))
    file.seek(0)
    if mime_type is not None:
        return _image(args.path, mime_type, file, size)
    if size > _WHOLE_BYTES and args.limit is None:
        raise InvalidInput(
            f"'{args.path}' has {size} bytes. Set `limit` (and `offset`) to read a part of it, or find the "
            "place with grep_search."
        )
    found = page(file, size, skip=args.offset, take=args.limit or _LINES, max_bytes=_TEXT_BYTES)
    is_cut = found.cut_by_bytes or (args.limit is None and found.next_skip is not None)
    return Output(_text(found), truncated=is_cut)


def _image_type(head: bytes) -> str | None:
    if head.startswith(b"RIFF") and head[8:] == b"WEBP":
        return "image/webp"
    starts = {
        b"\x89PNG\r\n\x1a\n": "image/png",
        b"\xff\xd8\xff": "image/jpeg",
        b"GIF87a": "image/gif",
        b"GIF89a": "image/gif",
    }
    return next((mime_type for start, mime_type in starts.items() if head.startswith(start)), None)


def _image(path: str, mime_type: str, file: BinaryIO, size: int) -> Output:
    if size > _IMAGE_BYTES:
        raise InvalidInput(
            f"'{path}' is an image of {size} bytes, and at most {_IMAGE_BYTES} can be shown. Scale it down."
        )
    image = Image(data=file.read(_IMAGE_BYTES), mime_type=mime_type)
    return Output(f"{path}: {mime_type}, {size} bytes", images=(image,))


def _text(found: Page) -> str:
    numbered = (f"{number}\t{line}" for number, line in enumerate(found.lines, found.first))
    return "\n".join((*numbered, *_notes(found)))


def _notes(found: Page) -> list[str]:
    notes: list[str] = []
    if found.long_line is not None:
        notes.append(
            f"[line {found.first} has {found.long_line} bytes and is cut; grep_search finds parts of it]"
        )
    if about := _about(found):
        notes.append(f"[{about}]")
    if found.total == 0:
        notes.append("[the file is empty]")
    elif not found.lines:
        notes.append(f"[nothing at offset {found.first - 1}: the file has {found.total} lines]")
    elif found.next_skip is not None:
        notes.append(
            f"[lines {found.first}-{found.last} of {found.total}; go on with offset={found.next_skip}]"
        )
    return notes


def _about(found: Page) -> str:
    """What is unusual about the file and would matter to whoever changes it."""
    parts = [found.encoding] if found.encoding != "utf-8" else []
    if found.line_endings in ("CRLF", "mixed"):
        parts.append(f"{found.line_endings} line endings")
    return ", ".join(parts)


def _lines_before(number: int) -> int:
    """Lines to skip, from the number of the first line wanted; 0 means the start as well."""
    return max(number - 1, 0) if number >= 0 else number


TOOL = ToolSpec(
    name="read_file",
    description=__doc__ or "",
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.FS_READ}),
    args=ReadFile,
    run=run,
    kind="read",
    subjects=lambda args: (args.path,),
    idempotent=True,
    aliases=(
        Alias("read_file", renames={"file_path": "path"}),
        Alias("Read", renames={"file_path": "path"}, converts={"offset": _lines_before}),
        Alias("read", renames={"file_path": "path"}, converts={"offset": _lines_before}),
    ),
    profile=Profile.LEAN,
)
