"""What has changed in a large repository, against git itself."""

import os
import subprocess
import time
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Unanswered
from benchmarks.figures import MILLISECOND, Row, interleaved, ratio, seconds
from benchmarks.servers import ours
from benchmarks.tree import grown

FACTOR = 1.3
PLUS = 15 * MILLISECOND
SHARE = 2
"""Of the files of the tree that others search, one in so many."""

CHANGED = 20
IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.org")
ALONE = ("-c", "gc.auto=0", "-c", "maintenance.auto=false")
"""A commit of so many files would have git tidy up in the background while others are measured."""

SETTLED = 2.1
"""Seconds after which the server relies upon a configuration that has not changed."""


def run(effort: Effort, folder: Path) -> list[Row]:
    (folder / "git").mkdir()
    tree = grown(folder / "git", effort.tree_files // SHARE)
    files = _committed(tree)
    time.sleep(SETTLED)
    return [_compared(tree, mode, files, effort.rounds) for mode in ("read-only", "danger-full-access")]


def _committed(tree: Path) -> int:
    """Commit all of it and change some; how many files there are."""
    _git(tree, "init", "--quiet")
    _git(tree, "add", "--all", "--force")
    _git(tree, *IDENTITY, "commit", "--quiet", "--message=all")
    files = _git(tree, "ls-files").splitlines()
    for name in files[:: max(len(files) // CHANGED, 1)]:
        with (tree / name).open("a", encoding="utf-8") as file:
            file.write("changed\n")
    # Git writes down what it saw of the files, which makes every later status faster.
    _git(tree, "status")
    return len(files)


def _compared(tree: Path, mode: str, files: int, rounds: int) -> Row:
    with Client(ours(tree, mode=mode, toolset="git")) as client:
        listed = _git(tree, "status", "--short", "--branch").splitlines()
        text = client.call("git_status", {}).text
        if not set(listed) <= set(text.splitlines()):
            raise Unanswered(f"git_status does not list the {len(listed)} lines of git status")
        subjects = {
            "ours": lambda: client.call("git_status", {}).seconds,
            "git": lambda: seconds(lambda: _git(tree, "status", "--short", "--branch")),
        }
        interleaved(1, subjects)
        taken = interleaved(rounds, subjects)
    return ratio(f"{files:,} files, {mode}", taken["ours"], taken["git"], factor=FACTOR, plus=PLUS)


def _git(tree: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *ALONE, *arguments],
        cwd=tree,
        env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout


BENCHMARK = Benchmark(name="git-status", title="git_status against `git status`", run=run)
