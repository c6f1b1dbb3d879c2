"""The example of ExitWorktree; test_enter_worktree.py tests both tools."""

EXAMPLE = {"id": "worktree_…", "action": "remove"}
