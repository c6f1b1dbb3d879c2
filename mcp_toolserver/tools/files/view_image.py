"""Show an image (PNG, JPEG, GIF or WebP) with its size in pixels. An image that models cannot read is
rejected with the reason.
"""

from typing import BinaryIO

from mcp_toolserver import tool as t
from mcp_toolserver.text.documents.file_type import HEAD_BYTES, MOST_BYTES, caption, image_type, other_type


class ViewImage(t.Args):
    path: t.WorkspacePath = t.Field(description="Path of the image, relative to the first root or absolute")


async def run(args: ViewImage, rt: t.Runtime) -> t.Output:
    return await rt.fs.read(args.path, lambda file, size: _shown(args.path, file, size))


def _shown(path: str, file: BinaryIO, size: int) -> t.Output:
    head = file.read(HEAD_BYTES)
    mime_type = image_type(head)
    if mime_type is None:
        what = f" but {known}" if (known := other_type(head)) else ""
        raise t.InvalidInput(
            f"'{path}' is no PNG, JPEG, GIF or WebP image{what}. Convert it, or use read_file for text."
        )
    data = head + file.read(MOST_BYTES)
    text = caption(path, data, mime_type, size)
    return t.Output(text, images=(t.Image(data=data, mime_type=mime_type),))


TOOL = t.ToolSpec(
    name="view_image",
    title="Show image",
    needs=frozenset({t.Capability.FS_READ}),
    args=ViewImage,
    run=run,
    kind="read",
    idempotent=True,
)
