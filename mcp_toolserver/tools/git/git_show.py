"""Show a commit: message and patch. With the path of a file, show its content in that commit; with a folder,
the changes inside it.
"""

from mcp_toolserver.text.git.messages import about, joined
from mcp_toolserver.tool import (
    Alias,
    Args,
    CanonicalPath,
    Capability,
    Field,
    InvalidInput,
    Output,
    Permission,
    Runtime,
    ShowForm,
    ShowQuery,
    ToolSpec,
    WorkspacePath,
)


class GitShow(Args):
    commit: str = Field(
        default="HEAD", min_length=1, max_length=256, description="Commit to show: id, branch or tag"
    )
    path: WorkspacePath = Field(default=CanonicalPath("."), description="File or folder to show")
    format: ShowForm = Field(
        default="patch",
        description="What to return: patch, line counts (stat) or the message alone (metadata)",
    )
    stat: bool = Field(default=False, description="The same as format `stat`")


async def run(args: GitShow, rt: Runtime) -> Output:
    form = _form(args)
    found = await rt.git.show(ShowQuery(path=args.path, revision=args.commit, form=form))
    if found.form in ("file", "folder") and form != "patch":
        raise InvalidInput(f"Of '{args.path}' its content is shown, which has no {form}. Leave it out.")
    notes = [*about(found, asked=form)]
    if not found.text and not notes:
        notes = ["[empty]"]
    return Output(joined(found.text, notes), truncated=not found.complete)


def _form(args: GitShow) -> ShowForm:
    if ".." in args.commit:
        raise InvalidInput(
            "`commit` is one commit here. git_log lists a range, and git_diff compares its ends."
        )
    if args.stat and args.format == "metadata":
        raise InvalidInput("`stat` and format metadata exclude each other. Leave one of them out.")
    return "stat" if args.stat else args.format


TOOL = ToolSpec(
    name="git_show",
    title="Show commit",
    description=__doc__ or "",
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.GIT}),
    args=GitShow,
    run=run,
    kind="read",
    subjects=lambda args: (args.path,),
    idempotent=True,
    aliases=(Alias("GitShow", {"ref": "commit"}), Alias("git_show", {"ref": "commit"})),
)
