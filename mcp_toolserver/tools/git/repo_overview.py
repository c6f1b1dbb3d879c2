"""Summarize a git repository: branches, remotes, recent commits, languages by file count, folders."""

from collections.abc import Iterable, Iterator

from mcp_toolserver.text.git.messages import counted
from mcp_toolserver.text.git.repo_languages import Counts, languages, top_folders
from mcp_toolserver.tool import (
    Alias,
    Args,
    CanonicalPath,
    Capability,
    Field,
    GitBranch,
    GitOverview,
    Output,
    Permission,
    Runtime,
    ToolSpec,
    WorkspacePath,
)

_MOST = 20
"""Languages, folders and remotes that are named."""

_DAY = 10
"""Characters of a day in ISO 8601."""


class RepoOverview(Args):
    path: WorkspacePath = Field(
        default=CanonicalPath("."), description="Any file or folder in the repository"
    )


async def run(args: RepoOverview, rt: Runtime) -> Output:
    found = await rt.git.overview(args.path)
    return Output("\n".join(_lines(found)))


def _lines(found: GitOverview) -> Iterator[str]:
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


def _branch(branch: GitBranch) -> str:
    mark = "* " if branch.current else ""
    upstream = f" -> {branch.upstream}" if branch.upstream else ""
    return f"{mark}{branch.name} {branch.commit[:12]} {branch.date[:_DAY]}{upstream}"


def _counts(counts: Counts) -> Iterator[str]:
    for name, count in counts[:_MOST]:
        yield f"{name} {count:,}"


TOOL = ToolSpec(
    name="repo_overview",
    title="Summarize repository",
    description=__doc__ or "",
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.GIT}),
    args=RepoOverview,
    run=run,
    kind="read",
    subjects=lambda args: (args.path,),
    idempotent=True,
    aliases=(Alias("RepoOverview"),),
)
