"""Show a commit: message and patch. With the path of a file, show its content in that commit; with a folder,
the changes inside it.
"""

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import about, joined


class GitShow(t.Args):
    commit: str = t.Field(
        default="HEAD", min_length=1, max_length=256, description="Commit to show: id, branch or tag"
    )
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="File or folder to show")
    format: t.ShowForm = t.Field(
        default="patch",
        description="What to return: patch, line counts (stat) or the message alone (metadata)",
    )
    stat: bool = t.Field(default=False, description="The same as format `stat`")


async def run(args: GitShow, rt: t.Runtime) -> t.Output:
    form = _form(args)
    found = await rt.git.show(args.path, args.commit, form)
    if found.form in ("file", "folder") and form != "patch":
        raise t.InvalidInput(f"Of '{args.path}' its content is shown, which has no {form}. Leave it out.")
    notes = [*about(found, asked=form)]
    if not found.text and not notes:
        notes = ["[empty]"]
    return t.Output(joined(found.text, notes), truncated=not found.complete)


def _form(args: GitShow) -> t.ShowForm:
    if ".." in args.commit:
        raise t.InvalidInput(
            "`commit` is one commit here. git_log lists a range, and git_diff compares its ends."
        )
    if args.stat and args.format == "metadata":
        raise t.InvalidInput("`stat` and format metadata exclude each other. Leave one of them out.")
    return "stat" if args.stat else args.format


TOOL = t.ToolSpec(
    name="git_show",
    title="Show commit",
    needs=frozenset({t.Capability.GIT}),
    args=GitShow,
    run=run,
    kind="read",
    idempotent=True,
    aliases=(t.Alias("GitShow", {"ref": "commit"}), t.Alias("git_show", {"ref": "commit"})),
)
