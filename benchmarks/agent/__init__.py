"""What an agent's work costs with this server: calls, characters and time."""
