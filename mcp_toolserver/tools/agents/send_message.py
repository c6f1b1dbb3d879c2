"""Send a message to a running agent: by its name or id, to `leader` (the one who started you), or to `*`
(all). It reads the message before its next turn. You reach the agents that you started and those that were
started together with you. An agent that has ended reads nothing; resume it with Agent. Or write a line to the
standard input of a background command that was started with open_stdin, by its task id. Returns who got it.
"""

from typing import Annotated

from mcp_toolserver import tool as t


class SendMessage(t.Args):
    to: Annotated[str, t.Field(max_length=100), t.NotBlank] = t.Field(
        description="Name or id of an agent, `leader` or `*`; or id of a background command"
    )
    message: str = t.Field(
        min_length=1,
        max_length=20_000,
        description="Text of the message. To a command, \\n alone is Enter and \\u0004 alone ends the input",
    )


async def run(args: SendMessage, rt: t.Runtime) -> t.Output:
    return t.Output(f"Sent to {', '.join(await rt.jobs.send(args.to, args.message))}.")


TOOL = t.ToolSpec(
    name="SendMessage",
    title="Send message to agent or command",
    args=SendMessage,
    run=run,
    needs=frozenset({t.Capability.JOBS, t.Capability.TASK_RUNS}),
    subjects=lambda args: (args.to,),
)
