"""Leave a worktree that EnterWorktree made: relative paths start in the first root again. `action` keep
leaves its folder, and EnterWorktree with its name returns to it; remove deletes it, with all that .gitignore
ignores in it. Removing is refused, with a list, if it has changes that are not committed or commits that no
other branch has, unless discard_changes is set. A branch with commits of its own is kept in any case.
"""

from mcp_toolserver import tool as t


class ExitWorktree(t.Args):
    id: str = t.Field(max_length=100, description="Handle that EnterWorktree returned")
    action: t.WorktreeAction = t.Field(
        default="keep", description="Whether to keep the folder or to remove it"
    )
    discard_changes: bool = t.Field(
        default=False, description="Remove it although work is lost, of which an error listed what"
    )


async def run(args: ExitWorktree, rt: t.Runtime) -> t.Output:
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
