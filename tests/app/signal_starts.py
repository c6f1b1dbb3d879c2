"""Servers that get SIGINT or SIGTERM at a random moment of their start: `python -m tests.app.signal_starts`.

Each must end within a bound. It may leave a state folder with nothing temporary in it, and no process.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
    took: float
    """Seconds from the signal to the end of the last process."""
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


def starts(count: int, seed: int, latest: float = LATEST) -> list[Start]:
    """`count` starts, with signals until `latest` seconds after each; the same for the same seed."""
    chosen = random.Random(seed)
    return [
        Start(
            number=chosen.choice((signal.SIGINT, signal.SIGTERM)),
            delay=chosen.uniform(0, latest),
            mode=chosen.choice(MODES),
            transport=chosen.choice(("stdio", "stdio", "http")),
        )
        for _ in range(count)
    ]


def ending(start: Start) -> Ending:
    """Start a server, send it the signal, and look at what is left."""
    with tempfile.TemporaryDirectory(prefix="starts-", ignore_cleanup_errors=True) as base:
        home = Path(base)
        for name in ("root", "home", "tmp"):
            (home / name).mkdir()
        flags = () if start.transport == "stdio" else ("--transport", "http", "--port", "0")
        environ = {"TMPDIR": str(home / "tmp")}
        setup = Setup(root=home / "root", home=home / "home", mode=start.mode, flags=flags, environ=environ)
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
            began = time.monotonic()
            status = _status(process)
            remaining = _remaining(base, began + BOUND)
        return Ending(
            start=start,
            status=status,
            took=time.monotonic() - began,
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


def main() -> int:
    """Print what became of them; exit status 1 when one was not ended, or has left something."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--starts", type=int, default=2_000)
    options.add_argument("--seed", type=int, default=11)
    options.add_argument("--latest", type=float, default=LATEST, help="seconds until the last signals")
    options.add_argument("--at-once", type=int, default=2)
    given = options.parse_args()
    statuses, wrong, longest = Counter[tuple[str, int | None]](), 0, 0.0
    for one in endings(starts(given.starts, given.seed, given.latest), given.at_once):
        statuses[one.start.number.name, one.status] += 1
        longest = max(longest, one.took)
        if not one.is_right:
            wrong += 1
            print(f"{one.start}: status {one.status}, left {one.left}\n{one.said}", flush=True)
    for (name, status), count in sorted(statuses.items(), key=str):
        print(f"{name}: exit status {status}: {count}")
    print(f"{given.starts} starts, {wrong} wrong; the longest end took {longest:.2f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
