"""Read, write and edit files inside the roots."""
