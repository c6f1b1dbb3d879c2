"""Read the output of a background command, running or finished. Start at offset 0 and continue at the next
offset, which the last line names. Set wait_ms to wait for more output or the end. The output stays readable
for about an hour after the end.
"""

from mcp_toolserver.text.lines.escape_invisible import visible
from mcp_toolserver.text.lines.terminal import as_on_terminal
from mcp_toolserver.text.shell.command_output import ending, lines
from mcp_toolserver.tool import (
    Alias,
    Args,
    Capability,
    Field,
    JobState,
    Limits,
    Output,
    Permission,
    Profile,
    Runtime,
    ToolSpec,
)

_PAGE = 29_000
"""Bytes read at once; the rest of the answer is for notes."""

_WIDEST = 6
"""Bytes of the escape of a control character, the longest that a byte of output is shown with."""


class TaskOutput(Args):
    task_id: str = Field(min_length=1, max_length=200, description="Task id that bash returned")
    offset: int = Field(default=0, ge=0, description="Bytes of output to skip")
    wait_ms: int = Field(
        default=0,
        ge=0,
        le=30_000,
        description="Milliseconds to wait for new output or the end; at most 30000",
    )


async def run(args: TaskOutput, rt: Runtime) -> Output:
    state = await rt.jobs.output(args.task_id, offset=args.offset, limit=_PAGE, wait=args.wait_ms / 1000)
    if len(visible(state.text).encode()) > _PAGE:
        state = await rt.jobs.output(args.task_id, offset=args.offset, limit=_PAGE // _WIDEST, wait=0)
    more = state.next_offset < state.total
    notes = "".join(f"[{note}]\n" for note in state.notes)
    text = f"{_gap(args.offset, state)}{lines(as_on_terminal(state.text))}{notes}[{_status(state, more)}]"
    return Output(text, truncated=more)


def _gap(offset: int, state: JobState) -> str:
    skipped = state.start - offset
    return f"[{skipped} bytes from offset {offset} were not kept]\n" if skipped > 0 else ""


def _status(state: JobState, more: bool) -> str:
    rest = f"; {state.total - state.next_offset} bytes follow" if more else ""
    return f"{ending(state)}; next offset {state.next_offset}{rest}"


TOOL = ToolSpec(
    name="TaskOutput",
    description=__doc__ or "",
    args=TaskOutput,
    run=run,
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.JOBS}),
    kind="other",
    subjects=lambda args: (args.task_id,),
    idempotent=True,
    limits=Limits(output_bytes=30_000),
    aliases=(
        Alias("TaskOutput", {"id": "task_id", "handle": "task_id"}),
        Alias("BashOutput", {"bash_id": "task_id"}),
    ),
    profile=Profile.DEFAULT,
)
