"""Tell what date and time it is now, in a given time zone or in that of the server."""

from datetime import UTC

from mcp_toolserver import tool as t


class CurrentDatetime(t.Args):
    timezone: str = t.Field(
        default="",
        max_length=100,
        description="IANA time zone, such as Europe/Paris; default: the server's time zone",
    )


async def run(args: CurrentDatetime, rt: t.Runtime) -> t.Output:
    now = await rt.clock.now(args.timezone)
    names = ", ".join(dict.fromkeys(name for name in (f"{now:%A}", args.timezone, now.tzname()) if name))
    there = now.isoformat(timespec="seconds")
    utc = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return t.Output(f"{there} ({names})\nUTC {utc}, Unix {int(now.timestamp())}")


TOOL = t.ToolSpec(
    name="current_datetime",
    title="Tell date and time",
    needs=frozenset({t.Capability.CLOCK}),
    args=CurrentDatetime,
    run=run,
)
