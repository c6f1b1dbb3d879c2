"""The tests; `python -m tests` is the whole gate."""
