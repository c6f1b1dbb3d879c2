"""Summarize a git repository: branches, remotes, recent commits, languages by file count, folders."""

from collections.abc import Iterable, Iterator

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import counted
from mcp_toolserver.text.git.repo_languages import Counts, languages, top_folders

_MOST = 20
"""Languages, folders and remotes that are named."""

_DAY = 10
"""Characters of a day in ISO 8601."""


class RepoOverview(t.Args):
    path: t.WorkspacePath = t.Field(
        default=t.CanonicalPath("."), description="Any file or folder in the repository"
    )


async def run(args: RepoOverview, rt: t.Runtime) -> t.Output:
    found = await rt.git.overview(args.path)
    return t.Output("\n".join(_lines(found)))


def _lines(found: t.GitOverview) -> Iterator[str]:
    files = counted(len(found.files), "file") + ("" if found.complete else " or more")
    commits = counted(found.all_commits, "commit")
    yield f"Repository {found.folder}: {files}, {commits}, {counted(found.tags, 'tag')}"
    yield from _titled("Branches", map(_branch, found.branches), found.all_branches)
    remotes = [f"{name} {address}" for name, address in found.remotes[:_MOST]]
    yield from _titled("Remotes", remotes, len(found.remotes))
    last = [
        f"{commit.id[:12]} {commit.date[:_DAY]} {commit.author}: {commit.subject}" for commit in found.commits
    ]
    yield from _titled("Last commits", last, len(last))
    for title, counts in (
        ("Languages by files", languages(found.files)),
        ("Top folders by files", top_folders(found.files)),
    ):
        yield from _titled(title, _counts(counts), len(counts))


def _titled(title: str, lines: Iterable[str], total: int) -> Iterator[str]:
    """Nothing where there are none."""
    shown = [f"  {line}" for line in lines]
    if shown:
        more = f" ({len(shown)} of {total:,})" if total > len(shown) else ""
        yield f"{title}{more}:"
        yield from shown


def _branch(branch: t.GitBranch) -> str:
    mark = "* " if branch.current else ""
    upstream = f" -> {branch.upstream}" if branch.upstream else ""
    return f"{mark}{branch.name} {branch.commit[:12]} {branch.date[:_DAY]}{upstream}"


def _counts(counts: Counts) -> Iterator[str]:
    for name, count in counts[:_MOST]:
        yield f"{name} {count:,}"


TOOL = t.ToolSpec(
    name="repo_overview",
    title="Summarize repository",
    description=__doc__ or "",
    permission=t.Permission.READ_ONLY,
    needs=frozenset({t.Capability.GIT}),
    args=RepoOverview,
    run=run,
    kind="read",
    subjects=lambda args: (args.path,),
    idempotent=True,
    aliases=(t.Alias("RepoOverview"),),
)
