"""Push the commits of one branch to the same branch of a configured remote, with the user's git credentials.
A human may have to approve the remote, the branch and the commits first. Hooks of the repository do not run.
It never forces, deletes or pushes tags, and needs the remote's branch to be as last fetched.
"""

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import counted

_NAME = r"^(\w[\w./+-]*)?$"


class GitPush(t.Args):
    remote: str = t.Field(
        default="",
        max_length=200,
        pattern=_NAME,
        description="Name of a remote; default: the branch's own, or origin",
    )
    branch: str = t.Field(
        default="", max_length=200, pattern=_NAME, description="Branch to push; default: the current one"
    )
    path: t.WorkspacePath = t.Field(
        default=t.ROOT, description="A path in the repository; default: the first root"
    )


async def preview(args: GitPush, rt: t.Runtime) -> str:
    found = await rt.pushes.prepare(args.path, args.remote, args.branch)
    start = f"after {found.base[:12]}" if found.base else "and the branch is new there"
    more = [f"and {found.count - len(found.commits)} older ones"] * (found.count > len(found.commits))
    what = f"{counted(found.count, 'commit')} up to {found.commit}, {start}:"
    return "\n".join(
        (f"To {found.remote}: {found.shown}", f"Branch {found.branch}", what, *found.commits, *more)
    )


async def run(args: GitPush, rt: t.Runtime) -> t.Output:
    found = rt.pushes.prepared or await rt.pushes.prepare(args.path, args.remote, args.branch)
    notes = await rt.pushes.push(found, rt.report)
    commits = f"{counted(found.count, 'commit')} up to {found.commit[:12]}"
    done = f"Pushed {commits} to {found.remote}, branch {found.branch}."
    return t.Output("\n".join((done, *(f"[{note}]" for note in notes))))


TOOL = t.ToolSpec(
    name="git_push",
    title="Push commits",
    needs=frozenset({t.Capability.PUSHES}),
    args=GitPush,
    run=run,
    preview=preview,
    kind="execute",
    subjects=lambda args: (" ".join(("git push", *filter(None, (args.remote, args.branch)))),),
    may_be_long=True,
    limits=t.Limits(deadline=330.0),
)
