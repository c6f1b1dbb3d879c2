"""The sandbox that the operator wants, and what the self-test proved on this machine.

Both are fixed at start; no request changes them.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.json_values import is_list

Layer = Literal["bubblewrap", "landlock", "seatbelt", "none"]
"""What holds a command: a mount namespace of its own with a seccomp filter; Landlock with a seccomp filter; a
Seatbelt profile on macOS; or nothing."""

Reach = Literal["folder", "system"]
"""What a helper program may read: the folder it is started in, or what a read-only command may."""

PROXY_PORT = 31280
"""That of the proxy, in each session; the kernel gives it to nobody by itself."""

CACHES_PATH = "/var/tmp/caches"  # noqa: S108  # of the command's own
"""Where commands that may write in the roots find the package caches of their workspace."""

TEMPORARY = "/tmp"  # noqa: S108  # the session's own
"""The temporary folder that the commands of a session may share, as they and the file tools call it."""


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """What is wanted."""

    mode: str
    """The permission mode, as the flag spells it."""
    roots: tuple[str, ...]
    """Absolute, links resolved; none lies in another."""
    home: str
    state: str
    """The server's private folder: no command sees it."""
    read_only: tuple[str, ...] = ()
    """Roots, and folders in them, that nothing may write in, whatever the mode. Links resolved."""
    hidden: tuple[str, ...] = ()
    """Files and folders that no command sees, because they hold the operator's secrets."""
    network: bool = False
    """Whether commands may use it."""
    hosts: tuple[str, ...] = ()
    """Without it, the hosts that they reach through the proxy; see `allowed_hosts`."""
    certificates: tuple[str, ...] = ()
    """Files that commands read also where others are hidden, links resolved."""
    git_writable: bool = False
    """Whether commands may commit; hooks and configuration stay read-only."""
    writable_names: tuple[str, ...] = ()
    """Protected names that the operator excepted."""
    allow_degraded: bool = False
    """Whether Landlock alone will do for commands that may write."""
    quarantine_bytes: int = 1 << 30
    """How much the quarantine takes; more stays next to where it was, under another name."""
    programs: tuple[str, ...] = ()
    """Where bubblewrap may be, absolute; the first that is proven is used."""

    def is_read_only(self, path: str) -> bool:
        """Whether `path`, absolute and without links, lies in what nothing may write in."""
        return any(lies_in(folder, path) for folder in self.read_only)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was tried inside the sandbox, to see it work or fail."""

    name: str
    """As `doctor` prints it, such as "a file outside is not changed"."""
    held: bool
    seen: str = ""
    """What happened instead, when it did not hold."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What this machine was seen to keep."""

    commands: Layer = "none"
    """What commands of a model run behind; "none" below danger-full-access means that none runs."""
    helpers: Layer = "none"
    """What the server's own programs run behind."""
    program: str = ""
    """Bubblewrap, absolute, where it is used."""
    filtered: bool = True
    """Whether system calls are filtered too. Where they cannot be, bubblewrap stands alone."""
    shares_session: bool = False
    """Whether the commands of a session share a temporary folder and, without another network, a loopback
    interface. Otherwise each has its own."""
    checks: tuple[Check, ...] = ()
    """Of the layer that is used."""
    reasons: tuple[str, ...] = ()
    """Why a better layer is not used, each with what was tried."""
    failed: tuple[str, ...] = ()
    """Names of the checks that a layer failed, which is not used."""
    stop: str = ""
    """Why the server must not even start, or nothing."""


def encode_proof(proof: Proof) -> bytes:
    return json.dumps(asdict(proof)).encode() + b"\n"


def decode_proof(line: bytes) -> Proof:
    message = json.loads(line)
    message["checks"] = [Check(**check) for check in message["checks"]]
    return Proof(**with_tuples(message))


def with_tuples(message: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a class in JSON, which has lists only."""
    return {name: tuple(value) if is_list(value) else value for name, value in message.items()}


def may_share(roots: Iterable[str], made: Iterable[str] = ()) -> bool:
    """Whether commands may share a temporary folder with these roots and these mounts.

    No mount may lie in it: one command could replace a folder on the way to it while the sandbox of another
    is set up, and so move the mount. It may lie in no root, or it would have two names.
    """
    below = (path for path in (*roots, *made) if path != TEMPORARY)
    return not any(lies_in(root, TEMPORARY) for root in roots) and not any(
        lies_in(TEMPORARY, path) for path in below
    )


# --- what no command sees: credentials in the home folder, the server's own folder, the operator's secrets

SOCKETS = ("/run", "/var/run")
"""Where services listen: containers, the session bus, agents that hold keys."""

CREDENTIALS = (
    *(".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".local/share/kwalletd"),
    *(".aws", ".azure", ".oci", ".kube", ".docker", ".terraform.d", ".config/gcloud", ".config/doctl"),
    *(".config/gh", ".config/glab-cli", ".config/hub", ".config/op", ".config/sops", ".config/rclone"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
    *(".netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".config/git/credentials"),
    *(".pgpass", ".my.cnf", ".s3cfg", ".boto", ".vault-token", ".terraformrc"),
    ".config/containers/auth.json",
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history"),
)
"""Relative to the home folder. Shell histories contain typed passwords."""

MAC_CREDENTIALS = (
    *("Library/Keychains", "Library/Cookies", "Library/HTTPStorages", "Library/Safari", "Library/Mail"),
    *("Library/Messages", "Library/Accounts", "Library/IdentityServices", "Library/Thunderbird"),
    *("Library/Application Support/com.apple.TCC", "Library/Application Support/Google/Chrome"),
    *("Library/Application Support/Chromium", "Library/Application Support/BraveSoftware"),
    *("Library/Application Support/Firefox", "Library/Application Support/Microsoft Edge"),
    *("Library/Application Support/1Password", "Library/Containers", "Library/Group Containers"),
)
"""The same on macOS: keychains, and what browsers, mail and applications in a container keep."""


def credentials(home: str) -> tuple[str, ...]:
    """The credentials in the folder `home`, whether they exist or not; none if that is not known."""
    names = (*CREDENTIALS, *MAC_CREDENTIALS)
    return tuple(f"{home.rstrip('/')}/{name}" for name in names) if home.startswith("/") else ()


def secret_paths(sandbox: SandboxSpec) -> Iterator[tuple[str, bool]]:
    """What exists of all that, links resolved, each with whether it is a folder."""
    at_home = (f"{sandbox.home}/{name}" for name in CREDENTIALS) if sandbox.home.startswith("/") else ()
    for path in (*SOCKETS, *at_home, sandbox.state, *sandbox.hidden):
        if os.path.lexists(path):
            resolved = os.path.realpath(path)
            if os.path.exists(resolved):
                yield resolved, os.path.isdir(resolved)
