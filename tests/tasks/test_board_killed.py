"""Servers that get SIGKILL at random moments while their client works on the task board.

After each kill the next server on the same state folder must know everything that was acknowledged, must
report what ran as failed, and must never run a command a second time.
"""

import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.client import Client, Launch, Unanswered
from mcp_toolserver.stores.board import DIED, BoardLimits
from tests import ROOT
from tests.support.live import Setup

LATEST = 2.0
"""Seconds after which the last kills come: of the first answer of a server, or, every second time, of its
start, which takes a second under load."""

KILLS_OF_ONE = 10
"""Kills on the same state folder."""

BOUND = 60.0
"""Seconds in which what is left has to end."""

FINAL = ("completed", "failed", "cancelled")


def begun(setup: Setup) -> Client:
    """A server over stdio, to which nobody has connected yet."""
    return Client(Launch(command=[*setup.command, "--structured"], cwd=ROOT, environment=setup.environment))


def call(server: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a call. Raises: Unanswered or BrokenPipeError when the server was killed."""
    return server.request("tools/call", {"name": tool, "arguments": arguments}).result


@dataclass
class Scene:
    """One state folder, and what its clients know of the board."""

    base: Path
    chosen: random.Random
    known: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """The last acknowledged state of each task, as TaskList has it."""
    asked: str = ""
    """The task that the request in flight changes."""
    numbers: int = 0
    wrong: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.setup = Setup.below(self.base, "workspace-write")
        self.log = self.setup.root / "log"

    def kill(self, seconds: float, *, at_work: bool) -> None:
        """Run a server until it is killed, `seconds` after its start, or after it has answered."""
        server = begun(self.setup)
        killer = threading.Timer(seconds, os.kill, (server.pid, signal.SIGKILL))
        if not at_work:
            killer.start()
        try:
            with server:
                if at_work:
                    killer.start()
                self.check(server)
                while True:
                    self.act(server)
        except BrokenPipeError:
            pass
        except Unanswered as error:
            if "the server ended" not in str(error):
                raise
        finally:
            killer.join()

    def act(self, server: Client) -> None:
        """One call of the client, chosen at random."""
        self.numbers += 1
        open_tasks = [name for name, task in self.known.items() if task["status"] not in FINAL]
        notes = [name for name in open_tasks if "runs" not in self.known[name]]
        needs = self.chosen.sample(open_tasks, min(len(open_tasks), self.chosen.randrange(3)))
        match self.chosen.randrange(6):
            case 0:
                note = {"subject": f"note {self.numbers}", "blocked_by": needs}
                self.acknowledged(call(server, "TaskCreate", **note))
            case 1 | 2:
                script = f"echo {self.numbers} >> log; sleep 0.{self.chosen.randrange(3)}"
                command = {"subject": f"command {self.numbers}", "command": script, "blocked_by": needs}
                self.acknowledged(call(server, "TaskCreate", **command))
            case 3 if notes:
                self.asked = self.chosen.choice(notes)
                status = self.chosen.choice(("in_progress", "completed", "completed", "failed"))
                self.acknowledged(call(server, "TaskUpdate", task_id=self.asked, status=status))
            case 4 if open_tasks and not self.chosen.randrange(4):
                self.asked = self.chosen.choice(open_tasks)
                if not call(server, "TaskStop", task_id=self.asked).get("isError"):
                    self.known[self.asked]["status"] = "cancelled"
            case _:
                self.listed(server)
        self.asked = ""

    def acknowledged(self, result: dict[str, Any]) -> None:
        if result.get("isError"):
            # A dependency has ended meanwhile, or the task has.
            return
        task = result["structuredContent"]["task"]
        self.known[task["task_id"]] = task

    def listed(self, server: Client) -> dict[str, dict[str, Any]]:
        """The whole board."""
        found = call(server, "TaskList")["structuredContent"]["tasks"]
        self.known.update({task["task_id"]: task for task in found})
        return self.known

    def check(self, server: Client) -> None:
        """Compare what a new server says with what was acknowledged."""
        before = dict(self.known)
        after = {task["task_id"]: task for task in call(server, "TaskList")["structuredContent"]["tasks"]}
        for name, task in before.items():
            now = after.get(name)
            if now is None:
                # A full board removes ended tasks for new ones.
                if task["status"] in FINAL and len(after) >= BoardLimits().tasks:
                    del self.known[name]
                    continue
                self.wrong.append(f"{name} is lost: {task}")
            elif name != self.asked and not _follows(task, now):
                self.wrong.append(f"{task} became {now}")
        self.known.update(after)
        self.asked = ""
        self.once()

    def finish(self) -> None:
        """Let the last server run what can run, and compare with what the commands did."""
        with begun(self.setup) as server:
            self.check(server)
            until = time.monotonic() + BOUND
            while open_commands := self._open(self.listed(server)):
                if time.monotonic() > until:
                    self.wrong.append(f"not run: {open_commands}")
                    break
                call(server, "TaskOutput", task_id=open_commands[0], wait_ms=1000)
        ran = self.once()
        for task in self.known.values():
            if "runs" in task:
                number = task["subject"].removeprefix("command ")
                if task["status"] == "completed" and number not in ran:
                    self.wrong.append(f"completed, but it did not run: {task}")

    def once(self) -> list[str]:
        """The numbers of the commands that ran; none may be there twice."""
        ran = self.log.read_text(encoding="utf-8").split() if self.log.exists() else []
        self.wrong.extend(f"ran twice: {number}" for number, count in Counter(ran).items() if count > 1)
        return ran

    def _open(self, tasks: dict[str, dict[str, Any]]) -> list[str]:
        """The commands that still have to run: those that wait for no note."""

        def can_run(task: dict[str, Any]) -> bool:
            needs = [tasks[need] for need in task.get("blocked_by", ())]
            return all("runs" in need and can_run(need) for need in needs)

        return [
            name
            for name, task in tasks.items()
            if "runs" in task and task["status"] in ("pending", "in_progress") and can_run(task)
        ]


def _follows(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a task in the state `before` may be in the state `now` after its server was killed."""
    if now["subject"] != before["subject"]:
        return False
    was, status = before["status"], now["status"]
    if was in FINAL or "runs" not in before:
        # A note is blocked, or no longer, by what happens to others.
        return status == was or {was, status} == {"pending", "blocked"}
    if was == "in_progress":
        return status in ("completed", "failed") and (status == "completed" or now["reason"] == DIED)
    return status != "cancelled"


@pytest.mark.long  # of the gate is the next server of a killed one in test_board_served.py
def test_killed_servers_lose_nothing_and_run_nothing_twice() -> None:
    kills, chosen = 200, random.Random(11)
    for start in range(0, kills, KILLS_OF_ONE):
        with tempfile.TemporaryDirectory(prefix="boards-", ignore_cleanup_errors=True) as base:
            scene = Scene(base=Path(base), chosen=chosen)
            for number in range(min(KILLS_OF_ONE, kills - start)):
                scene.kill(chosen.uniform(0, LATEST), at_work=number % 2 == 0)
            scene.finish()
        assert scene.wrong == []
        assert scene.known
