"""Log in to another MCP server that the operator configured. Returns that the server accepts calls, or the
address of a page that the user has to open in a browser on the machine of this server. Show it to the user,
and call again: the second call waits for the end of the login.
"""

from mcp_toolserver import tool as t


class McpAuth(t.Args):
    server: str = t.Field(min_length=1, max_length=64, description="Name of the server that takes a login")


async def run(args: McpAuth, rt: t.Runtime) -> t.Output:
    return t.Output(await rt.upstreams.authorize(args.server))


TOOL = t.ToolSpec(
    name="McpAuth",
    title="Log in to another server",
    permission=t.Permission.DANGER_FULL_ACCESS,
    needs=frozenset({t.Capability.UPSTREAMS}),
    args=McpAuth,
    run=run,
    subjects=lambda args: (args.server,),
    idempotent=True,
    limits=t.Limits(deadline=120.0),
    profile=t.Profile.DEFAULT,
)
