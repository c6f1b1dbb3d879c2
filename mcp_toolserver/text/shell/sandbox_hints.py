"""Detects in the output of a command what probably went wrong, such as a refused write or a missing program.
A hint for the reader, never a decision.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_UNWRITABLE = re.compile(r"read-only file system|\berofs\b", re.IGNORECASE)
_GIT = re.compile(r"(?:^|[\s'\"/:])\.git(?:/|['\"\s:]|$)", re.MULTILINE)
_NETWORK = re.compile(
    r"could not resolve host|temporary failure in name resolution|network is unreachable"
    r"|name or service not known|socket: (?:permission|operation not permitted)|enetunreach|eai_again",
    re.IGNORECASE,
)


_MISSING = re.compile(
    r"^(?:[\w./-]+: )?(?:line \d+: |\d+: )?(?P<name>[\w.+-]+): (?:command )?not found$"
    r"|^(?:\S*/)?env: .(?P<started>[\w.+-]+).: No such file or directory$",
    re.MULTILINE,
)
"""What bash, other shells and `env` say of a program that they cannot find."""

_KILLED = re.compile(r"^\S+: line \d+: +\d+ Killed\b", re.MULTILINE)
_KILLED_STATUS = 128 + 9

_NO_REPOSITORY = re.compile(r"not (?:appear to be )?a git repository|fatal: repository '.*' does not exist")

_SIGNAL = re.compile(r"\bp?kill(?:all)?\b.*operation not permitted", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Confined:
    """The permissions of commands on this host."""

    writes: bool
    git: bool
    """Whether `.git` can be written."""
    network: bool
    hidden_git: Callable[[], Sequence[tuple[str, str]]] = tuple
    """Returns the `.git` folders that commands see empty, each with the reason."""
    git_tools: tuple[str, ...] = ()
    """Tools that the model may call and that write in `.git`, where commands cannot."""
    token: str = ""
    """The name of the caller's token, where it limits the commands more than the server does."""


def explain(output: str, status: int | None, confined: Confined | None) -> tuple[str, ...]:
    """Explain in sentences why parts of a command failed, as far as its output and exit status tell.

    The whole command need not have failed: a pipeline hides the failure of its first part. `status` is None
    while it runs, and `confined` None where nothing confines commands.
    """
    notes = [] if confined is None else _refusals(output, confined)
    if missing := _MISSING.search(output):
        name = missing["name"] or missing["started"]
        notes.append(
            f"{name} is not on the PATH of commands here: name it by its path, or ask the user for it."
        )
    if status == _KILLED_STATUS or _KILLED.search(output):
        notes.append("A process was killed with SIGKILL, as the kernel does when memory runs out.")
    return tuple(notes)


def _refusals(output: str, confined: Confined) -> list[str]:
    notes: list[str] = []
    if _UNWRITABLE.search(output):
        notes.append(_why_unwritable(output, confined))
    if not confined.network and _NETWORK.search(output):
        notes.append(
            "Commands have no network here; the operator can start the server with --network commands."
        )
    if _NO_REPOSITORY.search(output):
        notes += [
            f"{folder} is empty for commands: {why}. The git tools, which check paths, go on working."
            for folder, why in confined.hidden_git()[:3]
        ]
    if _SIGNAL.search(output):
        notes.append("A command here can signal only the processes that it started.")
    return notes


def _why_unwritable(output: str, confined: Confined) -> str:
    if not confined.writes:
        source, advice = "This server", "start it with --permission-mode workspace-write"
        if confined.token:
            source, advice = f"The token {confined.token!r}", "change the token"
        return f"{source} is read-only: commands write to $TMPDIR only. The operator can {advice}."
    if not confined.git and _GIT.search(output):
        return _why_no_git(confined.git_tools)
    return (
        "Commands write to the roots and to $TMPDIR only, where the call may write; and not to what editors, "
        "shells, agents and git act upon by themselves."
    )


def _why_no_git(git_tools: tuple[str, ...]) -> str:
    why = (
        ".git is read-only for commands here, so they cannot stage or commit; mv and rm work on files, and "
        "commits include what they did."
    )
    if git_tools:
        return f"{why} Use these tools: {', '.join(git_tools)}."
    return (
        f"{why} The operator can offer tools for it with --toolsets default,git, or start the server with "
        "--git writable."
    )
