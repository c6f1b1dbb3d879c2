"""Run a script in a new PowerShell process, without a profile, and return its output. A long run moves to the
background and returns a task id for TaskOutput and TaskStop. Processes that a finished script leaves running
are killed.
"""

from typing import Annotated

from pydantic import AfterValidator

from mcp_toolserver import tool as t
from mcp_toolserver.text.shell.command_output import command_text, describing
from mcp_toolserver.text.shell.sandbox_facts import sandbox_facts
from mcp_toolserver.text.shell.words import argument, program, simple_parts


class PowerShell(t.Args):
    command: Annotated[str, AfterValidator(argument)] = t.Field(
        min_length=1, max_length=100_000, description="PowerShell script to run"
    )
    timeout: int = t.Field(
        default=120_000,
        ge=1,
        le=600_000,
        description="Milliseconds until the script is killed; at most 600000",
    )
    cwd: t.WorkspacePath = t.Field(
        default=t.CanonicalPath("."), description="Working directory; default: the first root"
    )
    run_in_background: bool = t.Field(
        default=False, description="Return a task id at once instead of waiting for the end"
    )
    description: str = t.Field(
        default="", max_length=500, description="Purpose of the command in a few words, shown to the user"
    )


async def run(args: PowerShell, rt: t.Runtime) -> t.Output:
    unlimited = args.run_in_background and "timeout" not in args.model_fields_set
    command = t.Command(
        script=program((*rt.powershell, args.command)),
        cwd=args.cwd,
        timeout=None if unlimited else args.timeout / 1000,
        background=args.run_in_background,
    )
    state = await rt.processes.run(command, describing(rt.report, args.description))
    return t.Output.of_job(command_text(state), state)


TOOL = t.ToolSpec(
    name="PowerShell",
    title="Run PowerShell script",
    description=__doc__ or "",
    args=PowerShell,
    run=run,
    permission=t.Permission.DANGER_FULL_ACCESS,
    needs=frozenset({t.Capability.PROCESS, t.Capability.POWERSHELL}),
    kind="execute",
    subjects=lambda args: simple_parts(args.command),
    destructive=True,
    may_be_long=True,
    host_note=sandbox_facts,
    # As for bash: the supervisor keeps the timeout, and the bytes leave room for notes.
    limits=t.Limits(deadline=660.0, output_bytes=30_000),
    profile=t.Profile.DEFAULT,
)
