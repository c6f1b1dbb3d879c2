"""What tasks of the board cost in memory: some ended, as many run as may, and the rest waits."""

from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client
from benchmarks.figures import Row, at_most
from benchmarks.memory import megabytes, proportional, resident
from benchmarks.servers import ours

TASKS = 200
ENDED = 100
GROWTH = 40_000_000


def run(effort: Effort, folder: Path) -> list[Row]:
    del effort  # the figure is asked for as it is
    root = folder / "jobs"
    root.mkdir()
    with Client(ours(root, mode="workspace-write", toolset="all", more=("--structured",))) as client:
        # The first task of all costs more than its own.
        _ended(client, _created(client, "echo first"))
        server, family = resident(client.pid), proportional(client.pid)
        for task in [_created(client, f"echo {number}") for number in range(ENDED)]:
            _ended(client, task)
        for _ in range(TASKS - ENDED):
            _created(client, "exec sleep 1000")
        client.call("TaskList", {})
        grown, all_grown = resident(client.pid) - server, proportional(client.pid) - family
    what = f"{TASKS} tasks, {ENDED} of them ended, 8 running and the rest waiting"
    return [
        at_most(f"{what}: growth of the server's memory", max(grown, 0), GROWTH, megabytes),
        at_most(f"{what}: growth of all processes together (PSS)", max(all_grown, 0), GROWTH, megabytes),
    ]


def _created(client: Client, command: str) -> str:
    answer = client.call("TaskCreate", {"command": command})
    return answer.result["structuredContent"]["task"]["task_id"]


def _ended(client: Client, task: str) -> None:
    while "[completed" not in client.call("TaskOutput", {"task_id": task, "wait_ms": 20_000}).text:
        pass


BENCHMARK = Benchmark(name="background-jobs", title="Many background jobs", run=run)
