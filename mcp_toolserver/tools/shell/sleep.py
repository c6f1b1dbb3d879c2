"""Wait for a fixed time. To wait for a background command, use TaskOutput with wait_ms."""

from mcp_toolserver import tool as t

_MOST = 300_000
_STEP = 1.0
"""Seconds between two words to the client, who may take silence for a fault."""


class Sleep(t.Args):
    duration_ms: int = t.Field(ge=0, le=_MOST, description="Milliseconds to wait; at most 300000")


async def run(args: Sleep, rt: t.Runtime) -> t.Output:
    total = args.duration_ms / 1000
    slept = 0.0
    while slept < total:
        await rt.report(f"slept {slept:.0f} of {total:g} s")
        step = min(_STEP, total - slept)
        await rt.clock.sleep(step)
        slept += step
    return t.Output(f"Slept for {args.duration_ms}ms")


TOOL = t.ToolSpec(
    name="Sleep",
    title="Wait",
    needs=frozenset({t.Capability.CLOCK}),
    args=Sleep,
    run=run,
    idempotent=True,
    may_be_long=True,
    limits=t.Limits(deadline=_MOST / 1000 + 30),
    deferred=True,
)
