"""Send a message to a running agent: by its name or id, to `leader` (the one who started you), or to `*`
(all). It reads the message before its next turn. You reach the agents that you started and those that were
started together with you. An agent that has ended reads nothing; resume it with Agent. Returns who got it.
"""

from typing import Annotated

from mcp_toolserver import tool as t


class SendMessage(t.Args):
    to: Annotated[str, t.Field(max_length=100), t.NotBlank] = t.Field(
        description="Name or id of an agent, `leader` or `*`"
    )
    message: Annotated[str, t.Field(max_length=20_000), t.NotBlank] = t.Field(
        description="Text of the message"
    )


async def run(args: SendMessage, rt: t.Runtime) -> t.Output:
    return t.Output(f"Sent to {', '.join(await rt.teams.send(args.to, args.message))}.")


TOOL = t.ToolSpec(
    name="SendMessage",
    title="Send message to agent",
    args=SendMessage,
    run=run,
    needs=frozenset({t.Capability.TEAMS}),
    subjects=lambda args: (args.to,),
)
