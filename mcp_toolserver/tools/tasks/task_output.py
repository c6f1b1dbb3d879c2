"""Wait for a background job to end, and read its output. Returns at most 29,000 bytes of output from
`offset` on, the state or exit status, and the next offset. One call waits no longer than the client waits
for an answer: 45 s unless more is known. The output stays readable for about an hour after the end.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal

from mcp_toolserver import tool as t
from mcp_toolserver.text.lines.escape_invisible import visible
from mcp_toolserver.text.shell.command_output import as_on_terminal, ending, lines

_PAGE = 29_000
"""Bytes read at once; the rest of the answer is for notes."""

_WIDEST = 6
"""Bytes of the escape of a control character, the longest that a byte of output is shown with."""


def _until(blocks: Any) -> Any:
    """`block` of other servers, true or false; anything else is left to validation."""
    return {"true": "end", "false": "now"}.get(str(blocks).lower(), blocks)


class TaskOutput(t.Args):
    task_id: str = t.Field(min_length=1, max_length=200, description="Id of a command, agent or task")
    offset: int = t.Field(default=0, ge=0, description="Bytes of output to skip; default: 0")
    until: Annotated[Literal["end", "output", "now"], t.BeforeValidator(_until)] = t.Field(
        default="end",
        description="What to wait for: the end (default), output after offset, or nothing",
    )
    wait_ms: int = t.Field(
        default=30_000,
        ge=0,
        le=600_000,
        description="Milliseconds to wait at most (30000); at most 600000",
    )


async def run(args: TaskOutput, rt: t.Runtime) -> t.Output:
    query = t.JobQuery(
        handle=args.task_id,
        offset=args.offset,
        limit=_PAGE,
        wait=0.0 if args.until == "now" else args.wait_ms / 1000,
        until="end" if args.until == "end" else "output",
    )
    state = await rt.jobs.output(query)
    if len(visible(state.text).encode()) > _PAGE:
        state = await rt.jobs.output(replace(query, limit=_PAGE // _WIDEST, wait=0.0))
    more = state.next_offset < state.total
    skipped = state.start - args.offset
    gap = f"[{skipped} bytes from offset {args.offset} were not kept]\n" if skipped > 0 else ""
    notes = "".join(f"[{note}]\n" for note in state.notes)
    rest = f"; {state.total - state.next_offset} bytes follow" if more else ""
    status = f"[{ending(state)}; next offset {state.next_offset}{rest}]"
    return t.Output(f"{gap}{lines(as_on_terminal(state.text))}{notes}{status}", truncated=more)


TOOL = t.ToolSpec(
    name="TaskOutput",
    title="Read output of background job",
    args=TaskOutput,
    run=run,
    needs=frozenset({t.Capability.JOBS}),
    subjects=lambda args: (args.task_id,),
    idempotent=True,
    limits=t.Limits(deadline=660.0, output_bytes=30_000),
    may_be_long=True,
    aliases=(
        t.Alias(
            "TaskOutput",
            {"block": "until", "timeout": "wait_ms"},
        ),
        t.Alias("BashOutput"),
    ),
    profile=t.Profile.DEFAULT,
)
