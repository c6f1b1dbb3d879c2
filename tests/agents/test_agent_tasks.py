"""The scripted tasks of the benchmark that need no network, done with a real server."""

from operator import attrgetter

import pytest

from benchmarks.agent.setups import done_with_ours
from benchmarks.agent.task import Task
from benchmarks.agent.tasks import database, long_job, refactoring, understanding
from tests.support.confinement import visible_folder
from tests.support.workshop import INTERPRETER

WITHOUT_NETWORK = [one.TASK for one in (refactoring, database, long_job, understanding)]
JOB_SECONDS = 1
ROOTS = [f"--root={path}" for path in INTERPRETER]


@pytest.mark.long  # other tests of the gate call the same tools
@pytest.mark.parametrize("task", WITHOUT_NETWORK, ids=attrgetter("name"))
def test_a_task_is_done_without_a_rejected_call(task: Task) -> None:
    # Not below /tmp, because commands share no /tmp if a root is there.
    with visible_folder() as folder:
        outcome = done_with_ours(task, folder, JOB_SECONDS, ROOTS)
    assert outcome.rejections == []
    assert outcome.usage.rejected == 0
    assert outcome.usage.calls <= 3
