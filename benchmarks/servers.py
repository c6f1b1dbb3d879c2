"""How to start the servers that are compared."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.client import Launch

HERE = Path(__file__).parent
CACHE = HERE / ".cache" / "npm"
PACKAGE = "@modelcontextprotocol/server-filesystem"
VERSION = "2026.8.31"
INSTALL_PATIENCE = 300
NO_NODE = "not installed: it needs node and npm"


def environment() -> dict[str, str]:
    """That of this process, without the settings of our own server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MCP_TOOLSERVER_")}


def _python(module: str, *arguments: str) -> Launch:
    command = [sys.executable, "-m", module, *arguments]
    return Launch(command=command, cwd=HERE.parent, environment=environment())


def ours(
    root: Path, *, mode: str = "read-only", toolset: str = "default", more: Sequence[str] = ()
) -> Launch:
    """This project's server on `root`; its own files are outside the folder."""
    state = root.parent / "state"
    arguments = ("--permission-mode", mode, "--root", str(root), "--toolsets", toolset)
    return _python("mcp_toolserver", *arguments, "--state-dir", str(state), *more)


def bare() -> Launch:
    """A low-level server of the SDK with one tool, and nothing else."""
    return _python("benchmarks.bare_server")


def wrapped(launch: Launch, state: Path) -> Launch:
    """The same server behind `wrap`, in read-only mode."""
    command = ["wrap", "--state-dir", str(state), "--", *launch.command]
    return replace(launch, command=[sys.executable, "-m", "mcp_toolserver", *command])


def filesystem(root: Path) -> Launch | None:
    """The official filesystem server, installed first if need be; None where that cannot be done."""
    node = shutil.which("node")
    start = CACHE / "node_modules" / PACKAGE / "dist" / "index.js"
    if node is None or not (start.exists() or _installed(start)):
        return None
    return Launch(command=[node, str(start), str(root)], cwd=root, environment=environment())


def _installed(start: Path) -> bool:
    npm = shutil.which("npm")
    if npm is None:
        return False
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--prefix", str(CACHE), "--no-audit", "--no-fund", f"{PACKAGE}@{VERSION}"]
    subprocess.run(command, check=False, timeout=INSTALL_PATIENCE, stdout=sys.stderr)
    return start.exists()
