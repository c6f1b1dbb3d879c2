"""Begin plan mode: until the user approves the plan, this session and its agents can only read, and write the
plan file. Use it before a change whose way the user should agree to. Running commands and interpreters that
can write are suspended until then, and tasks and schedules wait. It needs a client that can ask its user.
"""

from mcp_toolserver import tool as t


class EnterPlanMode(t.Args):
    pass


class PlanModeState(t.Record):
    active: bool
    changed: bool
    plan_id: str
    plan_path: str


async def run(args: EnterPlanMode, rt: t.Runtime) -> t.Output:
    try:
        await rt.ask([])
    except t.Unavailable:
        raise t.Unavailable(
            "Plan mode has not begun: it ends only when the user approves the plan, and nobody can be asked "
            "here. Show the plan in your answer, and end it with the question whether to carry it out."
        ) from None
    mode = await rt.plan.enter()
    begun = "Plan mode has begun" if mode.is_new else "This session is in plan mode already"
    how = f"write it to {mode.path} with write_file, or " if mode.may_write else ""
    text = (
        f"{begun} ({mode.handle}). Explore, and make a plan: {how}pass it to ExitPlanMode as `plan`. "
        "ExitPlanMode shows it to the user, whose approval alone ends plan mode. Tasks and schedules wait."
    )
    if mode.suspended:
        text += f" Suspended, because they can write ({len(mode.suspended)}): {', '.join(mode.suspended)}."
    if mode.stopped:
        text += f" Stopped, because they could not be suspended: {', '.join(mode.stopped)}."
    return t.Output(
        text,
        data=PlanModeState(active=True, changed=mode.is_new, plan_id=mode.handle, plan_path=mode.path),
    )


TOOL = t.ToolSpec(
    name="EnterPlanMode",
    title="Begin plan mode",
    needs=frozenset({t.Capability.PLAN, t.Capability.ASK}),
    args=EnterPlanMode,
    run=run,
    output=PlanModeState,
    idempotent=True,
    aliases=(t.Alias("plan"),),
)
