"""Switch to a branch, create one, or list branches (without `name`). A switch rewrites the files that differ
and keeps uncommitted changes of others; it is refused if it would overwrite any, or if the branches differ in
links, submodules or protected names such as .vscode. Hooks and filters do not run. It does not delete, merge,
fetch or push.
"""

from typing import Self

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import MAX_BRANCHES, counted, file_lines


class GitBranch(t.Args):
    name: str = t.Field(
        default="",
        max_length=200,
        pattern=r"^([\w.@][\w./+#=%@-]*)?$",
        description="Branch to switch to or to create; leave out to list branches",
    )
    create: bool = t.Field(default=False, description="Create the branch, which must not exist yet")
    start: str = t.Field(
        default="", max_length=256, description="Commit that a new branch starts from; default HEAD"
    )
    switch: bool = t.Field(default=True, description="Switch to it; false with `create` only creates it")
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="Any path in the repository")

    @t.model_validator(mode="after")
    def _fit_together(self) -> Self:
        if not self.name and (self.create or self.start):
            raise ValueError("`name` must name the new branch")
        if self.name and not self.create and (self.start or not self.switch):
            raise ValueError("`start` and `switch` false need `create`")
        return self


async def run(args: GitBranch, rt: t.Runtime) -> t.Output:
    if not args.name:
        return _listed(await rt.git.overview(args.path))
    query = t.BranchQuery(
        path=args.path, name=args.name, create=args.create, start=args.start, switch=args.switch
    )
    found = await rt.git_changes.branch(query)
    lines, whole = file_lines(found.files)
    return t.Output("\n".join((_headline(found), *lines)), truncated=bool(whole), whole=whole)


def _listed(found: t.GitOverview) -> t.Output:
    lines = [
        f"{'*' if one.current else ' '} {one.name} {one.commit[:12]} {one.date}" for one in found.branches
    ]
    older = len(lines[MAX_BRANCHES:])
    note = f", {older:,} older ones not shown" if older else ""
    count = f"[{counted(len(lines), 'branch', 'branches')}{note}]"
    return t.Output(
        "\n".join((*lines[:MAX_BRANCHES], count)),
        truncated=older > 0,
        whole="\n".join(lines) if older else "",
    )


def _headline(found: t.BranchChange) -> str:
    at = f"{found.name} at {found.commit[:12]}"
    if not found.switched:
        return (
            f"Created {at}; {found.before or 'no branch'} stays checked out."
            if found.created
            else f"Already on {at}."
        )
    verb = "Created and switched to" if found.created else "Switched to"
    return (
        f"{verb} {at} (before: {found.before}). {counted(len(found.files), 'file')} changed in the work tree."
    )


TOOL = t.ToolSpec(
    name="git_branch",
    title="Switch or create branch",
    needs=frozenset({t.Capability.GIT, t.Capability.GIT_WRITE, t.Capability.FS_WRITE}),
    args=GitBranch,
    run=run,
    kind="edit",
    destructive=True,
    aliases=tuple(
        t.Alias(name, {"branch": "name", "branch_name": "name", "start_point": "start", "repo_path": "path"})
        for name in ("GitBranch", "git_branch", "git_checkout", "git_switch")
    ),
)
