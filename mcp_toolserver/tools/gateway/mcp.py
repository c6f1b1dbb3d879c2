"""Call a tool of another MCP server that the operator of this server configured. ToolSearch finds the tools
that are not in your list; ListMcpResources lists the servers and says which of them answer. Permissions and
results are those of the tool, whose listed name is `mcp__<server>__<tool>`.
"""

import re

from mcp_toolserver import tool as t


class MCP(t.Args):
    server: str = t.Field(min_length=1, max_length=64, description="Name of the server")
    tool: str = t.Field(min_length=1, max_length=128, description="Name of the tool on that server")
    arguments: dict[str, t.JsonValue] = t.Field(
        default_factory=dict, description="Arguments by the schema of that tool"
    )


def _target(args: MCP) -> tuple[str, dict[str, t.JsonValue]]:
    name = f"mcp__{args.server}__{args.tool.removeprefix(f'mcp__{args.server}__')}"
    return re.sub(r"[^A-Za-z0-9_-]", "_", name), args.arguments


TOOL = t.ToolSpec(
    name="MCP",
    title="Call a tool of another server",
    # The permission of the called tool applies; clients see the highest that any of them can need.
    permission=t.Permission.DANGER_FULL_ACCESS,
    needs=frozenset({t.Capability.UPSTREAMS}),
    args=MCP,
    run=t.Forward(_target, only_foreign=True),
    destructive=True,
    aliases=(t.Alias("MCPTool"),),
)
