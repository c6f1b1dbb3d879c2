"""Run a script in a new PowerShell process, without a profile, and return its output. A long run moves to the
background and returns a task id for TaskOutput and TaskStop. Processes that a finished script leaves running
are killed.
"""

from dataclasses import replace
from typing import Annotated

from mcp_toolserver import tool as t
from mcp_toolserver.text.shell.words import argument, program
from mcp_toolserver.tools.shell import bash


class PowerShell(bash.Bash):
    command: Annotated[str, t.AfterValidator(argument)] = t.Field(
        min_length=1, max_length=100_000, description="PowerShell script to run"
    )


async def run(args: PowerShell, rt: t.Runtime) -> t.Output:
    return await bash.ran(args, rt, program((*rt.powershell, args.command)))


TOOL = replace(
    bash.TOOL,
    name="PowerShell",
    title="Run PowerShell script",
    args=PowerShell,
    run=run,
    needs=frozenset({t.Capability.PROCESS, t.Capability.POWERSHELL}),
    aliases=(),
    profile=t.Profile.ALL,
    deferred=True,
)
