"""The cost of the sandbox: one command, a command that reads many files, and the start of the server."""

import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Launch, Unanswered
from benchmarks.figures import MILLISECOND, Row, difference, interleaved, ratio, seconds
from benchmarks.servers import ours
from benchmarks.tree import COMMON, grown

CONFINED = ("read-only", "workspace-write")
FULL = "danger-full-access"
MOST = 10 * MILLISECOND
MOST_FOR_ONE = 35 * MILLISECOND
"""A person does not feel it."""
FACTOR = 1.1
TREES = 5
"""Times the usual tree: what every command costs has lines of its own."""
PAUSE = 0.1
"""Seconds before each command, which a model takes in any case. What a server does meanwhile for its next one
would else be done while another takes its turn."""
SEARCH = f"grep -rc '{COMMON}' . | grep -c ':[1-9]'"


def run(effort: Effort, folder: Path) -> list[Row]:
    return [*_one_command(effort, folder), *_many_files(effort, folder), *_start(effort, folder)]


def _one_command(effort: Effort, folder: Path) -> list[Row]:
    root = _made(folder / "confined")
    with (
        Client(ours(root, mode=CONFINED[0])) as reading,
        Client(ours(root, mode=CONFINED[1])) as writing,
        Client(ours(root, mode=FULL)) as free,
    ):
        clients = dict(zip((*CONFINED, FULL), (reading, writing, free), strict=True))
        subjects = {
            "plain": partial(_rested, _plain),
            **{name: partial(_rested, partial(_seconds, client, "true")) for name, client in clients.items()},
        }
        interleaved(effort.rounds, subjects)
        taken = interleaved(effort.rounds * 4, subjects)
    return [
        *(
            difference(
                f"`bash true` in {mode}, less a plain subprocess",
                taken[mode],
                taken["plain"],
                most=MOST_FOR_ONE,
            )
            for mode in CONFINED
        ),
        ratio("`bash true` in read-only against danger-full-access", taken[CONFINED[0]], taken[FULL]),
    ]


def _many_files(effort: Effort, folder: Path) -> list[Row]:
    files = effort.tree_files * TREES
    tree = grown(folder / "confined-tree", files)
    with (
        Client(ours(tree, mode=CONFINED[0])) as reading,
        Client(ours(tree, mode=CONFINED[1])) as writing,
        Client(ours(tree, mode=FULL)) as free,
    ):
        clients = dict(zip((*CONFINED, FULL), (reading, writing, free), strict=True))
        found = {client.call("bash", {"command": SEARCH}).text for client in clients.values()}
        if len(found) != 1:
            raise Unanswered(f"the same search does not find the same: {found}")
        subjects = {
            name: partial(_rested, partial(_seconds, client, SEARCH)) for name, client in clients.items()
        }
        taken = interleaved(effort.rounds, subjects)
    what = f"`grep -r` over {files:,} files"
    return [
        ratio(f"{what} in {mode} against danger-full-access", taken[mode], taken[FULL], factor=FACTOR)
        for mode in CONFINED
    ]


def _start(effort: Effort, folder: Path) -> list[Row]:
    root = _made(folder / "confined-start")
    launches = {mode: ours(root, mode=mode) for mode in (*CONFINED, FULL)}
    subjects = {mode: partial(_to_list, launch) for mode, launch in launches.items()}
    interleaved(1, subjects)  # compiles, and fills the page cache
    taken = interleaved(effort.starts, subjects)
    return [
        difference(f"start in {mode}, less danger-full-access", taken[mode], taken[FULL], most=MOST)
        for mode in CONFINED
    ]


def _rested(measure: Callable[[], float]) -> float:
    time.sleep(PAUSE)
    return measure()


def _seconds(client: Client, command: str) -> float:
    return client.call("bash", {"command": command}).seconds


def _plain() -> float:
    return seconds(lambda: subprocess.run(["/bin/bash", "-c", "true"], check=True))


def _to_list(launch: Launch) -> float:
    """Ending the server is not counted."""
    start = time.perf_counter()
    with Client(launch) as client:
        client.request("tools/list", {})
        return time.perf_counter() - start


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


BENCHMARK = Benchmark(name="confined", title="Cost of the sandbox", run=run)
