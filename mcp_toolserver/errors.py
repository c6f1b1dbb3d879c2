"""The error tree: one class per reaction of the reader.

    ToolError                   shown to the model; `str(error)` is written for it
    ├── InvalidInput            fix the arguments and call again
    ├── NotFound                look elsewhere
    ├── Conflict                read again, then retry
    ├── Denied                  do not retry
    ├── Unavailable             this server cannot do it here
    │   ├── SandboxUnavailable  a sandbox layer that the mode needs is missing
    │   └── NobodyToAsk         there is no user, or no way to reach one
    ├── TimedOut                smaller or later
    └── Failed                  an agent or a custom tool reports its own failure
    UnknownTool                 a protocol error (JSON-RPC -32602), the client's mistake
    RegistrationError           the programmer's mistake, stops start-up
    SettingsError               the operator's mistake, stops start-up with exit status 2

The text of a `ToolError` names the offender, then says what to do. It never holds another exception's text,
a traceback or the value of an argument that may be secret.
"""

from typing import ClassVar


class ToolError(Exception):
    """A failure whose text is sent to the model."""

    kind: ClassVar[str] = "internal"


class InvalidInput(ToolError):
    """The arguments are invalid; the text says how to fix them."""

    kind = "invalid_input"


class NotFound(ToolError):
    """A file, task or other thing that the call names does not exist."""

    kind = "not_found"


class Conflict(ToolError):
    """The state differs from what the call expected; nothing was changed."""

    kind = "conflict"


class Denied(ToolError):
    """The policy, the ceiling or the user rejected the call."""

    kind = "denied"


class Unavailable(ToolError):
    """A resource that the call needs is missing on this host."""

    kind = "unavailable"


class SandboxUnavailable(Unavailable):
    """A sandbox layer that the mode needs is missing; nothing was run without it."""

    kind = "sandbox_unavailable"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"SANDBOX_UNAVAILABLE: {why}. Nothing was run. `mcp-toolserver doctor` tells the operator of "
            "this server what is missing and how to get it."
        )


class NobodyToAsk(Unavailable):
    """The client cannot ask its user. The text never varies, so that programs can match it."""

    def __init__(self) -> None:
        super().__init__(
            "No human can be asked here: the client cannot put questions to its user. Do not ask again. Go "
            "on with what you know and say what you assumed, or end with the question."
        )


class TimedOut(ToolError):
    """The call took longer than its deadline."""

    kind = "timed_out"


class Failed(ToolError):
    """An agent did not finish, or a custom tool reports that it failed; the text is its own."""

    kind = "failed"


class UnknownTool(LookupError):
    """No tool has that name or alias."""


class RegistrationError(RuntimeError):
    """A tool or the registry is invalid: a programming error, not an error of a call."""


class SettingsError(ValueError):
    """A flag, environment variable or config key is invalid; the text lists the choices."""
