"""Run a script with sh in a new container that mounts the first root as /workspace and is removed
afterwards. It has the programs of its image, not those of this machine; files outside /workspace are lost
with it. Returns output and exit status. A long run moves to the background and returns a task id.
"""

import shlex
from typing import Self

from mcp_toolserver import tool as t
from mcp_toolserver.text.shell.command_output import command_text
from mcp_toolserver.text.shell.script import with_input
from mcp_toolserver.text.shell.words import argument
from mcp_toolserver.tools.shell.bash import bounded


class ContainerShell(t.Args):
    command: str = t.Field(min_length=1, max_length=100_000, description="Shell script to run")
    timeout: int = t.Field(
        default=120_000,
        ge=1,
        description="Milliseconds until the script is killed; at most 600000",
    )
    stdin: t.SkipJsonSchema[str] = t.Field(default="", description="Standard input")

    @property
    def script(self) -> str:
        """The command with its standard input."""
        feed = shlex.join(("printf", "%s", self.stdin))
        return f"{feed} | {{\n{self.command}\n}}" if self.stdin else self.command

    @t.model_validator(mode="after")
    def _fits(self) -> Self:
        argument(self.script)
        return self


async def run(args: ContainerShell, rt: t.Runtime) -> t.Output:
    timeout, notes = bounded(args.timeout)
    state, on_host = await rt.containers.run(args.script, timeout, rt.report)
    notes += [f"Sandbox unavailable - ran in the local shell instead. {on_host}"] if on_host else []
    return t.Output.of_job(command_text(state, notes), state)


TOOL = t.ToolSpec(
    name="container_shell",
    title="Run script in container",
    args=ContainerShell,
    run=run,
    needs=frozenset({t.Capability.CONTAINERS}),
    kind="execute",
    script=lambda args: with_input(args.command, args.stdin) if args.stdin else args.command,
    destructive=True,
    may_be_long=True,
    # As for bash: the supervisor keeps the timeout, and the bytes leave room for notes.
    limits=t.Limits(deadline=660.0, output_bytes=30_000),
)
