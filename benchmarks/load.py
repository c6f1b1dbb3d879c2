"""Many clients at once over HTTP against one server process: reads and searches, for a minute."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles

from benchmarks.benchmark import FULL, Benchmark, Effort
from benchmarks.client import Unanswered
from benchmarks.figures import Row, at_most, milliseconds
from benchmarks.load_clients import Plan, Seen
from benchmarks.memory import megabytes, resident
from benchmarks.servers import HERE, ours
from benchmarks.tree import COMMON, FEW, RARE, grown

SPREAD = 20.0
"""The slowest of a hundred calls may take so many times the middle one."""

GROWTH = 1.3
WARM_SHARE = 1 / 6
"""Memory is compared from here on: by then every path has been gone once."""

TOKEN = "a-token-for-the-benchmark-alone"


@dataclass(frozen=True, kw_only=True)
class Load:
    """How much comes at once, and for how long."""

    clients: int
    seconds: float
    tree_files: int


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What came of it."""

    seen: Seen
    seconds: float
    memory_warm: int
    memory_end: int


def run(effort: Effort, folder: Path) -> list[Row]:
    whole = effort is FULL
    load = Load(
        clients=200 if whole else 20, seconds=60.0 if whole else 4.0, tree_files=effort.tree_files // 10
    )
    return rows(load, measured(load, folder))


def rows(load: Load, figures: Figures) -> list[Row]:
    """The figures against what is asked for."""
    seen = figures.seen
    taken = [seconds for client in seen.seconds for seconds in client]
    cuts = quantiles(taken, n=100)
    middle, slow = cuts[49], cuts[98]
    fewest, most = (pick(map(len, seen.seconds)) for pick in (min, max))
    what = f"{load.clients} clients, {load.seconds:g} s"
    return [
        at_most(f"{what}: errors", len(seen.errors), 0, lambda value: f"{value:.0f}"),
        Row(what="calls a second", ours=f"{len(taken) / figures.seconds:.0f}"),
        Row(what="half of the calls are answered in", ours=milliseconds(middle)),
        Row(what="99 of 100 calls are answered in", ours=milliseconds(slow)),
        at_most("the latter against the former", slow / middle, SPREAD, lambda value: f"{value:.1f} ×"),
        Row(
            what="calls of the client that got fewest, and of the one that got most", ours=f"{fewest}, {most}"
        ),
        at_most(
            f"memory at the end against that after {load.seconds * WARM_SHARE:.1f} s "
            f"({megabytes(figures.memory_warm)})",
            figures.memory_end / figures.memory_warm,
            GROWTH,
            lambda value: f"{value:.2f} ×",
        ),
    ]


def measured(load: Load, folder: Path) -> Figures:
    """Put the load on a server of its own.

    Raises:
        Unanswered: the server or the clients did not start, or hardly any call was answered.
    """
    tree = grown(folder / "load", load.tree_files)
    with serving(tree, folder) as (pid, port):
        files = sorted(str(path.relative_to(tree)) for path in tree.rglob("*.py"))[:500]
        patterns = [COMMON, FEW, RARE]
        plan = Plan(
            port=port, token=TOKEN, clients=load.clients, seconds=load.seconds, files=files, patterns=patterns
        )
        command = [sys.executable, "-m", "benchmarks.load_clients", json.dumps(asdict(plan))]
        begun = time.perf_counter()
        with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, encoding="utf-8") as clients:
            time.sleep(load.seconds * WARM_SHARE)
            warm = resident(pid)
            said, _ = clients.communicate(timeout=load.seconds * 4 + 60)
        seconds = time.perf_counter() - begun
        end = resident(pid)
    if clients.returncode:
        raise Unanswered("the clients failed; what they said stands above")
    seen = Seen(**json.loads(said))
    for error in sorted(set(seen.errors))[:5]:
        sys.stderr.write(f"{error}\n")
    if not all(seen.seconds):
        raise Unanswered(f"a client got no answer: {seen.errors[:3]}")
    return Figures(seen=seen, seconds=seconds, memory_warm=warm, memory_end=end)


@contextmanager
def serving(tree: Path, folder: Path) -> Generator[tuple[int, int]]:
    """Our server over HTTP; its process and port."""
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    token.chmod(0o600)
    http = ("--transport", "http", "--port", "0", "--token-file", str(token))
    launch = ours(tree, more=http)
    with subprocess.Popen(
        launch.command, cwd=launch.cwd, env=launch.environment, stderr=subprocess.PIPE, encoding="utf-8"
    ) as server:
        assert server.stderr is not None
        said = ""
        try:
            while (found := re.search(r"http://\S+:(\d+)/", said)) is None:
                line = server.stderr.readline()
                if not line:
                    raise Unanswered(f"the server did not start: {said}")
                said += line
            yield server.pid, int(found[1])
        finally:
            server.terminate()


BENCHMARK = Benchmark(name="load", title="Many clients at once over HTTP", run=run)
