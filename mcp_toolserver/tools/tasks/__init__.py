"""A board of tasks with dependencies, and background jobs of every kind."""
