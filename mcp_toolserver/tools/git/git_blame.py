"""Show who last changed each line of a file, when, and in which commit, with the line and its number."""

from collections.abc import Iterator

from mcp_toolserver import tool as t

_LINES = 1_000
_LAST = 999_999
_ID = 12
_NOT_COMMITTED = "0" * _ID


class GitBlame(t.Args):
    path: t.WorkspacePath = t.Field(description="Path of the file")
    start_line: int | None = t.Field(
        default=None, ge=1, le=_LAST, description="First line to show, from 1; needs end_line"
    )
    end_line: int | None = t.Field(
        default=None, ge=1, le=_LAST, description="Last line to show; needs start_line"
    )
    commit: str = t.Field(default="", max_length=256, description="Commit whose version of the file to show")


async def run(args: GitBlame, rt: t.Runtime) -> t.Output:
    first, last = _lines(args)
    shown = min(last, first + _LINES - 1)
    # One line more tells whether there is more.
    lines = await rt.git.blame(args.path, args.commit, first, min(shown + 1, last))
    is_cut = len(lines) > _LINES
    notes = [f"[lines {first}-{shown}; go on with start_line={shown + 1}, end_line={last}]"] if is_cut else []
    return t.Output("\n".join((*_shown(lines[:_LINES]), *notes)), truncated=is_cut)


def _lines(args: GitBlame) -> tuple[int, int]:
    if (args.start_line is None) != (args.end_line is None):
        raise t.InvalidInput("Give `start_line` and `end_line` both, or neither.")
    first, last = args.start_line or 1, args.end_line or _LAST
    if last < first:
        raise t.InvalidInput("`end_line` lies before `start_line`.")
    return first, last


def _shown(lines: tuple[t.GitLine, ...]) -> Iterator[str]:
    for line in lines:
        id_ = line.commit[:_ID]
        who = "not committed" if id_ == _NOT_COMMITTED else f"{line.author} {line.date}"
        yield f"{id_} ({who} {line.number}) {line.text}"


TOOL = t.ToolSpec(
    name="git_blame",
    title="Show who changed each line",
    needs=frozenset({t.Capability.GIT}),
    args=GitBlame,
    run=run,
    kind="read",
    idempotent=True,
    aliases=(t.Alias("GitBlame", {"file_path": "path"}), t.Alias("git_blame", {"file_path": "path"})),
)
