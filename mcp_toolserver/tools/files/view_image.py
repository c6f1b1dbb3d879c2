"""Show an image (PNG, JPEG, GIF or WebP) with its size in pixels. An image that models cannot read is
rejected with the reason.
"""

from typing import BinaryIO

from mcp_toolserver.text.documents.file_type import HEAD_BYTES, image_type
from mcp_toolserver.text.documents.image import MOST_BYTES, MOST_PIXELS, other_type, pixels
from mcp_toolserver.tool import (
    Args,
    Capability,
    Field,
    Image,
    InvalidInput,
    Output,
    Permission,
    Runtime,
    ToolSpec,
    WorkspacePath,
)


class ViewImage(Args):
    path: WorkspacePath = Field(description="Path of the image, relative to the first root or absolute")


async def run(args: ViewImage, rt: Runtime) -> Output:
    return await rt.fs.read(args.path, lambda file, size: _shown(args.path, file, size))


def _shown(path: str, file: BinaryIO, size: int) -> Output:
    head = file.read(HEAD_BYTES)
    mime_type = image_type(head)
    if mime_type is None:
        what = f" but {known}" if (known := other_type(head)) else ""
        raise InvalidInput(
            f"'{path}' is no PNG, JPEG, GIF or WebP image{what}. Convert it, or use read_file for text."
        )
    if size > MOST_BYTES:
        raise InvalidInput(
            f"'{path}' is an image of {size} bytes, and at most {MOST_BYTES} can be shown. Scale it down."
        )
    data = head + file.read(MOST_BYTES)
    found = pixels(data, mime_type)
    if found is None or 0 in found:
        raise InvalidInput(f"'{path}' begins like {mime_type}, but is damaged or cut off.")
    width, height = found
    if max(found) > MOST_PIXELS:
        raise InvalidInput(
            f"'{path}' is {width} x {height} pixels, and at most {MOST_PIXELS} either way can be shown. "
            "Scale it down, or cut a part out."
        )
    text = f"{path}: {mime_type}, {width} x {height} pixels, {size} bytes"
    return Output(text, images=(Image(data=data, mime_type=mime_type),))


TOOL = ToolSpec(
    name="view_image",
    title="Show image",
    description=__doc__ or "",
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.FS_READ}),
    args=ViewImage,
    run=run,
    kind="read",
    subjects=lambda args: (args.path,),
    idempotent=True,
)
