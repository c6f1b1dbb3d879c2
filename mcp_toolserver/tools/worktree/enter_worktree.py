"""Create a git worktree in .worktrees/NAME with the new branch worktree-NAME, and work in it from now on:
relative paths, commands, searches and git tools of this session start there. An existing worktree of this
session is entered again by its name. Absolute paths still reach the other files. Files with protected names
and files stored through a filter are not written. Leave it with ExitWorktree. Hooks and filters do not run.
"""

from typing import Annotated

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import counted
from mcp_toolserver.text.git.names import MAX_NAME, check_worktree_name

MAX_LEFT_OUT = 10
"""Files that the text names."""


class EnterWorktree(t.Args):
    name: Annotated[str, t.AfterValidator(check_worktree_name)] = t.Field(
        max_length=MAX_NAME, description="Name of the worktree: letters, digits, '-', '_' and '.'"
    )
    base: str = t.Field(
        default="", max_length=256, description="Commit that the new branch starts from; default HEAD"
    )
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="Any path in the repository")


class WorktreeRecord(t.Record):
    id: str = t.Field(description="Handle for ExitWorktree")
    path: str = t.Field(description="Absolute path of the worktree")
    branch: str = t.Field(description="Branch that is checked out")


async def run(args: EnterWorktree, rt: t.Runtime) -> t.Output:
    found = await rt.worktrees.enter(args.path, args.name, args.base)
    made = found.worktree
    data = WorktreeRecord(id=made.id, path=made.path, branch=made.branch)
    return t.Output("\n".join(_lines(found)), data=data)


def _lines(found: t.EnteredWorktree) -> list[str]:
    made = found.worktree
    did = f"Created and entered the worktree {made.name}" if found.created else f"Entered {made.name} again"
    files = f", {counted(found.files, 'file')}" if found.created else ""
    lines = [
        f"{did}: {made.path}, branch {made.branch} from {made.base[:12]}{files}.",
        f"id: {made.id}",
        "Relative paths, commands and searches start there now. Running REPL sessions stay where they are.",
    ]
    if found.left_out:
        named = ", ".join(found.left_out[:MAX_LEFT_OUT])
        more = len(found.left_out) - MAX_LEFT_OUT
        lines.append(
            f"[not written, because protected or stored through a filter: {named}"
            f"{f' and {more:,} more' if more > 0 else ''}; git takes them for unchanged]"
        )
    return lines


TOOL = t.ToolSpec(
    name="EnterWorktree",
    title="Enter worktree",
    needs=frozenset({t.Capability.WORKTREES}),
    args=EnterWorktree,
    output=WorktreeRecord,
    run=run,
    kind="execute",
    limits=t.Limits(deadline=120.0),
    aliases=(t.Alias("enter_worktree", {"worktree_name": "name", "base_ref": "base"}),),
)
