"""`doctor --hosts`: prints, as flags, the hosts that the user's configuration of package managers names."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mcp_toolserver.runtime.sandbox.proxy.allowed_hosts import parse_allowed_host, spelled
from mcp_toolserver.runtime.which import find_program
from mcp_toolserver.text.file_names import lies_in

_SECONDS = 30.0
_URL = re.compile(r"https?://(?:[^/@\s'\"]*@)?([^/\s'\"\\,|?#]+)")


@dataclass(frozen=True)
class _Source:
    """What has the configuration of a package manager, and what it uses by default."""

    asked: tuple[str, ...] = ()
    """Command lines, without the program, that print it."""
    files: tuple[str, ...] = ()
    """In the home folder, of programs that do not print it."""
    usual: tuple[str, ...] = ()
    unless: str = r"https?://"
    """A pattern of what replaces `usual`."""


_PYPI = ("pypi.org", "files.pythonhosted.org")

_SOURCES: Mapping[str, _Source] = {
    "pip": _Source(("config list",), usual=_PYPI, unless=r"(?<!extra-)index-url"),
    "uv": _Source(
        files=(".config/uv/uv.toml",), usual=_PYPI, unless=r"default *= *true|(?<!extra-)index-url"
    ),
    "npm": _Source(("config get registry", "config list")),
    "cargo": _Source((), (".cargo/config.toml",), ("index.crates.io", "static.crates.io"), "replace-with"),
    "go": _Source(("env GOPROXY",), usual=("proxy.golang.org", "sum.golang.org")),
    "git": _Source((r"config --global --get-regexp ^url\.",)),
    "apt-get": _Source(("indextargets --format $(SITE)",)),
}


def package_hosts(environ: Mapping[str, str], roots: Sequence[str]) -> int:
    """Print the hosts of each installed package manager, and the flags for all; exit status 0.

    The programs run outside of `roots`, and no file in them is read.
    """
    every = dict[str, None]()
    for name in _SOURCES:
        if (hosts := hosts_of(name, environ, roots)) is not None:
            every |= dict.fromkeys(hosts)
            print(f"{name}: {' '.join(hosts) or 'none'}")
    print(" ".join(("--network hosts", *(f"--allow-domain {host}" for host in every))))
    return 0


def hosts_of(name: str, environ: Mapping[str, str], roots: Sequence[str] = ()) -> Sequence[str] | None:
    """The hosts of one of the package managers; None if it is not installed."""
    source, folders = _SOURCES[name], environ.get("PATH", "").split(os.pathsep)
    if (program := find_program((name,), folders, roots)) is None:
        return None
    configuration = "\n".join(_configuration(source, program, environ.get("HOME", "/"), roots))
    hosts = () if re.search(source.unless, configuration) else source.usual
    return tuple(dict.fromkeys((*hosts, *named_hosts(configuration))))


def named_hosts(text: str) -> Iterator[str]:
    """The hosts of the addresses in a text."""
    for place in _URL.findall(text):
        with suppress(ValueError):
            entry = parse_allowed_host(place)
            yield spelled(entry.host, entry.port)


def _configuration(source: _Source, program: str, home: str, roots: Sequence[str]) -> Iterator[str]:
    for file in (os.path.realpath(os.path.join(home, name)) for name in source.files):
        if not any(lies_in(os.path.realpath(root), file) for root in roots):
            with suppress(OSError, UnicodeDecodeError):
                yield Path(file).read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        for line in source.asked:
            with suppress(OSError, subprocess.SubprocessError, UnicodeDecodeError):
                ended = subprocess.run(
                    [program, *line.split()],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    timeout=_SECONDS,
                    check=False,
                )
                yield ended.stdout.decode()
