"""Show changes as a patch: unstaged (the default), staged, or between commits. Untracked files are not
shown. A range A..B compares its ends; A...B shows what B added since it left A. A patch that is too long
becomes a line count per file.
"""

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import about, joined


class GitDiff(t.Args):
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="Limit the diff to this file or folder")
    staged: bool = t.Field(default=False, description="Show staged changes, against HEAD or `commit`")
    commit: str = t.Field(default="", max_length=520, description="Commit to compare with, or a range")
    commit2: str = t.Field(
        default="", max_length=256, description="Second commit: compares `commit`...`commit2`"
    )
    stat: bool = t.Field(default=False, description="Return only line counts per file")


async def run(args: GitDiff, rt: t.Runtime) -> t.Output:
    revision = _revision(args)
    form = "stat" if args.stat else "patch"
    found = await rt.git.diff(args.path, revision, staged=args.staged, form=form)
    is_empty = not found.text and not found.left_out
    notes = ["[no differences]"] if is_empty else [*about(found, asked=form)]
    return t.Output(joined(found.text, notes), truncated=not found.complete)


def _revision(args: GitDiff) -> str:
    if args.commit2 and (not args.commit or ".." in args.commit or ".." in args.commit2):
        raise t.InvalidInput("`commit2` needs one commit in `commit` and one in `commit2`, no range.")
    revision = f"{args.commit}...{args.commit2}" if args.commit2 else args.commit
    if args.staged and ".." in revision:
        raise t.InvalidInput("What is staged is compared with one commit. Leave out `staged`, or the range.")
    return revision


TOOL = t.ToolSpec(
    name="git_diff",
    title="Show changes",
    needs=frozenset({t.Capability.GIT}),
    args=GitDiff,
    run=run,
    kind="read",
    idempotent=True,
    aliases=(t.Alias("GitDiff"),),
)
