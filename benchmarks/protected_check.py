"""What the check for protected names adds to a command: a pass over every folder before it, and one after."""

import shutil
import time
from functools import partial
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client
from benchmarks.figures import MILLISECOND, Row, difference, interleaved
from benchmarks.servers import ours
from benchmarks.tree import grown

MODE = "workspace-write"
FOLDERS = 50_000
PER_FOLDER = 50
MOST_FILES, MOST_FOLDERS = 15 * MILLISECOND, 150 * MILLISECOND
PAUSE = 0.1
"""Seconds before each command, as in `confined`."""

SETTLING = 3.0
"""Seconds: a folder that has just been made is listed by every check, because its time may not tell of the
next change."""


def run(effort: Effort, folder: Path) -> list[Row]:
    empty, many = folder / "check-empty/root", folder / "check-folders/root"
    empty.mkdir(parents=True)
    try:
        count = FOLDERS * effort.tree_files // 20_000
        _with_folders(many, count)
        tree = grown(folder, effort.tree_files)
        time.sleep(SETTLING)
        with (
            Client(ours(empty, mode=MODE)) as nothing,
            Client(ours(tree, mode=MODE)) as files,
            Client(ours(many, mode=MODE)) as folders,
        ):
            clients = {"nothing": nothing, "files": files, "folders": folders}
            subjects = {name: partial(_seconds, client) for name, client in clients.items()}
            interleaved(max(effort.rounds // 4, 2), subjects)
            taken = interleaved(effort.rounds, subjects)
    finally:
        shutil.rmtree(many, ignore_errors=True)
    less = "less the same in an empty root"
    return [
        difference(
            f"`bash true` with {effort.tree_files:,} files, {less}",
            taken["files"],
            taken["nothing"],
            most=MOST_FILES,
        ),
        difference(
            f"`bash true` with {count:,} folders, {less}",
            taken["folders"],
            taken["nothing"],
            most=MOST_FOLDERS,
        ),
    ]


def _with_folders(root: Path, count: int) -> None:
    """Make `count` folders below `root`, `PER_FOLDER` in each that has any."""
    for number in range(count // (PER_FOLDER + 1)):
        inner = root / f"part_{number // PER_FOLDER}" / f"module_{number % PER_FOLDER}"
        inner.mkdir(parents=True)
        for name in range(PER_FOLDER):
            (inner / f"folder_{name}").mkdir()


def _seconds(client: Client) -> float:
    time.sleep(PAUSE)
    return client.call("bash", {"command": "true"}).seconds


BENCHMARK = Benchmark(name="protected", title="What the check for protected names costs", run=run)
