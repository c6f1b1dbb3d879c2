"""Work on a branch in a worktree of its own."""
