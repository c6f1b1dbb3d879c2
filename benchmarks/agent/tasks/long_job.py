"""A job that takes longer than clients wait for an answer, and its last line."""

import re

from benchmarks.agent.agent import Agent
from benchmarks.agent.task import Place, Task
from benchmarks.agent.tasks.openpyxl_project import OPENPYXL

JOB = '''\
"""Write and read workbooks for the given number of seconds."""

import io
import sys
import time

from openpyxl import Workbook, load_workbook

seconds = int(sys.argv[1])
start = time.monotonic()
for second in range(seconds):
    workbook, file = Workbook(), io.BytesIO()
    workbook.active["A1"] = second
    workbook.save(file)
    assert load_workbook(file).active["A1"].value == second
    print(f"workbook {second}: equal", flush=True)
    time.sleep(max(start + second + 1 - time.monotonic(), 0))
print(f"all {seconds} workbooks are equal")
'''
WAIT_SECONDS = 45
"""For one call to the bare shell: clients of the official SDK give up after 60."""


def prepare(place: Place) -> None:
    (place.root / "soak.py").write_text(JOB, encoding="utf-8")


def _job(place: Place) -> str:
    return f".venv/bin/python soak.py {place.job_seconds}"


def ours(agent: Agent, place: Place) -> str:
    said = agent.call("bash", {"command": f"{_job(place)} | tail -n 3"})
    found = re.search(r"bg_\w+", said)
    if found is None:
        return said
    # A client of an unknown name is answered within 45 s.
    return agent.call("TaskOutput", {"task_id": found[0], "wait_ms": 45_000})


def other(agent: Agent, place: Place) -> str:
    started = agent.call("run_command", {"command": f"nohup {_job(place)} >soak.log 2>&1 & echo process $!"})
    found = re.search(r"process (\d+)", started)
    process = found[1] if found else ""
    look = f"timeout {WAIT_SECONDS} tail --pid={process} -f /dev/null; tail -n 3 soak.log"
    said = agent.call("run_command", {"command": look})
    if _last_line(place) not in said:
        said = agent.call("run_command", {"command": look})
    return said


def _last_line(place: Place) -> str:
    return f"all {place.job_seconds} workbooks are equal"


def is_done(place: Place, answer: str) -> bool:
    return _last_line(place) in answer


TASK = Task(
    name="long job, openpyxl",
    prompt="Run soak.py and report its last line.",
    project=OPENPYXL,
    prepare=prepare,
    ours=ours,
    other=other,
    is_done=is_done,
)
