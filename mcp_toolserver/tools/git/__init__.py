"""Read git repositories without running anything of theirs."""
