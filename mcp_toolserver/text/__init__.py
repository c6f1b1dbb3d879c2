"""Pure functions on text and bytes: no files, no processes, no clock."""
