"""What reaches the desktop of the user."""
