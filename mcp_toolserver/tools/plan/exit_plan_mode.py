"""Ask the user to approve the plan, and end plan mode if they do. The plan is `plan`, or else the plan file.
If they do not, or if nobody can be asked, plan mode goes on. Nothing else ends it.
"""

from typing import Literal

from mcp_toolserver import tool as t

_APPROVE = "Approve"
_REFUSE = "Keep planning"


class ExitPlanMode(t.Args):
    plan: str = t.Field(
        default="", max_length=20_000, description="The whole plan in Markdown (default: the plan file)"
    )
    plan_id: str = t.Field(
        default="", max_length=100, description="Id that EnterPlanMode returned (default: the session's)"
    )


class PlanDecision(t.Record):
    decision: Literal["approved", "refused"]
    active: bool
    plan: str


async def run(args: ExitPlanMode, rt: t.Runtime) -> t.Output:
    mode = await rt.plan.current(args.plan_id)
    plan = args.plan or await rt.plan.read()
    if not plan.strip():
        where = f"write it to {mode.path} first, or " if mode.may_write else ""
        raise t.InvalidInput(f"There is no plan to approve: {where}pass it as `plan`.")
    question = t.Question(
        text=f"Approve this plan, and let the agent carry it out?\n\n{plan}",
        header="Plan",
        choices=(
            t.Choice(label=_APPROVE, description="Plan mode ends"),
            t.Choice(label=_REFUSE, description="The agent can still only read"),
        ),
    )
    answers = await rt.ask([question])
    if answers[0] != (_APPROVE,):
        text = (
            "The user did not approve the plan; plan mode goes on. Ask what to change, or improve the plan."
        )
        return t.Output(text, data=PlanDecision(decision="refused", active=True, plan=plan))
    resumed = await rt.plan.leave(mode.handle)
    goes_on = f" Suspended programs go on ({len(resumed)}): {', '.join(resumed)}." if resumed else ""
    text = f"The user approved the plan, and plan mode has ended.{goes_on} Carry it out:\n\n{plan}"
    return t.Output(text, data=PlanDecision(decision="approved", active=False, plan=plan))


TOOL = t.ToolSpec(
    name="ExitPlanMode",
    title="Ask to approve the plan",
    needs=frozenset({t.Capability.PLAN, t.Capability.ASK}),
    args=ExitPlanMode,
    run=run,
    output=PlanDecision,
    limits=t.UNTIL_ANSWERED,
    aliases=(t.Alias("plan_exit"),),
    ignored={"approved": "only the user approves a plan"},
)
