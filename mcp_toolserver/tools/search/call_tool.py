"""Call a tool that is not in your list, by a name that ToolSearch found. It is as if you called that tool."""

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
    name: str = Field(min_length=1, max_length=128, description="Tool")
    arguments: dict[str, JsonValue] = Field(default_factory=dict, description="By its schema")


TOOL = ToolSpec(
    name="CallTool",
    description=__doc__ or "",
    # Of the other tool; what a client is told is the most that any tool on offer needs.
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset(),
    args=CallTool,
    run=Forward(lambda args: (args.name, args.arguments)),
    kind="other",
    subjects=lambda _: (),
    destructive=True,
    aliases=(Alias("call_tool"),),
)
