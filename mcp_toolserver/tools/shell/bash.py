"""Run a script in a new bash. What it leaves running is killed; a long run goes on in the background."""

from math import isfinite
from typing import Any

from mcp_toolserver.text.job import ending, lines, printed
from mcp_toolserver.text.shell import simple_parts
from mcp_toolserver.tool import (
    Alias,
    Args,
    CanonicalPath,
    Capability,
    Command,
    Field,
    JobState,
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
    async def report(message: str) -> None:
        await rt.report(f"{args.description}: {message}" if args.description else message)

    state = await rt.processes.run(_command(args), report)
    return Output(_text(state), truncated=state.omitted > 0, spill=state.spill if state.omitted > 0 else None)


def _command(args: Bash) -> Command:
    unlimited = args.run_in_background and "timeout" not in args.model_fields_set
    return Command(
        script=args.command,
        cwd=args.cwd,
        timeout=None if unlimited else args.timeout / 1000,
        background=args.run_in_background,
    )


def _text(state: JobState) -> str:
    text = printed(state) or ("" if state.running else "(no output)")
    notes = "\n".join(f"[{note}]" for note in _notes(state))
    return f"{lines(text)}{notes}" if notes else text


def _notes(state: JobState) -> list[str]:
    if not state.running:
        ended = [*([] if state.exit_status == 0 else [ending(state)]), *state.notes]
        return [*ended, f"ended at once; task_id {state.handle}"] if state.handle else ended
    return [
        f"{ending(state)}; it goes on in the background as {state.handle}, and a timeout still holds",
        f"TaskOutput reads on from offset {state.next_offset}; TaskStop ends it",
    ]


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
    aliases=(Alias("Bash"), Alias("shell", converts={"timeout": _milliseconds})),
    # The nanny keeps the timeout, and the deadline must not come before it; the bytes leave room for notes.
    limits=Limits(deadline=660.0, output_bytes=202_000),
    profile=Profile.LEAN,
)
