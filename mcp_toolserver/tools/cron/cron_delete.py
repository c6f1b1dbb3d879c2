"""Delete a schedule of CronCreate with the record of its runs. A run in progress is stopped within seconds.
CronList shows the cron_id of each schedule.
"""

from mcp_toolserver.tool import (
    Alias,
    Args,
    Capability,
    Field,
    Output,
    Permission,
    Runtime,
    ToolSpec,
)


class CronDelete(Args):
    cron_id: str = Field(min_length=1, max_length=100, description="Schedule to delete")


async def run(args: CronDelete, rt: Runtime) -> Output:
    deleted = await rt.cron.delete(args.cron_id, await rt.clock.now())
    running = any(one.outcome == "running" for one in deleted.runs)
    stopped = ", and its run is being stopped." if running else "."
    return Output(f"{deleted.handle} ({deleted.fields}) is deleted{stopped}")


TOOL = ToolSpec(
    name="CronDelete",
    title="Delete schedule",
    description=__doc__ or "",
    args=CronDelete,
    run=run,
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.CRON, Capability.SCHEDULES, Capability.CLOCK}),
    kind="other",
    subjects=lambda args: (args.cron_id,),
    destructive=True,
    idempotent=True,
    aliases=(Alias("CronDelete", {"id": "cron_id"}),),
)
