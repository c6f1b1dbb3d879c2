"""Servers that get SIGINT or SIGTERM at a random moment of their start.

Each must end within a bound. It may leave a state folder with nothing temporary in it, and no process.
"""

import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.families import mentioning
from tests.support.live import MODES, Setup

LATEST = 0.7
"""Seconds after the start of a server at which the last signals come."""

BOUND = 30.0
"""Seconds in which a server ends after the signal, with all of its processes."""

TEMPORARY = ("sessions/*", "scratch/*", "**/*.tmp", "**/.new-*")
"""What a server that has ended must not have left in its state folder."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """One server and its signal."""

    number: signal.Signals
    delay: float
    """Seconds between the start of the process and the signal."""
    mode: str
    transport: str


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What became of one."""

    start: Start
    status: int | None
    """Exit status; None for a server that had to be killed."""
    left: tuple[str, ...]
    """Processes and files that should be gone."""
    said: str
    """Standard error."""

    @property
    def is_right(self) -> bool:
        """Whether the signal ended it, and nothing is left."""
        number = self.start.number
        # Before the first line of the package, Python itself takes SIGINT, and may end with a traceback.
        by_python = number == signal.SIGINT and self.status == 1 and "mcp_toolserver" not in self.said
        return (self.status in (-number, 128 + number) or by_python) and not self.left


def starts(count: int, seed: int) -> list[Start]:
    """`count` starts; the same for the same seed."""
    chosen = random.Random(seed)
    return [
        Start(
            number=chosen.choice((signal.SIGINT, signal.SIGTERM)),
            delay=chosen.uniform(0, LATEST),
            mode=chosen.choice(MODES),
            transport=chosen.choice(("stdio", "stdio", "http")),
        )
        for _ in range(count)
    ]


def ending(start: Start) -> Ending:
    """Start a server, send it the signal, and look at what is left."""
    with tempfile.TemporaryDirectory(prefix="starts-", ignore_cleanup_errors=True) as base:
        home = Path(base)
        (home / "tmp").mkdir()
        flags = () if start.transport == "stdio" else ("--transport", "http", "--port", "0")
        environ = {"TMPDIR": str(home / "tmp")}
        setup = replace(Setup.below(home, start.mode, *flags), environ=environ)
        with (home / "stderr").open("wb") as errors:
            process = subprocess.Popen(
                setup.command,
                env=setup.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        with process:
            # The moment of the signal is what varies here; nothing is waited for.
            time.sleep(start.delay)
            process.send_signal(start.number)
            until = time.monotonic() + BOUND
            status = _status(process)
            remaining = _remaining(base, until)
        return Ending(
            start=start,
            status=status,
            left=(*remaining, *_files(home)),
            said=(home / "stderr").read_text(encoding="utf-8", errors="replace"),
        )


def endings(chosen: Sequence[Start], at_once: int) -> Iterator[Ending]:
    """What becomes of these starts, `at_once` of them at the same time."""
    with ThreadPoolExecutor(at_once) as threads:
        yield from threads.map(ending, chosen)


def _status(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(BOUND)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def _remaining(mark: str, until: float) -> list[str]:
    """The processes in whose arguments `mark` occurs, if they do not end in time."""
    while (found := mentioning(mark)) and time.monotonic() < until:
        time.sleep(0.01)
    return [" ".join(words) for words in found]


def _files(home: Path) -> Iterator[str]:
    yield from map(str, (home / "tmp").iterdir())
    yield from map(str, (home / "root").iterdir())
    yield from (str(path) for path in (home / "home").iterdir() if path.name != "state")
    for pattern in TEMPORARY:
        yield from map(str, (home / "home/state").glob(pattern))
    yield from (str(path) for path in home.rglob("*") if path.is_socket())
