"""How well agents get on with the server: their first calls, replayed, and real tasks, scripted."""
