"""Read the output of background jobs. By default waits for new output followed by two seconds without any, or
for the end, and returns at most 29,000 bytes of what came since the last read, the state or exit status, and
the next offset. Of several jobs, the first with news ends the wait. One call waits no longer than the client
waits for an answer: 45 s unless more is known. The output stays readable for about an hour after the end.
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


def _joined(ids: object) -> object:
    """A list of ids is one text; anything else is left to validation."""
    return ",".join(map(str, ids)) if t.is_list(ids) else ids


class TaskOutput(t.Args):
    task_id: Annotated[str, t.BeforeValidator(_joined)] = t.Field(
        min_length=1, max_length=200, description="Id of a command, agent or task; several with commas"
    )
    offset: int | None = t.Field(
        default=None, ge=0, description="Bytes of output to skip; default: what was read before, 0: none"
    )
    until: Annotated[Literal["news", "end", "output", "now"], t.BeforeValidator(_until)] = t.Field(
        default="news",
        description="What to wait for: new output and then 2 s without (default), end, output, or nothing",
    )
    wait_ms: int = t.Field(
        default=30_000,
        ge=0,
        le=600_000,
        description="Milliseconds to wait at most (30000); at most 600000",
    )

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, self.task_id.replace(",", " ").split())))


async def run(args: TaskOutput, rt: t.Runtime) -> t.Output:
    wait, until = (0.0, "end") if args.until == "now" else (args.wait_ms / 1000, args.until)
    if not args.ids:
        raise t.InvalidInput("task_id names no job. Send the id that bash, Agent or TaskCreate returned.")
    limit = _PAGE // len(args.ids)
    queries = [t.JobQuery(handle=one, offset=args.offset, limit=limit) for one in args.ids]
    await rt.jobs.wait([replace(query, limit=0, wait=wait, until=until) for query in queries])
    read = [await _read(query, rt) for query in queries]
    texts = [text for text, _ in read]
    if len(texts) > 1:
        texts = [f"{one}:\n{text}" for one, text in zip(args.ids, texts, strict=True)]
    return t.Output("\n\n".join(texts), truncated=any(more for _, more in read))


async def _read(query: t.JobQuery, rt: t.Runtime) -> tuple[str, bool]:
    """The text for one job, and whether more follows."""
    state = await rt.jobs.output(replace(query, is_read=True))
    if len(visible(state.text).encode()) > query.limit:
        again = replace(query, offset=state.start, limit=query.limit // _WIDEST, is_read=True)
        state = await rt.jobs.output(again)
    more = state.next_offset < state.total
    skipped = state.start - (query.offset or state.start)
    gap = f"[{skipped} bytes from offset {query.offset} were not kept]\n" if skipped > 0 else ""
    notes = "".join(f"[{note}]\n" for note in state.notes)
    rest = f"; {state.total - state.next_offset} bytes follow" if more else ""
    status = f"[{ending(state)}; next offset {state.next_offset}{rest}]"
    return f"{gap}{lines(as_on_terminal(state.text))}{notes}{status}", more


TOOL = t.ToolSpec(
    name="TaskOutput",
    title="Read output of background job",
    args=TaskOutput,
    run=run,
    needs=frozenset({t.Capability.JOBS}),
    subjects=lambda args: args.ids,
    limits=t.Limits(deadline=660.0, output_bytes=30_000),
    may_be_long=True,
    aliases=(
        t.Alias(
            "TaskOutput",
            {"block": "until", "timeout": "wait_ms"},
        ),
        t.Alias("BashOutput", defaults={"until": "now"}),
    ),
    profile=t.Profile.DEFAULT,
)
