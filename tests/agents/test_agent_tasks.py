"""The scripted tasks that need no network, done with a real server, and how their cost is counted."""

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.agent.agent import Agent
from benchmarks.agent.projects import InstalledPackage
from benchmarks.agent.setups import done_with_ours, shell
from benchmarks.agent.task import Task
from benchmarks.agent.tasks import database, long_job, refactoring, understanding
from benchmarks.client import Client, Unanswered
from tests.support.confinement import visible_folder
from tests.support.workshop import INTERPRETER

WITHOUT_NETWORK = (database.TASK, long_job.TASK, refactoring.TASK, understanding.TASK)
JOB_SECONDS = 1
ROOTS = [f"--root={path}" for path in INTERPRETER]


@pytest.fixture
def folder() -> Generator[Path]:
    """Not below /tmp, because commands share no /tmp if a root is there."""
    with visible_folder() as made:
        yield made


@pytest.mark.parametrize("task", WITHOUT_NETWORK, ids=lambda task: task.name)
def test_a_task_is_done_without_a_rejected_call(task: Task, folder: Path) -> None:
    outcome = done_with_ours(task, folder, JOB_SECONDS, ROOTS)
    assert outcome.rejections == []
    assert outcome.usage.rejected == 0
    assert outcome.usage.calls <= 3


def test_work_that_is_not_done_is_an_error_that_names_rejected_calls(folder: Path) -> None:
    lost = replace(
        refactoring.TASK, ours=lambda agent, _place: agent.call("read_file", {"path": "missing.py"})
    )
    with pytest.raises(Unanswered, match=r"is not done.*read_file: .*missing\.py"):
        done_with_ours(lost, folder, JOB_SECONDS, ROOTS)


def test_a_project_with_other_content_or_of_another_version_is_refused(tmp_path: Path) -> None:
    for version, says in (("3.1.5", "SHA-256"), ("3.1.4", r"3\.1\.5")):
        with pytest.raises(Unanswered, match=says):
            InstalledPackage("openpyxl", version, "0" * 64).unpack(tmp_path)


def test_the_arguments_and_the_text_of_a_call_count(tmp_path: Path) -> None:
    with Client(shell(tmp_path)) as client:
        agent = Agent([client])
        first = agent.call("run_command", {"command": "pwd; exit 3"})
        assert first == f"{tmp_path}\n\n[exit status 3]"
        with pytest.raises(Unanswered, match="no server lists"):
            agent.call("missing", {})
    written = len(json.dumps({"command": "pwd; exit 3"}, separators=(",", ":")))
    assert agent.usage.calls == 1
    assert agent.usage.rejected == 0
    assert agent.usage.characters == written + len(first)
