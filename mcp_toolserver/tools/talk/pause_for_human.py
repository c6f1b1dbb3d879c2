"""Pause until the user confirms: before a step that only they can judge or do. Returns their comment, or an
error if they stop you or nobody can be asked.
"""

from mcp_toolserver import tool as t

_GO, _STOP = "continue", "stop"


class PauseForHuman(t.Args):
    reason: str = t.Field(
        min_length=1, max_length=4_000, description="Reason for the pause, shown to the user"
    )


async def run(args: PauseForHuman, rt: t.Runtime) -> t.Output:
    choices = (t.Choice(label=_GO), t.Choice(label=_STOP))
    decision, words = await rt.ask(
        (
            t.Question(text=args.reason, header="Paused", choices=choices),
            t.Question(text="Anything to add?", header="Remark", required=False),
        )
    )
    remark = f' They say: "{words[0]}"' if words else ""
    if decision != (_GO,):
        raise t.Denied(f"The user wants you to stop here.{remark}")
    return t.Output(f"The user lets you go on.{remark}")


TOOL = t.ToolSpec(
    name="pause_for_human",
    title="Wait for the user",
    needs=frozenset({t.Capability.ASK}),
    args=PauseForHuman,
    run=run,
    subjects=lambda args: (args.reason,),
    limits=t.UNTIL_ANSWERED,
    aliases=(t.Alias("pause_for_human", {"message": "reason"}),),
)
