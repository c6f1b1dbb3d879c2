"""List the schedules of CronCreate: cron_id, job, next and missed runs, and the outcomes of the last ones.
With a cron_id, the output of each stored run of that schedule: the last 20 runs, 8,000 bytes each at most.
"""

from mcp_toolserver import tool as t
from mcp_toolserver.text.cron import at, detailed, listed


class CronList(t.Args):
    cron_id: str = t.Field(
        default="", max_length=100, description="Show this schedule alone, with the output of its runs"
    )


class Crons(t.Record):
    crons: tuple[dict[str, t.JsonValue], ...]
    count: int


async def run(args: CronList, rt: t.Runtime) -> t.Output:
    found = await rt.cron.all(await rt.clock.now())
    if args.cron_id:
        found = tuple(one for one in found if one.handle == args.cron_id)
        if not found:
            raise t.NotFound("There is no such schedule. Call CronList without cron_id to see all.")
    text = "\n\n".join(map(detailed if args.cron_id else listed, found)) or "There are no schedules."
    return t.Output(text, data=Crons(crons=tuple(map(_record, found)), count=len(found)))


def _record(schedule: t.Schedule) -> dict[str, t.JsonValue]:
    last = schedule.runs[0] if schedule.runs else None
    return {
        "cron_id": schedule.handle,
        "schedule": schedule.fields,
        "time_zone": schedule.zone,
        "description": schedule.description,
        "next_run_at": None if schedule.next is None else at(schedule.next),
        "run_count": schedule.run_count,
        "last_run_at": None if last is None or last.started is None else at(last.started),
        "last_outcome": None if last is None else last.outcome,
        "missed": schedule.missed,
        "created_at": at(schedule.created),
    }


TOOL = t.ToolSpec(
    name="CronList",
    title="List schedules",
    args=CronList,
    run=run,
    needs=frozenset({t.Capability.CRON, t.Capability.CLOCK}),
    subjects=lambda args: (args.cron_id,) if args.cron_id else (),
    output=Crons,
    idempotent=True,
)
