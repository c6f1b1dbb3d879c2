"""Call a tool that is not in your list, by a name that ToolSearch returned. Permissions and results are those
of that tool.
"""

from mcp_toolserver import tool as t


class CallTool(t.Args):
    name: str = t.Field(min_length=1, max_length=128, description="Name of the tool to call")
    arguments: dict[str, t.JsonValue] = t.Field(
        default_factory=dict, description="Arguments by the schema of that tool"
    )


TOOL = t.ToolSpec(
    name="CallTool",
    title="Call an unlisted tool",
    # The permission of the called tool applies; clients see the highest that any available tool needs.
    permission=t.Permission.DANGER_FULL_ACCESS,
    needs=frozenset(),
    args=CallTool,
    run=t.Forward(lambda args: (args.name, args.arguments)),
    destructive=True,
    aliases=(t.Alias("call_tool"),),
    profile=t.Profile.LEAN,
)
