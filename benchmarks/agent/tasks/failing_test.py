"""A test of click fails; the bug is in the check of ranges."""

from benchmarks.agent.agent import Agent
from benchmarks.agent.task import FINISH, Place, Task, is_finished, make_repository, replace, tests_pass
from benchmarks.agent.tasks.click_project import CLICK

RIGHT = "operator.ge if self.max_open else operator.gt"
WRONG = "operator.gt if self.max_open else operator.ge"
TESTS = ".venv/bin/python -m pytest -q 2>&1 | tail -n 30"
AGAIN = f".venv/bin/python -m pytest -q 2>&1 | tail -n 3; {FINISH}"


def prepare(place: Place) -> None:
    replace(place.root / "src/click/types.py", RIGHT, WRONG)
    make_repository(place)


def ours(agent: Agent, _place: Place) -> str:
    agent.call("bash", {"command": TESTS})
    agent.call(
        "grep_search",
        {
            "pattern": r"class \w*Range",
            "path": "src/click/types.py",
            "output_mode": "content",
            "-A": 60,
        },
    )
    agent.call("edit_file", {"path": "src/click/types.py", "old_string": WRONG, "new_string": RIGHT})
    return agent.call("bash", {"command": AGAIN})


def other(agent: Agent, place: Place) -> str:
    agent.call("run_command", {"command": TESTS})
    agent.call("run_command", {"command": r"grep -n -A60 'class \w*Range' src/click/types.py"})
    path = "src/click/types.py"
    agent.call("edit_file", {"path": path, "edits": [{"oldText": WRONG, "newText": RIGHT}]})
    return agent.call("run_command", {"command": AGAIN})


def is_done(place: Place, _answer: str) -> bool:
    return tests_pass(place) and is_finished(place)


TASK = Task(
    name="bug with a failing test, click",
    prompt="The test suite fails. Find the bug and fix it; install the project and commit.",
    project=CLICK,
    prepare=prepare,
    ours=ours,
    other=other,
    is_done=is_done,
)
