"""Push the commits of one branch to the same branch of a configured remote, with the user's git credentials.
A human may have to approve the remote, the branch and the commits first. Hooks of the repository do not run.
It never forces, deletes or pushes tags, and needs the remote's branch to be as last fetched.
"""

from mcp_toolserver import tool as t

_NAME = r"^(\w[\w./+-]*)?$"


class GitPush(t.Args):
    remote: str = t.Field(
        default="",
        max_length=200,
        pattern=_NAME,
        description="A remote; default: the branch's own, or origin",
    )
    branch: str = t.Field(
        default="", max_length=200, pattern=_NAME, description="Branch to push; default: the current one"
    )
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="In the repository; default: the first root")


async def preview(args: GitPush, rt: t.Runtime) -> str:
    return (await rt.pushes.prepare(args.path, args.remote, args.branch)).text


async def run(args: GitPush, rt: t.Runtime) -> t.Output:
    found = await rt.pushes.prepare(args.path, args.remote, args.branch)
    left = await rt.pushes.push(found, rt.report)
    return t.Output(f"Pushed to {found.remote}, branch {found.branch}: {found.what}.{left and f' [{left}]'}")


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
