"""Servers of the simulated Darwin, on folders of their own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.client import Client, Launch
from tests.darwin.build import StandIn
from tests.support.processes import PATIENCE

HERE = Path(__file__).parents[2]
COMMANDS = frozenset({"bash", "REPL"})
"""Tools that run what a model writes."""

OF_PROGRAMS = COMMANDS | {"grep_search", "glob_search", "git_status", "git_log"}
"""Tools that start a program."""


@dataclass(frozen=True, kw_only=True)
class Mac:
    """A root, what lies around it, and how the server is started there."""

    base: Path
    setup: Mapping[str, Any]

    @property
    def root(self) -> Path:
        return self.base / "root"

    def line(self, mode: str, *arguments: str) -> list[str]:
        """The command line of a server."""
        options = (
            "--root",
            str(self.root),
            "--state-dir",
            str(self.base / "state"),
            "--permission-mode",
            mode,
        )
        return [
            sys.executable,
            str(HERE / "tests/darwin/server.py"),
            json.dumps(self.setup),
            *arguments,
            *options,
        ]

    @property
    def environment(self) -> dict[str, str]:
        # What a measured start costs is spent where Linux has the same lines.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        return {**kept, "PYTHONPATH": str(HERE), "HOME": str(self.base / "home")}

    def run(self, mode: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command of the server, to its end."""
        return subprocess.run(
            self.line(mode, *arguments), cwd=self.root, env=self.environment, check=False,
            capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL, timeout=6 * PATIENCE,
        )  # fmt: skip

    def tools(self, mode: str) -> set[str]:
        """The names of all that it offers."""
        done = self.run(mode, "tools", "--format", "json", "--toolsets", "all")
        assert done.returncode == 0, done.stderr
        return {tool["name"] for tool in json.loads(done.stdout)}

    def client(self, mode: str) -> Client:
        """A client of a server over stdio."""
        line = self.line(mode, "--toolsets", "all")
        return Client(Launch(command=line, cwd=self.root, environment=self.environment))


@contextmanager
def mac(stand_in: StandIn, sandbox_exec: str = "", **setup: Any) -> Generator[Mac]:
    """A machine with a git repository in its root. Paths are short, so that Unix sockets can have a name.

    The server's own process gets the sandbox of `stand_in`, and its programs that of `sandbox_exec` if given.
    """
    own = {"library": stand_in.library, "compiler": stand_in.program}
    setup = {"sandbox_exec": sandbox_exec or stand_in.program, **own, **setup}
    with tempfile.TemporaryDirectory(dir="/srv", prefix="d") as folder:
        made = Mac(base=Path(folder), setup=setup)
        for name in ("root/sub", "outside", "home"):
            (made.base / name).mkdir(parents=True)
        for name in ("root/file.txt", "outside/kept"):
            (made.base / name).write_text("needle\n", encoding="utf-8")
        subprocess.run(["git", "init", "-q", made.root], check=True, timeout=PATIENCE)
        yield made
