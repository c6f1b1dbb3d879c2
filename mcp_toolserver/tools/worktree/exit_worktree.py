"""Leave a worktree of EnterWorktree or of an isolated agent: relative paths start in the first root again.
`action` keep leaves its folder, and EnterWorktree with its name returns to it. merge merges its commits into
the branch of the main folder; apply writes its changes there, committed or not, without a commit. Both keep
the worktree, and change nothing where both sides changed the same places, where they would overwrite
uncommitted changes, or where you may not write a file. remove deletes it, with all that .gitignore ignores in
it; it is refused, with a list, if it has changes that are not committed or commits that no other branch has,
unless discard_changes is set. A branch with commits of its own is kept in any case.
"""

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import counted

MAX_FILES = 50
"""Files that the text names."""


class ExitWorktree(t.Args):
    id: str = t.Field(max_length=100, description="Handle of EnterWorktree or an agent's result")
    action: t.WorktreeAction = t.Field(default="keep", description="What to do with it")
    discard_changes: bool = t.Field(
        default=False, description="Remove it although work is lost, of which an error listed what"
    )


async def run(args: ExitWorktree, rt: t.Runtime) -> t.Output:
    if args.action in ("merge", "apply"):
        return t.Output(
            "\n".join(_taken_over(await rt.worktrees.merge(args.id, applies=args.action == "apply")))
        )
    found = await rt.worktrees.exit(
        args.id, remove=args.action == "remove", discard_changes=args.discard_changes
    )
    made = found.worktree
    if not found.removed:
        return t.Output(
            f"Left the worktree {made.name}. It stays in {made.path}, on the branch {made.branch}."
        )
    did = "was gone already; what git knew of it was removed" if found.was_missing else "was removed"
    branch = f"The branch {made.branch} {'stays' if found.branch_kept else 'is gone, it had no commits'}."
    lost = ["Discarded:", *(f"- {one}" for one in found.discarded)] if found.discarded else []
    return t.Output("\n".join((f"The worktree {made.name} {did}. {branch}", *lost)))


def _taken_over(found: t.MergedWorktree) -> list[str]:
    made, files = found.worktree, counted(len(found.files), "file")
    if found.commit:
        commits, at = counted(found.commits, "commit"), found.commit[:12]
        did = f"Merged {commits} of {made.branch} into {found.into} at {at}"
    else:
        did = f"Wrote the changes of {made.branch} to {found.place} without a commit"
    if not found.commits:
        return [f"{found.into} has all that is in the worktree {made.name}. Nothing was changed."]
    more = len(found.files) - MAX_FILES
    return [
        f"{did}: {files} changed.",
        *(f"{letter} {name}" for letter, name in found.files[:MAX_FILES]),
        *([f"[{more} more]"] if more > 0 else ()),
        f"The worktree stays in {made.path}; action remove deletes it.",
    ]


TOOL = t.ToolSpec(
    name="ExitWorktree",
    title="Leave worktree",
    needs=frozenset({t.Capability.WORKTREES}),
    args=ExitWorktree,
    run=run,
    kind="execute",
    subjects=lambda args: (args.id,),
    destructive=True,
    limits=t.Limits(deadline=120.0),
    aliases=(t.Alias("exit_worktree", {"worktree_id": "id"}),),
)
