"""Commands, code in interpreters, and what runs in the background: commands, agents and tasks, by handle."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from mcp_toolserver.capabilities.call_scope import SavedOutput
from mcp_toolserver.capabilities.files import CanonicalPath


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command for the shell."""

    script: str
    cwd: CanonicalPath
    timeout: float | None
    """Seconds until it is killed; None is no limit (background only)."""
    background: bool = False
    stdin: str = ""
    """Its whole standard input."""
    open_stdin: bool = False
    """Whether its standard input stays open for `JobSource.send` (background only)."""


QUIET_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class JobQuery:
    """What to read of a job, and how long to wait for it."""

    handle: str
    offset: int | None = None
    """Byte of the output to start from; None: for a command where the last read ended, for others 0."""
    limit: int
    """Bytes to read at most."""
    wait: float = 0.0
    """Seconds to wait at most; never longer than the client waits for an answer."""
    until: Literal["news", "end", "output"] = "end"
    """What to wait for: new output followed by `QUIET_SECONDS` without any, the end of the job, or output. A
    job that is no command has output when it ends."""
    is_read: bool = False
    """Whether the next read without an offset goes on after this one."""

    @property
    def start(self) -> int:
        """`offset` for a job that keeps no position."""
        return self.offset or 0


EndReason = Literal[
    "exited", "timed out", "stopped", "over a limit", "uncovered", "sandbox_failed", "unverified", "lost"
]
"""What ended a program: for the last three it is not known what it did."""


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A command or another job, running or ended, and what it has printed so far."""

    handle: str
    """For its owner only; empty for a command that ended in the foreground."""
    text: str = ""
    """The output asked for, stdout and stderr in the order written, decoded."""
    start: int = 0
    """Byte offset of `text` in the whole output."""
    next_offset: int = 0
    """Where to go on reading."""
    total: int = 0
    """Bytes printed so far."""
    running: bool
    exit_status: int | None = None
    """0-255, or 128 + signal; None while it runs, and for a job that is no command."""
    reason: Literal["running"] | EndReason
    seconds: float = 0.0
    status: str = ""
    """How it is doing, in words, for a job that is no command, for example `failed: no model`."""
    timeout: float | None = None
    """Seconds after which it is killed; None: never."""
    detail: str = ""
    """The limit that ended it, in words that go on from "it used"; or why its sandbox could not be set up; or
    what they did not protect any more."""
    notes: tuple[str, ...] = ()
    """What its reader should know as well: sentences."""
    saved_output: "SavedOutput | None" = None
    unsaved: str = ""
    """Why not all of the output was saved, in words that go on from "because"; empty when nothing failed."""
    omitted: int = 0
    """Bytes left out between `text` and `tail`, when the whole is too long to show."""
    tail: str = ""
    """The end of the output after what was left out."""


@runtime_checkable
class JobSource(Protocol):
    """The background jobs of one kind that the caller may use, by handle."""

    async def output(self, query: JobQuery) -> JobState:
        """The output that `query` asks for, once what it waits for has come.

        Raises:
            NotFound: the caller has no such handle, its record has expired, or its output was removed.
        """
        ...

    async def stop(self, handle: str) -> JobState:
        """Stop the job with all it started. A command that has ended stays as it is.

        Raises:
            NotFound: as for `output`.
            Conflict: the job cannot be stopped, because it is a task that has ended or that another server
                runs.
        """
        ...


@runtime_checkable
class MessageTarget(Protocol):
    """Agents, and commands with an open standard input."""

    async def send(self, to: str, message: str) -> tuple[str, ...]:
        """Send a message to agents, or a line to the command with the handle `to`; returns who got it.

        Raises:
            NotFound: the caller has no such command, or nobody of this name.
            Conflict: the command has no open input.
            Denied: the caller may not run this in a command.
            TimedOut: the command does not read.
        """
        ...


Language = Literal["python", "javascript", "shell"]


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """Code to run in a new interpreter or in a session."""

    language: Language
    code: str
    timeout: float
    """Seconds until the code is interrupted."""
    session: str = ""
    """Handle of a session; `new` starts one; empty runs the code in an interpreter of its own."""
    last: bool = False
    """Whether to end the session afterwards."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of a snippet."""

    state: JobState
    """The output; the exit status is 0 if the code ended without an error."""
    session: str = ""
    """Handle of the session; empty if it has ended."""
    pictures: tuple[bytes, ...] = ()
    """Displayed pictures; their format is not verified."""
    dropped: int = 0
    """Number of omitted pictures: too many or too large."""
    timed_out: bool = False
    gone: str = ""
    """Why the session ended unexpectedly; the words continue "the session"."""
    interpreter: str = ""
    """Version and path of the interpreter where there is a choice of them, that is for Python."""
