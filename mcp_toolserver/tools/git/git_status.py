"""Show the current branch and uncommitted changes, as `git status --short` does: the first letter is the
staged state, the second the unstaged state; `??` is untracked.
"""

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import counted, hidden
from mcp_toolserver.text.git.status import long, short

_ENTRIES = 1_000


class GitStatus(t.Args):
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="Limit the status to this file or folder")
    short: bool = t.Field(default=True, description="Show states as letters instead of words")


class State(t.Record):
    branch: str
    head: str
    upstream: str
    ahead: int
    behind: int
    clean: bool
    total: int
    """Changes in all; more than are listed when there are very many."""
    changes: list[t.GitChange]


async def run(args: GitStatus, rt: t.Runtime) -> t.Output:
    status = await rt.git.status(args.path)
    shown = status.changes[:_ENTRIES]
    lines = short(status, shown) if args.short else long(status, shown)
    total = len(status.changes)
    is_cut = total > len(shown) or not status.complete
    notes = [*hidden(status.left_out, "change")]
    if is_cut:
        of = f"{total:,}" if status.complete else f"more than {total:,}"
        notes.append(f"[the first {len(shown):,} of {of} changes; name a folder as `path` to see others]")
    elif not total and not status.left_out:
        notes.append("[nothing to commit]")
    else:
        notes.append(f"[{counted(total, 'change')}]")
    data = State(
        branch=status.branch,
        head=status.head,
        upstream=status.upstream,
        ahead=status.ahead,
        behind=status.behind,
        clean=not total and not status.left_out,
        total=total,
        changes=list(shown),
    )
    return t.Output("\n".join((*lines, *notes)), data=data, truncated=is_cut)


TOOL = t.ToolSpec(
    name="git_status",
    title="Show git status",
    needs=frozenset({t.Capability.GIT}),
    args=GitStatus,
    run=run,
    kind="read",
    output=State,
    idempotent=True,
    aliases=(t.Alias("GitStatus"),),
)
