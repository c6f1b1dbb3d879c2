"""Wait for a fixed time. To wait for a background command, use TaskOutput with wait_ms."""

from mcp_toolserver.tool import (
    Args,
    Capability,
    Field,
    Limits,
    Output,
    Permission,
    Profile,
    Runtime,
    ToolSpec,
)

_MOST = 300_000
_STEP = 1.0
"""Seconds between two words to the client, who may take silence for a fault."""


class Sleep(Args):
    duration_ms: int = Field(ge=0, le=_MOST, description="Milliseconds to wait; at most 300000")


async def run(args: Sleep, rt: Runtime) -> Output:
    total = args.duration_ms / 1000
    slept = 0.0
    while slept < total:
        await rt.report(f"slept {slept:.0f} of {total:g} s")
        step = min(_STEP, total - slept)
        await rt.clock.sleep(step)
        slept += step
    return Output(f"Slept for {args.duration_ms}ms")


TOOL = ToolSpec(
    name="Sleep",
    title="Wait",
    description=__doc__ or "",
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.CLOCK}),
    args=Sleep,
    run=run,
    kind="other",
    subjects=lambda _: (),
    idempotent=True,
    may_be_long=True,
    limits=Limits(deadline=_MOST / 1000 + 30),
    profile=Profile.DEFAULT,
)
