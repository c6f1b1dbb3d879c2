"""Find files by name and lines by pattern."""
