"""Call a tool that is not in your list, by a name that ToolSearch returned. Permissions and results are those
of that tool.
"""

from mcp_toolserver.tool import (
    Alias,
    Args,
    Field,
    Forward,
    JsonValue,
    Permission,
    ToolSpec,
)


class CallTool(Args):
    name: str = Field(min_length=1, max_length=128, description="Name of the tool to call")
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict, description="Arguments, as the schema of that tool describes them"
    )


TOOL = ToolSpec(
    name="CallTool",
    title="Call an unlisted tool",
    description=__doc__ or "",
    # The permission of the called tool applies; clients see the highest that any available tool needs.
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset(),
    args=CallTool,
    run=Forward(lambda args: (args.name, args.arguments)),
    kind="other",
    subjects=lambda _: (),
    destructive=True,
    aliases=(Alias("call_tool"),),
)
