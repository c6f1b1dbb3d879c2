"""Pause until the user confirms: before a step that only they can judge or do. Returns their comment, or an
error if they stop you or nobody can be asked.
"""

from mcp_toolserver.tool import (
    Alias,
    Args,
    Capability,
    Choice,
    Denied,
    Field,
    Limits,
    Output,
    Permission,
    Question,
    Runtime,
    ToolSpec,
)

_LONGEST_WAIT = 3_600.0
"""Seconds; how long an answer may really take is the operator's to say, up to this."""

_GO, _STOP = "continue", "stop"


class PauseForHuman(Args):
    reason: str = Field(min_length=1, max_length=4_000, description="Reason for the pause, shown to the user")


async def run(args: PauseForHuman, rt: Runtime) -> Output:
    choices = (Choice(label=_GO), Choice(label=_STOP))
    decision, words = await rt.ask(
        (
            Question(text=args.reason, header="Paused", choices=choices),
            Question(text="Anything to add?", header="Remark", required=False),
        )
    )
    remark = f' They say: "{words[0]}"' if words else ""
    if decision != (_GO,):
        raise Denied(f"The user wants you to stop here.{remark}")
    return Output(f"The user lets you go on.{remark}")


TOOL = ToolSpec(
    name="pause_for_human",
    title="Wait for the user",
    description=__doc__ or "",
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.ASK}),
    args=PauseForHuman,
    run=run,
    kind="other",
    subjects=lambda args: (args.reason,),
    limits=Limits(deadline=_LONGEST_WAIT + 60),
    aliases=(Alias("pause_for_human", {"message": "reason"}),),
)
