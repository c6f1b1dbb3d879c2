"""The simulated Darwin: `python server.py SETUP ARGUMENTS...` is the server there.

SETUP is JSON: `sandbox_exec`, the program that the server uses as /usr/bin/sandbox-exec; `probe_seconds`,
how long a probe may take; and, if the process is to confine itself, `library` and `compiler`, the paths of
the stand-in for libsandbox.

What is simulated: the name of the platform; names of Python's modules that only Linux has are gone;
F_GETPATH; the options of Apple's `ps`; `sandbox_init` and `sandbox-exec`. The rest is Linux: the kernel,
the file system, which keeps upper and lower case apart, and the programs.
"""

import ctypes
import fcntl
import json
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
    from mcp_toolserver.settings import Settings

F_GETPATH = 50
PRELOAD = "LD_PRELOAD"
COMPILER = "SEATBELT_STAND_IN_COMPILER"
INTERPRETER = "--interpreter"

LINUX_ONLY_SOCKETS = ("SOCK_SEQPACKET", "MSG_CMSG_CLOEXEC", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "AF_NETLINK")


def simulate(setup: Any) -> None:
    """Make this process look like one on macOS, before anything of the server is imported."""
    from tests.support.stripped import strip

    strip("darwin")
    for name in LINUX_ONLY_SOCKETS:
        if hasattr(socket, name):
            delattr(socket, name)
    # It chose when it was imported.
    tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]
    _simulate_f_getpath()
    _simulate_programs(setup)
    _simulate_libraries()
    _simulate_sandbox_exec(setup["sandbox_exec"])
    if "probe_seconds" in setup:
        from mcp_toolserver.runtime.sandbox.posix import proving

        proving.PROBE_SECONDS = setup["probe_seconds"]


def _simulate_sandbox_exec(program: str) -> None:
    from mcp_toolserver.app import confinement
    from mcp_toolserver.runtime.sandbox.layers import seatbelt

    seatbelt.SANDBOX_EXEC = program
    real = confinement.sandbox

    def simulated(settings: "Settings") -> "SandboxSpec":
        found = real(settings)
        programs = (program,) if os.path.exists(program) else ()
        return replace(found, programs=found.programs or programs)

    confinement.sandbox = simulated


def _simulate_f_getpath() -> None:
    real = fcntl.fcntl

    def simulated(descriptor: Any, command: int, argument: Any = 0) -> Any:
        if command != F_GETPATH:
            return real(descriptor, command, argument)
        path = os.fsencode(os.readlink(f"/proc/self/fd/{descriptor}"))
        return path.ljust(len(argument), b"\0")

    fcntl.fcntl = simulated


def _simulate_programs(setup: Any) -> None:
    """Let the `ps` of Linux understand the options for environments and for the time of children, and other
    interpreters be like this one."""
    real = os.posix_spawn
    options = {"-E": "e", "-S": "S"}

    def simulated(path: str, argv: Sequence[str], environment: Any, **more: Any) -> int:
        if os.path.basename(path) == "ps":
            argv = [options.get(word, word) for word in argv]
        elif path == sys.executable and argv[1:3] == ["-I", "-c"]:
            # An interpreter for a broker, which is one on macOS too.
            argv = [sys.executable, __file__, json.dumps(setup), INTERPRETER, *argv[3:]]
        return real(path, list(argv), environment, **more)

    os.posix_spawn = simulated


def _simulate_libraries() -> None:
    """Find libSystem and libsandbox in this process, where the stand-in is loaded."""
    real = ctypes.CDLL

    def simulated(name: str | None = None, *more: Any, **options: Any) -> ctypes.CDLL:
        return real(None if name and name.endswith(".dylib") else name, *more, **options)

    ctypes.CDLL = simulated  # type: ignore[misc, assignment]


def main() -> None:
    """Run the server."""
    setup = json.loads(sys.argv[1])
    library = setup.get("library")
    if library and os.environ.get(PRELOAD) != library:
        environment = {**os.environ, PRELOAD: library, COMPILER: setup["compiler"]}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    del sys.argv[1]
    sys.path[0] = str(Path(__file__).parents[2])
    simulate(setup)
    if sys.argv[1:2] == [INTERPRETER]:
        code = sys.argv[2]
        sys.argv[:] = ["-c", *sys.argv[3:]]
        exec(code, {"__name__": "__main__"})
        return
    from mcp_toolserver.main import main as serve

    serve()


if __name__ == "__main__":
    main()
