"""Read a resource of another MCP server that the operator configured: its text, or its picture."""

from mcp_toolserver import tool as t


class ReadMcpResource(t.Args):
    server: str = t.Field(min_length=1, max_length=64, description="Name of the server that has the resource")
    uri: str = t.Field(min_length=1, max_length=2_048, description="Address of it, from ListMcpResources")


async def run(args: ReadMcpResource, rt: t.Runtime) -> t.Output:
    return await rt.upstreams.read(args.server, args.uri)


TOOL = t.ToolSpec(
    name="ReadMcpResource",
    title="Read a resource of another server",
    needs=frozenset({t.Capability.UPSTREAMS}),
    args=ReadMcpResource,
    run=run,
    kind="read",
    subjects=lambda args: (args.server, args.uri),
    idempotent=True,
    aliases=(t.Alias("ReadMcpRes"), t.Alias("ReadMcpResourceTool")),
)
