"""What a scripted task is."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agent.agent import Agent
from benchmarks.agent.projects import Project

CHECK_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a task is done, and what differs between runs of it."""

    root: Path
    """The project's folder. Its Python is `.venv/bin/python`."""
    port: int
    """A free port of loopback."""
    job_seconds: int
    """How long the long job takes."""


Script = Callable[[Agent, Place], str]
"""The calls that a good agent makes, in order; gives the agent's answer to the user, or an empty text."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Work on a project, as the calls for each of two sets of servers, and a check of what came of it."""

    name: str
    """What the table calls it."""
    prompt: str
    """What the user asks for."""
    project: Project
    prepare: Callable[[Place], None]
    """Plants the defect, or makes the data."""
    ours: Script
    other: Script
    is_done: Callable[[Place, str], bool]
    """Whether the project and the agent's answer are as the user wants them. It looks at the real result."""
    toolsets: str = "default"
    """Those of our server."""


def replace(file: Path, old: str, new: str) -> None:
    """Put `new` for `old`, which must occur once."""
    text = file.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{file.name} contains {old!r} {text.count(old)} times, not once")
    file.write_text(text.replace(old, new), encoding="utf-8")


def succeeds(place: Place, command: Sequence[str]) -> bool:
    """Whether a command ends with exit status 0 in the project, outside of any server."""
    done = subprocess.run(
        command,
        cwd=place.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=CHECK_SECONDS,
        check=False,
    )
    return done.returncode == 0


def tests_pass(place: Place, *tests: str) -> bool:
    """Whether pytest passes in the project: the named tests, or all."""
    return succeeds(place, [".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests])


def git(place: Place, *arguments: str) -> None:
    """Run git in the project, outside of any server."""
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "gc.auto=0")
    subprocess.run(["git", *identity, *arguments], cwd=place.root, stdin=subprocess.DEVNULL, check=True)


def make_repository(place: Place) -> None:
    """Commit the project as it is, on the branch `main`."""
    git(place, "init", "--quiet", "--initial-branch=main")
    git(place, "config", "user.name", "Ada")
    git(place, "config", "user.email", "ada@example.org")
    (place.root / ".gitignore").write_text(".venv/\n", encoding="utf-8")
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message=As released")


INSTALL = ".venv/bin/python -m pip install -q --no-index --no-deps --no-build-isolation . 2>&1"
"""Installs the project, built anew, into its own Python."""

FINISH = f"{INSTALL} && git commit -am Done"


def is_finished(place: Place) -> bool:
    """Whether `FINISH` was carried out after the last change."""
    installed = (place.root / ".venv").glob("lib/*/site-packages/click/core.py")
    committed = succeeds(place, ["git", "rev-parse", "--quiet", "HEAD~1"])
    return any(installed) and committed and succeeds(place, ["git", "diff", "--quiet", "HEAD"])


def nothing(_place: Place) -> None:
    """For a project that is used as it is."""
