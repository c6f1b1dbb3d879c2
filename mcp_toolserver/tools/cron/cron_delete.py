"""Delete a schedule of CronCreate with the record of its runs. A run in progress is stopped within seconds.
CronList shows the cron_id of each schedule.
"""

from mcp_toolserver import tool as t


class CronDelete(t.Args):
    cron_id: str = t.Field(min_length=1, max_length=100, description="Schedule to delete")


async def run(args: CronDelete, rt: t.Runtime) -> t.Output:
    deleted = await rt.cron.delete(args.cron_id, await rt.clock.now())
    running = any(one.outcome in ("waiting", "running") for one in deleted.runs)
    stopped = ", and its run is being stopped." if running else "."
    return t.Output(f"{deleted.handle} ({deleted.fields}) is deleted{stopped}")


TOOL = t.ToolSpec(
    name="CronDelete",
    title="Delete schedule",
    args=CronDelete,
    run=run,
    needs=frozenset({t.Capability.CRON, t.Capability.SCHEDULES, t.Capability.CLOCK}),
    subjects=lambda args: (args.cron_id,),
    destructive=True,
    idempotent=True,
    aliases=(t.Alias("CronDelete", {"id": "cron_id"}),),
)
