"""Run a script in a new bash process and return its output (stdout and stderr together) and exit status.
After 45 s, or later if the client is known to wait longer, it continues in the background and the call
returns a task id for TaskOutput and TaskStop. A finished script leaves no process behind: start servers
with run_in_background. There is no terminal and no input. Of long output the start and the end are shown,
with the path of all of it.
"""

from math import isfinite
from typing import Any

from mcp_toolserver.text.shell.command_output import command_text, describing
from mcp_toolserver.text.shell.sandbox_facts import sandbox_facts
from mcp_toolserver.text.shell.words import simple_parts
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
    command: str = Field(min_length=1, max_length=100_000, description="Bash script to run")
    timeout: int = Field(
        default=120_000,
        ge=1,
        le=600_000,
        description="Milliseconds until the script is killed (120000); at most 600000",
    )
    cwd: WorkspacePath = Field(
        default=CanonicalPath("."), description="Working directory; default: the first root"
    )
    run_in_background: bool = Field(
        default=False, description="Return a task id at once instead of waiting for the end"
    )
    description: str = Field(
        default="", max_length=500, description="Purpose of the command in a few words, shown to the user"
    )


async def run(args: Bash, rt: Runtime) -> Output:
    state = await rt.processes.run(_command(args), describing(rt.report, args.description))
    return Output.of_job(command_text(state), state)


def _command(args: Bash) -> Command:
    unlimited = args.run_in_background and "timeout" not in args.model_fields_set
    return Command(
        script=args.command,
        cwd=args.cwd,
        timeout=None if unlimited else args.timeout / 1000,
        background=args.run_in_background,
    )


def _milliseconds(seconds: Any) -> Any:
    """Leave values that are not finite numbers to validation."""
    return round(seconds * 1000) if isinstance(seconds, int | float) and isfinite(seconds) else seconds


TOOL = ToolSpec(
    name="bash",
    title="Run bash script",
    description=__doc__ or "",
    args=Bash,
    run=run,
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.PROCESS}),
    kind="execute",
    subjects=lambda args: simple_parts(args.command),
    destructive=True,
    may_be_long=True,
    host_note=sandbox_facts,
    aliases=(Alias("Bash"), Alias("shell", converts={"timeout": _milliseconds})),
    # The supervisor keeps the timeout, so the deadline must not come first; the bytes leave room for notes.
    limits=Limits(deadline=660.0, output_bytes=30_000),
    profile=Profile.LEAN,
)
