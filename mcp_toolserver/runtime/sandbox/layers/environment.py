"""The environment of commands: an allow-list, so what loads code or holds a secret is never passed on."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from mcp_toolserver.runtime.which import HOMEBREW

LOCALE = (
    *("LANG", "LANGUAGE", "LC_ALL", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION"),
    *("LC_MEASUREMENT", "LC_MESSAGES", "LC_MONETARY", "LC_NAME", "LC_NUMERIC", "LC_PAPER"),
    *("LC_TELEPHONE", "LC_TIME"),
)

PASSED = ("HOME", "USER", "LOGNAME", "TZ", "TERM", *LOCALE)
"""Passed on as they are."""

CERTIFICATES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"),
)
"""Name files of certificates."""

PASSED_PATHS = ("SHELL", "TMPDIR", *CERTIFICATES)
"""Passed on when they hold an absolute path."""

UNATTENDED = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""What makes programs neither page nor ask. Only `TERM` gives way to the server's own."""

OFFLINE = {"npm_config_fetch_retries": "0", "PIP_RETRIES": "0", "CARGO_NET_RETRY": "0"}
"""What makes package managers fail at once where there is no network; npm would try again for 70 s."""

CACHES = {"GOCACHE": "go-build", "UV_CACHE_DIR": "uv", "npm_config_cache": "npm", "PIP_CACHE_DIR": "pip"}
"""By variable the folder, in that of caches: the home of a confined program is read-only."""

DOWNLOADS = {"CARGO_HOME": "cargo", "GOMODCACHE": "go"}
"""The same where there is a network. Without one, packages are read from the home folder."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_UNTRUSTING_GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_PAGER": "cat",
}
"""What keeps git, run by the server itself, from the network, from questions and from writing."""


def command_environment(
    environ: Mapping[str, str], extra_names: Sequence[str] = (), *, network: bool = True
) -> dict[str, str]:
    """The variables of `environ` that a command gets, and our own. `network` is whether it has one.

    `extra_names` are the operator's, and may be patterns such as `CARGO_*`: what they name is passed on as it
    is, whatever it holds. `USER` and `LOGNAME` are always set: programs fail without them.
    """
    own = {**dict.fromkeys(("USER", "LOGNAME"), _user_name()), **UNATTENDED, **({} if network else OFFLINE)}
    wanted = (*PASSED, *extra_names)
    passed = {name: value for name, value in environ.items() if any(fnmatchcase(name, one) for one in wanted)}
    paths = {name: environ[name] for name in PASSED_PATHS if environ.get(name, "").startswith("/")}
    # Certificates are shown under the name that they have without links.
    paths |= {name: os.path.realpath(path) for name, path in paths.items() if name in CERTIFICATES}
    return {**own, **paths, **passed, "PATH": trusted_path(environ.get("PATH", ""))}


def proxy_variables(url: str, direct: Iterable[str]) -> dict[str, str]:
    """What makes programs use the proxy `url`, but for the hosts `direct`. Node.js does from version 24."""
    values = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": ",".join(direct)}
    lower = {name.lower(): value for name, value in values.items()}
    return {**values, **lower, "NODE_USE_ENV_PROXY": "1"}


def _user_name() -> str:
    """The name of the user of this process; the number where it has none, empty where there are no users."""
    try:
        # Missing on Windows, where no command runs.
        import pwd
    except ImportError:
        return ""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def helper_environment(commands: Mapping[str, str], own: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """What the server's own programs get: that of `commands`, but for git only our words and `own`."""
    passed = {name: value for name, value in commands.items() if not name.startswith("GIT_")}
    return {**passed, **_UNTRUSTING_GIT, **dict(own)}


def with_temporary(
    environment: Mapping[str, str], folder: str, caches: str = "", *, downloads: bool = False
) -> dict[str, str]:
    """`environment` with `folder`, unless empty, for temporary files, and with `caches`, or else a part of
    `folder`, for caches that it names no folder for; `downloads` is whether there is a network."""
    if not folder:
        return dict(environment)
    wanted = {**CACHES, **DOWNLOADS} if downloads else CACHES
    named = {name: f"{caches or f'{folder}/.caches'}/{cache}" for name, cache in wanted.items()}
    # From a cache on another mount, uv cannot link files.
    return {"UV_LINK_MODE": "copy", **named, **environment, "TMPDIR": folder}


def trusted_path(path: str) -> str:
    """`PATH` without the entries that mean "wherever the command runs": empty and relative ones. On macOS
    Homebrew's folders are added at the end.

    The default is added where no folder is left but that of the server's own Python: `uvx` puts it in front
    of the PATH, also of an empty one.
    """
    entries = [entry for entry in path.split(":") if entry.startswith("/")]
    own = os.path.join(os.path.realpath(sys.prefix), "bin")
    if all(os.path.realpath(entry) == own for entry in entries):
        entries.append(DEFAULT_PATH)
    if sys.platform == "darwin":
        entries += [folder for folder in HOMEBREW if folder not in entries]
    return ":".join(entries)
