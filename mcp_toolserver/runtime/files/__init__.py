"""The workspace: path resolution, reading, atomic writes."""
