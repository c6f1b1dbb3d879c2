"""A bare shell server on the SDK: one tool that runs a command and returns its output, without any limits."""

import subprocess

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string", "description": "Shell command to run"}},
    "required": ["command"],
}
RUN = types.Tool(
    name="run_command",
    description="Run a shell command and return its output and exit status.",
    input_schema=SCHEMA,
)


async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[RUN])


async def call_tool(_context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Standard output and error together; what the command leaves in the background keeps running."""
    command = str((params.arguments or {})["command"])
    done = await anyio.run_process(
        ["/bin/bash", "-c", command], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False
    )
    status = "" if done.returncode == 0 else f"\n[exit status {done.returncode}]"
    text = done.stdout.decode("utf-8", "replace") + status
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def main() -> None:
    server = Server("shell", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
