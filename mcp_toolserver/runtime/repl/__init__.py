"""REPL sessions."""
