"""Send a message to a running agent: by its name or id, to `leader` (the one who started you), or to `*`
(all). It reads the message before its next turn. You reach the agents that you started and those that were
started together with you. An agent that has ended reads nothing; resume it with Agent. Returns who got it.
"""

from typing import Annotated

from mcp_toolserver.tool import Args, Capability, Field, Output, Permission, Runtime, ToolSpec
from mcp_toolserver.tools.agents.agent import NotBlank


class SendMessage(Args):
    to: Annotated[str, Field(max_length=100), NotBlank] = Field(
        description="Name or id of an agent, `leader` or `*`"
    )
    message: Annotated[str, Field(max_length=20_000), NotBlank] = Field(description="Text of the message")


async def run(args: SendMessage, rt: Runtime) -> Output:
    return Output(f"Sent to {', '.join(await rt.teams.send(args.to, args.message))}.")


TOOL = ToolSpec(
    name="SendMessage",
    title="Send message to agent",
    description=__doc__ or "",
    args=SendMessage,
    run=run,
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.TEAMS}),
    kind="other",
    subjects=lambda args: (args.to,),
)
