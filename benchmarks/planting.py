"""How long a background command can put code where the user's `git status` runs it, by planting in a loop."""

import subprocess
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client
from benchmarks.figures import Row, at_most
from benchmarks.servers import ours

LOOKING = 20.0
"""Seconds for which the user looks."""
PAUSE = 0.05
"""Seconds between two looks."""
WINDOW = 1.5
APART = 1.0
"""Seconds without planted code, after which its next run opens another window."""

PREPARING = """
git init -q made && mkdir layout && mv made/.git layout/git && rmdir made && mkdir package
git config -f layout/git/config core.fsmonitor 'date +%s.%N >> "$RAN"; false'
"""
PLANTING = "while :; do [ -e package/.git ] || cp -r layout/git package/.git; sleep 0.01; done"


def run(effort: Effort, folder: Path) -> list[Row]:
    del effort
    root, ran = folder / "planting", folder / "planting-ran"
    root.mkdir()
    subprocess.run(["sh", "-c", PREPARING], cwd=root, check=True)
    with Client(ours(root, mode="workspace-write")) as client:
        client.call("bash", {"command": PLANTING, "run_in_background": True})
        look = ["env", f"RAN={ran}", "git", "-C", str(root / "package"), "status"]
        end = time.monotonic() + LOOKING
        while time.monotonic() < end:
            subprocess.run(look, check=False, capture_output=True)
            time.sleep(PAUSE)
    times = [float(line) for line in ran.read_text(encoding="utf-8").split()] if ran.exists() else []
    windows = bool(times) + sum(after - before > APART for before, after in pairwise(times))
    lasted = times[-1] - times[0] if times else 0.0
    return [
        at_most("windows in which planted code ran", windows, 1, "{:.0f}".format),
        at_most("from its first run to its last", lasted, WINDOW, "{:.2f} s".format),
    ]


BENCHMARK = Benchmark(name="planting", title="A command that plants every 10 ms, for 20 s", run=run)
