"""`doctor --hosts`: prints, as flags, the hosts that the user's configuration of package managers names."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mcp_toolserver.runtime.sandbox.proxy.allowed_hosts import parse_allowed_host, spelled
from mcp_toolserver.runtime.which import find_program
from mcp_toolserver.text.file_names import lies_in

_SECONDS = 30.0
_URL = re.compile(r"https?://(?:[^/@\s'\"]*@)?([^/\s'\"\\,|?#]+)")


@dataclass(frozen=True, kw_only=True)
class PackageManager:
    name: str
    asked: tuple[tuple[str, ...], ...] = ()
    """The arguments with which it prints its configuration."""
    files: tuple[str, ...] = ()
    """Its configuration, where it does not print that; in the home folder."""
    variables: str = ""
    """A pattern of environment variables that have part of it."""
    usual: tuple[str, ...] = ()
    """What it uses ..."""
    unless: str = r"https?://"
    """... unless this pattern is found."""


_PYPI = ("pypi.org", "files.pythonhosted.org")

MANAGERS = (
    PackageManager(name="pip", asked=(("config", "list"),), usual=_PYPI, unless=r"(?<!extra-)index-url"),
    PackageManager(
        name="uv",
        files=(".config/uv/uv.toml",),
        variables=r"UV_(DEFAULT_|EXTRA_)?INDEX(_URL)?",
        usual=_PYPI,
        unless=r"default *= *true|(?<!extra-)index-url|UV_(DEFAULT_INDEX|INDEX_URL)",
    ),
    PackageManager(name="npm", asked=(("config", "get", "registry"), ("config", "list"))),
    PackageManager(
        name="cargo",
        files=(".cargo/config.toml", ".cargo/config"),
        usual=("index.crates.io", "static.crates.io"),
        unless="replace-with",
    ),
    PackageManager(name="go", asked=(("env", "GOPROXY"),), usual=("proxy.golang.org", "sum.golang.org")),
    PackageManager(name="git", asked=(("config", "--global", "--get-regexp", r"^url\."),)),
    PackageManager(name="apt-get", asked=(("indextargets", "--format", "$(SITE)"),)),
)


def package_hosts(environ: Mapping[str, str], roots: Sequence[str]) -> int:
    """Print the flags for each installed package manager, and for all of them; exit status 0."""
    folders, every = environ.get("PATH", "").split(os.pathsep), dict[str, None]()
    for manager in MANAGERS:
        if program := find_program((manager.name,), folders, roots):
            hosts = _hosts(manager, _configuration(manager, program, environ, roots))
            every |= dict.fromkeys(hosts)
            print(f"{manager.name}: {' '.join(hosts) or 'none'}")
    print(" ".join(("--network hosts", *(f"--allow-domain {host}" for host in every))))
    return 0


def _configuration(
    manager: PackageManager, program: str, environ: Mapping[str, str], roots: Sequence[str]
) -> str:
    """What is configured for this user. No folder of the workspace is looked at."""
    found = [f"{name} {value}" for name, value in environ.items() if re.fullmatch(manager.variables, name)]
    for file in (os.path.join(environ.get("HOME", "/"), name) for name in manager.files):
        if not any(lies_in(os.path.realpath(root), os.path.realpath(file)) for root in roots):
            with suppress(OSError, UnicodeDecodeError):
                found.append(Path(file).read_text(encoding="utf-8"))
    with TemporaryDirectory() as folder:
        for arguments in manager.asked:
            with suppress(OSError, subprocess.SubprocessError, UnicodeDecodeError):
                command = subprocess.run(
                    [program, *arguments],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_SECONDS,
                    check=False,
                )
                found.append(command.stdout.decode())
    return "\n".join(found)


def _hosts(manager: PackageManager, configuration: str) -> list[str]:
    hosts = [] if re.search(manager.unless, configuration) else list(manager.usual)
    for place in _URL.findall(configuration):
        with suppress(ValueError):
            entry = parse_allowed_host(place)
            hosts.append(spelled(entry.host, entry.port))
    return list(dict.fromkeys(hosts))
