"""What no command sees: credentials in the home folder, the server's own folder, the operator's secrets."""

import os
from collections.abc import Iterator

from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec

SOCKETS = ("/run", "/var/run")
"""Where services listen: containers, the session bus, agents that hold keys."""

CREDENTIALS = (
    *(".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".local/share/kwalletd"),
    *(".aws", ".azure", ".oci", ".kube", ".docker", ".terraform.d", ".config/gcloud", ".config/doctl"),
    *(".config/gh", ".config/glab-cli", ".config/hub", ".config/op", ".config/sops", ".config/rclone"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
    *(".netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".config/git/credentials"),
    *(
        ".pgpass",
        ".my.cnf",
        ".s3cfg",
        ".boto",
        ".vault-token",
        ".terraformrc",
        ".config/containers/auth.json",
    ),
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
    credentials = (f"{sandbox.home}/{name}" for name in CREDENTIALS) if sandbox.home.startswith("/") else ()
    for path in (*SOCKETS, *credentials, sandbox.state, *sandbox.hidden):
        if os.path.lexists(path):
            resolved = os.path.realpath(path)
            if os.path.exists(resolved):
                yield resolved, os.path.isdir(resolved)
