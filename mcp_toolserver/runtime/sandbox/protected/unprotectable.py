"""The error of a sandbox that cannot keep a path from commands. Importable on every system."""


class Unprotectable(Exception):
    """The sandbox cannot be set up around these roots. The text is for the operator and the model."""
