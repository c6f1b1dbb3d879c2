"""Run a bash script, or a prompt as an agent, at set times while a server runs on this workspace: once each
time, also with several servers. Times without a server are missed, unless catch_up. A run has at most the
rights of this call, and nobody can be asked. It ends after an hour, a script after 10 minutes; until then no
other run of the schedule starts. CronList shows outcomes and output, CronDelete ends the schedule.
"""

from typing import Annotated

from mcp_toolserver import tool as t
from mcp_toolserver.text.cron import at, parse_cron


class CronCreate(t.Args):
    schedule: Annotated[str, t.AfterValidator(parse_cron)] = t.Field(
        description="Five cron fields, such as `30 2 * * MON-FRI`, or @hourly, @daily, @weekly, @monthly"
    )
    prompt: str = t.Field(default="", max_length=20_000, description="Instructions for an agent")
    command: str = t.Field(
        default="", max_length=20_000, description="Bash script to run instead of a prompt"
    )
    description: str = t.Field(default="", max_length=200, description="Name or purpose, for people")
    time_zone: str = t.Field(
        default="", max_length=100, description="IANA zone, such as Europe/Paris; default: the server's"
    )
    catch_up: bool = t.Field(
        default=False, description="Make up for the latest missed run, once, when a server runs again"
    )
    recurring: bool = t.Field(default=True, description="False: the schedule ends with its first run")

    @t.model_validator(mode="after")
    def _one_job(self) -> "CronCreate":
        if bool(self.prompt.strip()) == bool(self.command.strip()):
            raise ValueError("give either a prompt or a command, not both")
        return self


class Created(t.Record):
    cron_id: str
    schedule: str
    time_zone: str
    next_run_at: str


async def run(args: CronCreate, rt: t.Runtime) -> t.Output:
    kind, text = ("command", args.command) if args.command.strip() else ("prompt", args.prompt)
    made = await rt.cron.create(
        t.NewSchedule(
            fields=args.schedule,
            zone=args.time_zone,
            job=t.Job(kind=kind, text=text),
            description=args.description,
            catch_up=args.catch_up,
            once=not args.recurring,
        ),
        await rt.clock.now(),
    )
    following = "" if made.next is None else at(made.next)
    record = Created(cron_id=made.handle, schedule=made.fields, time_zone=made.zone, next_run_at=following)
    return t.Output(f"{made.handle}: {made.fields} in {made.zone}, next {following}", data=record)


TOOL = t.ToolSpec(
    name="CronCreate",
    title="Create schedule",
    args=CronCreate,
    run=run,
    needs=frozenset({t.Capability.CRON, t.Capability.SCHEDULES, t.Capability.CLOCK}),
    subjects=lambda _: (),
    script=lambda args: args.command,
    output=Created,
    aliases=(t.Alias("CronCreate", {"name": "description"}),),
)
