"""The official programs that the server is tested with, installed once into a cache folder.

They come from npm and PyPI in the exact versions named here and in two files `package.json`. Nothing is put
into the source tree. `docs/internals/contributing.md` says how to choose the folder, and how to do without.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import venv
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import platformdirs

from tests import ROOT

PACKAGES = ROOT / "tests" / "conformance" / "package.json"
CLIENT_PACKAGES = ROOT / "tests" / "client_programs" / "package.json"

BUNDLE_TOOL = "@anthropic-ai/mcpb@2.1.2"
"""Validates and unpacks bundles, and fills in what their users configure."""

REGISTRY_SCHEMAS = "skillsaw==0.22.0"
"""Contains the schemas of `server.json`, as the MCP registry publishes them."""

NODE_SERVERS = (
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
    "@wonderwhy-er/desktop-commander@0.2.52",
)
PYTHON_SERVERS = ("mcp-server-git==2026.10.19", "mcp-server-fetch==2026.10.24", "serena-agent==2.1.0")
"""MCP servers in wide use, which the gateway is tested with."""

CACHE = "TOOLSERVER_TESTS_CACHE"
WITHOUT = "TOOLSERVER_TESTS_WITHOUT_OFFICIAL"
"""Set to 1, the tests that need these programs are left out."""

_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
_READY = "ready"
_SECONDS = 600
"""For an installation, on a slow line."""


def is_wanted() -> bool:
    """Whether this run tests with the official programs: where npm is, unless somebody says otherwise."""
    return os.environ.get(WITHOUT) != "1" and shutil.which("npm") is not None


def node(package: str, script: str) -> list[str]:
    """The command that runs a script of a package, on the Node that is pinned with it."""
    folder = node_modules()
    return [str(folder / "node" / "bin" / "node"), str(folder / package / script)]


def node_modules() -> Path:
    return _packages("node", PACKAGES.read_text(encoding="utf-8"))


def client_program(package: str) -> Path:
    """The folder of the commands of an MCP client, which is installed alone: some have hundreds of MB."""
    pinned = json.loads(CLIENT_PACKAGES.read_text(encoding="utf-8"))
    pinned["dependencies"] = {package: pinned["dependencies"][package]}
    name = f"client-{package.rpartition('/')[2]}"
    return _packages(name, json.dumps(pinned)) / ".bin"


def bundle_tool() -> Path:
    """The folder of the package that validates bundles."""
    return (
        _installed("bundles", BUNDLE_TOOL, partial(_install_by_npm, BUNDLE_TOOL))
        / "node_modules/@anthropic-ai/mcpb"
    )


def mcp_server(name: str) -> str:
    """The program of one of `NODE_SERVERS` and `PYTHON_SERVERS`, by its name there."""
    for package in PYTHON_SERVERS:
        if package.startswith(f"{name}=="):
            folder = _installed(f"server-{name}", package, partial(_install_python, package))
            return str(folder / "bin" / name.removesuffix("-agent"))
    install = partial(_install_by_npm, "--ignore-scripts", *NODE_SERVERS)
    programs = _installed("servers", " ".join(NODE_SERVERS), install) / "node_modules/.bin"
    return str(next(one for one in (programs / name, programs / f"mcp-{name}") if one.exists()))


def everything_server() -> Path:
    """The folder of the package `mcp_everything_server`, which the official SDK is tested with: an example in
    its source distribution, of the version that is installed here."""
    name = f"mcp-{version('mcp')}.tar.gz"
    return _installed("everything", name, partial(_unpack_everything_server, name))


def registry_schema(version: str) -> Path:
    """The file of the schema of `server.json` with this date."""
    folder = _installed("registry", REGISTRY_SCHEMAS, _install_registry_schemas)
    return folder / "skillsaw/schemas/mcp_registry" / f"v{version.replace('-', '_')}" / "server.schema.json"


def cache_folder() -> Path:
    """The folder of everything that tests install once."""
    return Path(os.environ.get(CACHE) or platformdirs.user_cache_path("mcp-toolserver-tests"))


def _packages(kind: str, wanted: str) -> Path:
    return _installed(kind, wanted, partial(_install_node, wanted)) / "node_modules"


def _installed(kind: str, wanted: str, install: Callable[[Path], None]) -> Path:
    """The folder in which `wanted` is installed; several processes may ask at once."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{kind}-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"
    with _alone(cache / f"{kind}.lock"):
        if not (folder / _READY).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            install(folder)
            (folder / _READY).touch()
    return folder


@contextmanager
def _alone(lock: Path) -> Generator[None]:
    import fcntl  # every run of the tests imports this module, also where there is no fcntl

    with lock.open("w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _install_node(wanted: str, folder: Path) -> None:
    (folder / "package.json").write_text(wanted, encoding="utf-8")
    # The packages ask for the Node that comes with them, not for the one that npm runs on.
    _install_by_npm("--engine-strict=false", folder)


def _install_by_npm(*arguments_and_folder: str | Path) -> None:
    *arguments, folder = arguments_and_folder
    npm = shutil.which("npm")
    assert npm is not None, "npm was there when the tests began"
    _run([npm, "install", "--no-audit", "--no-fund", "--no-package-lock", *map(str, arguments)], Path(folder))


def _install_registry_schemas(folder: Path) -> None:
    _run([sys.executable, *_PIP, "--no-deps", "--target", ".", REGISTRY_SCHEMAS], folder)


def _unpack_everything_server(name: str, folder: Path) -> None:
    simple = import_module("pip._internal.models.index").PyPI.simple_url
    index = urllib.request.Request(f"{simple}/mcp/")
    index.add_header("Accept", "application/vnd.pypi.simple.v1+json")
    with urllib.request.urlopen(index, timeout=60) as answer:
        (source,) = (one for one in json.load(answer)["files"] if one["filename"] == name)
    with urllib.request.urlopen(source["url"], timeout=_SECONDS) as answer:
        content = answer.read()
    assert hashlib.sha256(content).hexdigest() == source["hashes"]["sha256"]
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            if "/mcp_everything_server/" in member.name and (file := archive.extractfile(member)):
                place = folder / "mcp_everything_server" / Path(member.name).name
                place.parent.mkdir(exist_ok=True)
                place.write_bytes(file.read())


def _install_python(package: str, folder: Path) -> None:
    venv.create(folder, with_pip=True, symlinks=True)
    _run([str(folder / "bin" / "python"), *_PIP, package], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)} failed in {folder}:\n{done.stdout}"
