"""Replace the text on the user's clipboard. On Linux the text stays only while this server runs."""

from mcp_toolserver import tool as t


class WriteClipboard(t.Args):
    text: str = t.Field(min_length=1, max_length=100_000, description="Text to put there")


async def run(args: WriteClipboard, rt: t.Runtime) -> t.Output:
    await rt.desktop.copy(args.text)
    return t.Output(f"{len(args.text)} characters are on the clipboard.")


TOOL = t.ToolSpec(
    name="write_clipboard",
    title="Write clipboard",
    needs=frozenset({t.Capability.CLIPBOARD_WRITE}),
    args=WriteClipboard,
    run=run,
    destructive=True,
    idempotent=True,
)
