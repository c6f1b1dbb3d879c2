"""Run a script in a new bash. What it leaves running is killed; a long run goes on in the background."""

from math import isfinite
from typing import Any

from mcp_toolserver.text.job import describing, told
from mcp_toolserver.text.shell import simple_parts
from mcp_toolserver.tool import (
    Alias,
    Args,
    CanonicalPath,
    Capability,
    Command,
    Field,
    Limits,
    Output,
    Permission,
    Profile,
    Runtime,
    ToolSpec,
    WorkspacePath,
)


class Bash(Args):
    command: str = Field(min_length=1, max_length=100_000, description="Script")
    timeout: int = Field(
        default=120_000,
        ge=1,
        le=600_000,
        description="ms (120000), up to 600000",
    )
    cwd: WorkspacePath = Field(default=CanonicalPath("."), description="Folder")
    run_in_background: bool = Field(default=False, description="Get a task id")
    description: str = Field(default="", max_length=500, description="What for")


async def run(args: Bash, rt: Runtime) -> Output:
    state = await rt.processes.run(_command(args), describing(rt.report, args.description))
    return Output.of_job(told(state), state)


def _command(args: Bash) -> Command:
    unlimited = args.run_in_background and "timeout" not in args.model_fields_set
    return Command(
        script=args.command,
        cwd=args.cwd,
        timeout=None if unlimited else args.timeout / 1000,
        background=args.run_in_background,
    )


def _milliseconds(seconds: Any) -> Any:
    """What is no finite number is left for validation."""
    return round(seconds * 1000) if isinstance(seconds, int | float) and isfinite(seconds) else seconds


TOOL = ToolSpec(
    name="bash",
    description=__doc__ or "",
    args=Bash,
    run=run,
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.PROCESS}),
    kind="execute",
    subjects=lambda args: simple_parts(args.command),
    destructive=True,
    may_be_long=True,
    aliases=(Alias("Bash"), Alias("shell", converts={"timeout": _milliseconds})),
    # The nanny keeps the timeout, and the deadline must not come before it; the bytes leave room for notes.
    limits=Limits(deadline=660.0, output_bytes=202_000),
    profile=Profile.LEAN,
)
