"""Replace the text on the user's clipboard. On Linux the text stays only while this server runs."""

from mcp_toolserver.tool import Args, Capability, Field, Output, Permission, Runtime, ToolSpec


class WriteClipboard(Args):
    text: str = Field(min_length=1, max_length=100_000, description="Text to put there")


async def run(args: WriteClipboard, rt: Runtime) -> Output:
    await rt.desktop.copy(args.text)
    return Output(f"{len(args.text)} characters are on the clipboard.")


TOOL = ToolSpec(
    name="write_clipboard",
    title="Write clipboard",
    description=__doc__ or "",
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.CLIPBOARD_WRITE}),
    args=WriteClipboard,
    run=run,
    kind="other",
    subjects=lambda _: (),
    destructive=True,
    idempotent=True,
)
