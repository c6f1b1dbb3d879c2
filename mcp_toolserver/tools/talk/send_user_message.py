"""Send the user a message, such as progress or a result, without waiting for an answer. The result says if
the client took it. With `attachments`, the message also lists these files with their sizes; their content is
not sent.
"""

from datetime import UTC
from typing import Annotated, Literal

from mcp_toolserver import tool as t

_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".svg")


class SendUserMessage(t.Args):
    message: Annotated[str, t.Field(max_length=20_000), t.NotBlank] = t.Field(
        description="Text of the message"
    )
    attachments: t.WorkspacePaths = t.Field(default=(), max_length=20, description="Paths of files to list")
    status: Literal["normal", "proactive"] = t.Field(
        default="normal", description="`proactive` if the user did not ask for this message"
    )


async def run(args: SendUserMessage, rt: t.Runtime) -> t.Output:
    sizes = {path: await rt.fs.read(path, lambda _, size: size) for path in args.attachments}
    sent = (await rt.clock.now()).astimezone(UTC)
    attached = (
        f"Attached: {path} ({'picture, ' * path.lower().endswith(_PICTURES)}{size} bytes)"
        for path, size in sizes.items()
    )
    text = "\n".join((args.message, *attached))
    if not await rt.tell(text):
        return t.Output(f"Not sent: the client takes no messages now. Write this in your answer:\n{text}")
    return t.Output(
        f"Sent to the client ({args.status}) at {sent:%Y-%m-%dT%H:%M:%SZ}. It may not show it, so repeat in "
        f"your answer what the user must know:\n{text}"
    )


TOOL = t.ToolSpec(
    name="SendUserMessage",
    title="Send message to the user",
    needs=frozenset({t.Capability.TELL, t.Capability.FS_READ, t.Capability.CLOCK}),
    args=SendUserMessage,
    run=run,
    aliases=(t.Alias("Brief"),),
    deferred=True,
)
