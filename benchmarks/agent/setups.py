"""The two sets of servers that do the tasks, and one run of a task."""

import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agent.agent import Agent, Usage
from benchmarks.agent.task import Place, Script, Task
from benchmarks.client import Client, Launch, Unanswered
from benchmarks.servers import HERE, environment, filesystem, ours

MODE = "workspace-write"
ROOT = "project"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One task, done."""

    usage: Usage
    list_size: int
    """Characters of the servers' lists of tools."""
    rejections: Sequence[str]


def done_with_ours(task: Task, folder: Path, job_seconds: int, more: Sequence[str] = ()) -> Outcome:
    """Do the task with this project's server; `more` are flags for it.

    Raises:
        Unanswered: the task cannot be done here, or its result is wrong.
    """
    place = _prepared(task, folder, job_seconds)
    launch = ours(place.root, mode=MODE, toolset=task.toolsets, more=more)
    return _done(task, place, task.ours, [launch])


def done_with_other(task: Task, folder: Path, job_seconds: int) -> Outcome | None:
    """Do the task with the official filesystem server and a bare shell; None where there is no Node.

    Raises:
        Unanswered: the task cannot be done here, or its result is wrong.
    """
    files = filesystem(folder / ROOT)
    if files is None:
        return None
    place = _prepared(task, folder, job_seconds)
    return _done(task, place, task.other, [files, shell(place.root)])


def shell(root: Path) -> Launch:
    """The bare shell server, with `root` as its working directory."""
    # -P: the folder of the script is not a place for its imports.
    command = [sys.executable, "-P", str(HERE / "agent" / "shell_server.py")]
    return Launch(command=command, cwd=root, environment=environment())


def _prepared(task: Task, folder: Path, job_seconds: int) -> Place:
    root = folder / ROOT
    root.mkdir(parents=True)
    task.project.unpack(root)
    place = Place(root=root, port=_free_port(), job_seconds=job_seconds)
    task.prepare(place)
    return place


def _done(task: Task, place: Place, script: Script, launches: Sequence[Launch]) -> Outcome:
    with ExitStack() as running:
        agent = Agent([running.enter_context(Client(launch)) for launch in launches])
        answer = script(agent, place)
    if not task.is_done(place, answer):
        raise Unanswered(f"{task.name} is not done; the agent answers {answer!r}; {agent.rejections}")
    return Outcome(usage=agent.usage, list_size=agent.list_size, rejections=agent.rejections)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
