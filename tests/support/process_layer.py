"""The process layer that tests run on: `pytest --process-layer posix` runs them on the one of macOS."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcp_toolserver.runtime.processes import broker_client
from tests import ROOT

LAYERS = ("linux", "posix")

_LAUNCHER = str(Path(__file__).with_name("posix_program.py"))

_start_program = "-m"


def select(layer: str) -> None:
    """Run brokers of this process, and servers that tests start from now on, on `layer`."""
    global _start_program
    assert layer in LAYERS
    if layer == "posix":
        select_posix()
        _start_program = _LAUNCHER


def select_posix() -> None:
    """Replace the choice of the product in this process. No setting of the product does that."""
    broker_client.process_layer = lambda: "posix"


def selected() -> str:
    return broker_client.process_layer()


def mode_with_programs(mode: str) -> str:
    """`mode`, or danger-full-access where this layer has no sandbox on Linux.

    For tests of programs that are not about their sandbox.
    """
    return "danger-full-access" if selected() == "posix" else mode


def server_command() -> list[str]:
    """How to start the program: three words, of which the last is the module that is run."""
    return [sys.executable, _start_program, "mcp_toolserver"]


def ran(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path = ROOT, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """A command that has ended, whatever its status, with all that it printed."""
    return subprocess.run(
        command,
        env=env,
        cwd=cwd,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def on_terminal(
    *arguments: str, home: Path, errors_apart: bool = True
) -> tuple[subprocess.Popen[bytes], int]:
    """The program with a new terminal on its standard streams, and the other end of that terminal."""
    import pty  # every run of the tests imports this module, also where there is no pty

    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [*server_command(), *arguments],
        stdin=inner,
        stdout=inner,
        stderr=subprocess.PIPE if errors_apart else inner,
        cwd=ROOT,
        env={**os.environ, "HOME": str(home)},
    )
    os.close(inner)
    return process, outer
