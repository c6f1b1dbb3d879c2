"""Detects in the output of a command what the sandbox probably blocked. A hint for the reader, never a
decision.
"""

import re
from dataclasses import dataclass

_UNWRITABLE = re.compile(r"read-only file system|\berofs\b", re.IGNORECASE)
_GIT = re.compile(r"(?:^|[\s'\"/:])\.git(?:/|['\"\s:]|$)", re.MULTILINE)
_NETWORK = re.compile(
    r"could not resolve host|temporary failure in name resolution|network is unreachable"
    r"|name or service not known|socket: (?:permission|operation not permitted)|enetunreach|eai_again",
    re.IGNORECASE,
)


_SIGNAL = re.compile(r"\bp?kill(?:all)?\b.*operation not permitted", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Confined:
    """The permissions of commands on this host."""

    writes: bool
    git: bool
    """Whether `.git` can be written."""
    network: bool


def explain(output: str, confined: Confined) -> tuple[str, ...]:
    """Explain, from the output of a failed command, what the sandbox refused; empty if it does not tell."""
    notes: list[str] = []
    if _UNWRITABLE.search(output):
        notes.append(_why_unwritable(output, confined))
    if not confined.network and _NETWORK.search(output):
        notes.append(
            "Commands have no network here; the operator can start the server with --network commands."
        )
    if _SIGNAL.search(output):
        notes.append("A command here can signal only the processes that it started.")
    return tuple(notes)


def _why_unwritable(output: str, confined: Confined) -> str:
    if not confined.writes:
        return (
            "This server is read-only: commands write to $TMPDIR only. The operator can start it with "
            "--permission-mode workspace-write."
        )
    if not confined.git and _GIT.search(output):
        return (
            ".git is read-only for commands here, so they cannot commit. The operator can start the server "
            "with --git writable."
        )
    return (
        "Commands write to the roots and to $TMPDIR only; and not to what editors, shells, agents and git "
        "act upon by themselves."
    )
