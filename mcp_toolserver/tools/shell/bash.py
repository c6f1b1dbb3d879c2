"""Run a script in a new bash process and return its output (stdout and stderr together) and exit status.
After 45 s, or later if the client is known to wait longer, it continues in the background and the call
returns a task id for TaskOutput and TaskStop. A finished script leaves no process behind: start servers
with run_in_background. There is no terminal. Of long output the start and the end are shown,
with the path of all of it.
"""

from collections.abc import Awaitable
from dataclasses import replace
from math import isfinite
from typing import Any, Self

from mcp_toolserver import tool as t
from mcp_toolserver.text.shell.command_output import command_text, describing, script_notes
from mcp_toolserver.text.shell.script import with_input

_MOST_TIMEOUT = 600_000
"""Milliseconds."""


class Bash(t.Args):
    command: str = t.Field(min_length=1, max_length=100_000, description="Bash script to run")
    timeout: int = t.Field(
        default=120_000,
        ge=1,
        description="Milliseconds until the script is killed (120000); at most 600000",
    )
    cwd: t.WorkspacePath = t.Field(default=t.ROOT, description="Working directory; default: the first root")
    run_in_background: bool = t.Field(
        default=False, description="Return a task id at once instead of waiting for the end"
    )
    open_stdin: bool = t.Field(
        default=False, description="In the background: keep stdin open for SendMessage"
    )
    stdin: t.SkipJsonSchema[str] = t.Field(default="", max_length=100_000, description="Standard input")
    description: str = t.Field(
        default="", max_length=500, description="Purpose of the command in a few words, shown to the user"
    )

    @t.model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.open_stdin and self.stdin:
            raise ValueError("stdin is the whole input, and open_stdin waits for more; send one of them")
        if self.open_stdin and not self.run_in_background:
            raise ValueError("open_stdin needs run_in_background: in the foreground nobody writes")
        return self


class UnsandboxedBash(Bash):
    unsandboxed_reason: str = t.Field(
        default="",
        max_length=500,
        description="Where the sandbox is in the way: why this one run needs to be outside; a human is asked",
    )

    def why_outside(self) -> str:
        return self.unsandboxed_reason

    @t.model_validator(mode="after")
    def _is_shown_whole(self) -> Self:
        if self.unsandboxed_reason and self.open_stdin:
            raise ValueError("outside the sandbox there is no open_stdin: the user sees the whole script")
        return self


def run(args: Bash, rt: t.Runtime) -> Awaitable[t.Output]:
    return ran(args, rt, args.command)


async def ran(args: Bash, rt: t.Runtime, script: str) -> t.Output:
    """Run the bash `script`, with all else as `args` say."""
    timeout, notes = bounded(args.timeout)
    unlimited = args.run_in_background and "timeout" not in args.model_fields_set
    command = t.Command(
        script=script,
        cwd=args.cwd,
        timeout=None if unlimited else timeout,
        background=args.run_in_background,
        stdin=args.stdin,
        open_stdin=args.open_stdin,
    )
    state = await rt.processes.run(command, describing(rt.report, args.description))
    if not state.running:
        state = replace(state, notes=(*state.notes, *script_notes(script)))
    return t.Output.of_job(command_text(state, notes), state)


def bounded(timeout: int) -> tuple[float, list[str]]:
    """Return a timeout in seconds from one in milliseconds, and a note if it is shorter than asked for."""
    note = f"a timeout of {_MOST_TIMEOUT} ms is the longest, {timeout} was asked for"
    return min(timeout, _MOST_TIMEOUT) / 1000, [note] * (timeout > _MOST_TIMEOUT)


def _milliseconds(seconds: Any) -> Any:
    """Leave values that are not finite numbers to validation."""
    return round(seconds * 1000) if isinstance(seconds, int | float) and isfinite(seconds) else seconds


def sandbox_facts(host: t.HostFacts) -> str:
    """Return the facts as one paragraph that starts with "Sandbox:"; only what applies to the host."""
    if host.may_leave_sandbox and host.commands_in is not None:
        return (
            f"Sandbox: {_writes(replace(host, mode=host.commands_in))} With unsandboxed_reason a script runs "
            "once with all rights of the user, if a human approves it."
        )
    if host.is_unconfined:
        return "Sandbox: none. Commands have all rights of the user who started the server."
    return f"Sandbox: {_writes(host)} {_temporary(host)} {_network(host)}"


def _writes(host: t.HostFacts) -> str:
    if host.mode is t.Permission.READ_ONLY:
        return "commands write nothing outside $TMPDIR."
    git = "git's hooks and configuration" if host.git_writable else ".git"
    return (
        f"commands write only in the roots and $TMPDIR; {git} and files that editors, shells and agents "
        "start from are read-only."
    )


def _temporary(host: t.HostFacts) -> str:
    if host.shares_tmp:
        return "$TMPDIR is /tmp and lasts for the session."
    return "$TMPDIR is new and empty for each command."


def _network(host: t.HostFacts) -> str:
    if host.network == "hosts":
        return (
            "Programs that use HTTPS_PROXY reach the hosts that the operator listed, others only localhost, "
            "which the session shares."
        )
    if host.is_networked:
        return "The network is open."
    if host.shares_loopback:
        return (
            "No network but localhost, which the session shares: a server started in the background answers "
            "later commands."
        )
    if host.command_sandbox == "bubblewrap":
        return "No network but a localhost of its own for each command."
    return "No network, not even localhost."


_SANDBOX = (
    *("dangerously_disable_sandbox", "filesystem_mode"),
    *("namespace_restrictions", "isolate_network", "allowed_mounts"),
)
"""Arguments of other servers by which a model chooses its sandbox."""

TOOL = t.ToolSpec(
    name="bash",
    title="Run bash script",
    args=Bash,
    unsandboxed_args=UnsandboxedBash,
    run=run,
    needs=frozenset({t.Capability.PROCESS}),
    kind="execute",
    script=lambda args: with_input(args.command, args.stdin) if args.stdin else args.command,
    destructive=True,
    may_be_long=True,
    host_note=sandbox_facts,
    aliases=(t.Alias("Bash"), t.Alias("shell", converts={"timeout": _milliseconds})),
    ignored=dict.fromkeys(_SANDBOX, "only the operator of the server chooses the sandbox"),
    # The supervisor keeps the timeout, so the deadline must not come first; the bytes leave room for notes.
    limits=t.Limits(deadline=660.0, output_bytes=30_000),
    profile=t.Profile.LEAN,
)
