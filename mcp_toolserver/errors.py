"""What can go wrong, one class per thing the reader should do differently.

    ToolError                   shown to the model; `str(error)` is written for it
    ├── InvalidInput            fix the arguments and call again
    ├── NotFound                look elsewhere
    ├── Conflict                read again, then retry
    ├── Denied                  do not retry
    ├── Unavailable             this server cannot do it here
    │   ├── SandboxUnavailable  the walls that its mode needs are missing
    │   └── NobodyToAsk         there is no human, or no way to reach one
    ├── TimedOut                smaller or later
    └── Failed                  a tool of the user's own says why
    UnknownTool                 a protocol error (JSON-RPC -32602), the client's mistake
    RegistrationError           the programmer's mistake, stops start-up
    SettingsError               the operator's mistake, stops start-up with exit status 2

The text of a `ToolError` names the offender, then says what to do. It never holds another exception's text,
a traceback or the value of an argument that may be secret.
"""

from typing import ClassVar


class ToolError(Exception):
    """A failure that the model is told about."""

    kind: ClassVar[str] = "internal"


class InvalidInput(ToolError):
    """The arguments cannot be used; the text says how to mend them."""

    kind = "invalid_input"


class NotFound(ToolError):
    """What the call names is not there."""

    kind = "not_found"


class Conflict(ToolError):
    """The world is not as the call assumed; nothing was changed."""

    kind = "conflict"


class Denied(ToolError):
    """The policy, the ceiling or the user said no."""

    kind = "denied"


class Unavailable(ToolError):
    """Something the call needs is missing on this host."""

    kind = "unavailable"


class SandboxUnavailable(Unavailable):
    """A wall that the mode needs is missing; nothing was run without it."""

    kind = "sandbox_unavailable"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"SANDBOX_UNAVAILABLE: {why}. Nothing was run. `mcp-toolserver doctor` tells the operator of "
            "this server what is missing and how to get it."
        )


class NobodyToAsk(Unavailable):
    """No human can be asked. The text is always the same, so that a program can tell."""

    def __init__(self) -> None:
        super().__init__(
            "No human can be asked here: the client cannot put questions to its user. Do not ask again. Go "
            "on with what you know and say what you assumed, or end with the question."
        )


class TimedOut(ToolError):
    """The call took longer than its deadline."""

    kind = "timed_out"


class Failed(ToolError):
    """A tool of the user's own says that it failed, in its own words."""

    kind = "failed"


class UnknownTool(LookupError):
    """No tool has that name under any of its spellings."""


class RegistrationError(RuntimeError):
    """A tool or the catalogue is wrong: a fault of who wrote it, not of a call."""


class SettingsError(ValueError):
    """A flag, environment variable or config key is wrong; the text lists the choices."""
