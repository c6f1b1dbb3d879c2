"""List the resources of other MCP servers that the operator configured, and their templates: address, name
and description. Without `server`, of all of them. It also says which servers answer.
"""

from mcp_toolserver import tool as t


class ListMcpResources(t.Args):
    server: str = t.Field(default="", max_length=64, description="Name of a single server; empty for all")


async def run(args: ListMcpResources, rt: t.Runtime) -> t.Output:
    return t.Output(await rt.upstreams.resources(args.server))


TOOL = t.ToolSpec(
    name="ListMcpResources",
    title="List resources of other servers",
    needs=frozenset({t.Capability.UPSTREAMS}),
    args=ListMcpResources,
    run=run,
    kind="read",
    subjects=lambda args: (args.server,),
    idempotent=True,
    aliases=(t.Alias("ListMcpRes"), t.Alias("ListMcpResourcesTool")),
)
