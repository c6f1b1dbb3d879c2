"""Run a script in a new PowerShell, without a profile; what it leaves running is killed. A long run goes on
in the background (see TaskOutput, TaskStop).
"""

from typing import Annotated

from pydantic import AfterValidator

from mcp_toolserver.text.job import describing, told
from mcp_toolserver.text.shell import argument, program, simple_parts
from mcp_toolserver.tool import (
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


class PowerShell(Args):
    command: Annotated[str, AfterValidator(argument)] = Field(
        min_length=1, max_length=100_000, description="Script"
    )
    timeout: int = Field(default=120_000, ge=1, le=600_000, description="Milliseconds, at most 600000")
    cwd: WorkspacePath = Field(default=CanonicalPath("."), description="Folder")
    run_in_background: bool = Field(default=False, description="Return its task id")
    description: str = Field(default="", max_length=500, description="For the user")


async def run(args: PowerShell, rt: Runtime) -> Output:
    unlimited = args.run_in_background and "timeout" not in args.model_fields_set
    command = Command(
        script=program((*rt.powershell, args.command)),
        cwd=args.cwd,
        timeout=None if unlimited else args.timeout / 1000,
        background=args.run_in_background,
    )
    state = await rt.processes.run(command, describing(rt.report, args.description))
    return Output.of_job(told(state), state)


TOOL = ToolSpec(
    name="PowerShell",
    description=__doc__ or "",
    args=PowerShell,
    run=run,
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.PROCESS, Capability.POWERSHELL}),
    kind="execute",
    subjects=lambda args: simple_parts(args.command),
    destructive=True,
    may_be_long=True,
    # As for bash: the nanny keeps the timeout, and the bytes leave room for notes.
    limits=Limits(deadline=660.0, output_bytes=202_000),
    profile=Profile.DEFAULT,
)
