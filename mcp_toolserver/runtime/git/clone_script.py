"""Builds the shell script that clones, with every program disabled that a repository or user could configure.

The script runs in the new folder. Its standard output matches `_CLONED`; everything else goes to standard
error.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from mcp_toolserver.capabilities.git import Cloned
from mcp_toolserver.errors import InvalidInput, NotFound, ToolError, Unavailable
from mcp_toolserver.runtime.git.hardening import FIXED

MIB = 1 << 20
MAX_BYTES = 1024 * MIB
"""Limit for the transfer and for the checked-out files."""

MAX_FILES = 200_000

_TOO_LARGE = 71
_POSIX_BLOCK = 512

_VARIABLES: Mapping[str, str] = {
    # Ignore the user's .netrc and URL rewriting.
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "LC_ALL": "C",
}

_SETTINGS: Mapping[str, str] = {
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "http.followRedirects": "false",
    "http.proxy": "",
    "http.sslVerify": "true",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "30",
    "advice.detachedHead": "false",
}

_CLONED = re.compile(r"(?P<commit>[0-9a-f]+)\n(?P<files>\d+) (?P<size>\d+)\n(?P<branch>.*)\n")


@dataclass(frozen=True, kw_only=True)
class ClonePlan:
    """What to clone, and how."""

    git: tuple[str, ...]
    """The first arguments of every git command."""
    address: str
    """`https://…` or `file://…`."""
    resolved: str = ""
    """`host:port:address,address`: the only addresses git may connect to."""
    branch: str = ""
    depth: int = 0
    most: int = MAX_BYTES


def clone_script(plan: ClonePlan) -> str:
    """Return the script for any POSIX shell."""
    git = shlex.join(plan.git)
    local = plan.address.startswith("file:")
    exports = (f"export {name}={shlex.quote(value)}" for name, value in _variables(plan).items())
    count = '{ n++; s += $4 } END { printf "%d %.0f\\n", n, s; exit '
    count += f"(s > {plan.most} || n > {MAX_FILES}) ? {_TOO_LARGE} : 0 }}"
    return "\n".join(
        (
            "set -eu",
            *exports,
            f"ulimit -f {-(-plan.most // _POSIX_BLOCK)}",
            shlex.join((*plan.git, *_clone(plan))),
            # A file path is meaningless outside this workspace.
            *((f"{git} remote remove origin",) if local else ()),
            f"{git} rev-parse --verify --quiet HEAD || exit 0",
            # Check before checkout: a small pack can expand to a huge tree.
            f"{git} ls-tree -r -l HEAD | awk {shlex.quote(count)}",
            f"{git} symbolic-ref --quiet --short HEAD || echo",
            f"{git} reset --quiet --hard",
        )
    )


def parse_clone_output(output: str, notes: tuple[str, ...]) -> Cloned:
    """Parse the output of the script."""
    found = _CLONED.fullmatch(output)
    if found is None:
        return Cloned(notes=notes)
    return Cloned(
        commit=found["commit"],
        branch=found["branch"],
        files=int(found["files"]),
        size=int(found["size"]),
        notes=notes,
    )


def clone_failure(status: int | None, complaints: bytes, source: str, plan: ClonePlan) -> ToolError:
    """Return an error in our own words: git's message may contain text from another host."""
    said = complaints.decode("utf-8", "replace")
    if status == _TOO_LARGE or "signal 25" in said or "File too large" in said:
        return InvalidInput(
            f"{source} is larger than {plan.most // MIB} MiB or {MAX_FILES:,} files, so it was not cloned. "
            "Set `depth` to fetch less."
        )
    if "Remote branch" in said:
        return NotFound(
            f"{source} has no branch or tag {plan.branch!r}. Omit `branch` to use the default one."
        )
    if "returned error: 30" in said:
        return Unavailable(
            f"{source} redirects to another address, which git does not follow. Use the final address."
        )
    if re.search(r"not found|could not read Username|Authentication failed|returned error: 40", said):
        return NotFound(f"There is no repository at {source} that may be read without a password.")
    return Unavailable(f"git could not clone {source} (exit status {status}).")


def _variables(plan: ClonePlan) -> dict[str, str]:
    scheme = plan.address.partition(":")[0]
    settings = {**FIXED, **_SETTINGS, f"protocol.{scheme}.allow": "always"}
    if plan.resolved:
        settings["http.curloptResolve"] = plan.resolved
    numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
    for index, (name, value) in enumerate(settings.items()):
        numbered |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
    # Remote helper processes for local clones inherit variables but not settings.
    return {**_VARIABLES, "GIT_ALLOW_PROTOCOL": scheme, **numbered}


def _clone(plan: ClonePlan) -> tuple[str, ...]:
    options = (
        *(
            "--quiet",
            "--no-checkout",
            "--template=",
            "--no-recurse-submodules",
            "--no-hardlinks",
            "--no-local",
        ),
        *((f"--branch={plan.branch}",) if plan.branch else ()),
        *((f"--depth={plan.depth}",) if plan.depth else ()),
    )
    return "clone", *options, "--", plan.address, "."
