"""Programs that the server starts, through the process broker."""
