"""Schedules: their storage for a call, and the scheduler that runs them."""
