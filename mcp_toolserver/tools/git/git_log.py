"""List commits, newest first: id, author, date, message. With `path`, only commits that changed it. For
patches use git_show.
"""

from collections.abc import Iterator

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import counted


class GitLog(t.Args):
    path: t.WorkspacePath = t.Field(
        default=t.ROOT, description="Only commits that changed this file or folder"
    )
    count: int = t.Field(default=20, ge=1, le=1_000, description="Most commits to return")
    offset: int = t.Field(default=0, ge=0, le=999_999, description="Commits to skip, for the next page")
    oneline: bool = t.Field(default=False, description="Return only id and subject of each commit")
    commit: str = t.Field(default="", max_length=520, description="Commit to start from, or a range A..B")
    author: str = t.Field(
        default="", max_length=256, description="Part of the author's name or email address"
    )
    since: str = t.Field(
        default="",
        max_length=64,
        description="Only commits after this date, such as 2026-01-31 or `2 weeks ago`",
    )
    until: str = t.Field(default="", max_length=64, description="Only commits before this date")


class Commit(t.Record):
    id: str
    date: str
    author: str
    subject: str


class Log(t.Record):
    commits: list[Commit]
    more: bool
    """Older ones follow."""


async def run(args: GitLog, rt: t.Runtime) -> t.Output:
    commits, more = await rt.git.history(
        t.HistoryQuery(
            path=args.path,
            revision=args.commit,
            author=args.author,
            since=args.since,
            until=args.until,
            count=args.count,
            offset=args.offset,
        )
    )
    lines = [line for commit in commits for line in _lines(commit, oneline=args.oneline)]
    shown = counted(len(commits), "commit")
    next_ = args.offset + len(commits)
    note = f"[{shown}; go on with offset={next_}]" if more else f"[{shown}]"
    data = Log(
        commits=[Commit(id=one.id, date=one.date, author=one.author, subject=one.subject) for one in commits],
        more=more,
    )
    return t.Output("\n".join((*lines, note)), data=data, truncated=more)


def _lines(commit: t.GitCommit, *, oneline: bool) -> Iterator[str]:
    if oneline:
        yield f"{commit.id[:12]} {commit.subject}"
        return
    yield f"{commit.id} {commit.date} {commit.author} <{commit.email}>"
    yield f"    {commit.subject}"
    for line in commit.body.splitlines():
        yield f"    {line}".rstrip()


TOOL = t.ToolSpec(
    name="git_log",
    title="List commits",
    needs=frozenset({t.Capability.GIT}),
    args=GitLog,
    run=run,
    kind="read",
    output=Log,
    idempotent=True,
    aliases=(t.Alias("GitLog"),),
)
