"""The wheel of click cannot be built: setup.cfg names an attribute that is not there."""

import zipfile

from benchmarks.agent.agent import Agent
from benchmarks.agent.task import FINISH, Place, Task, is_finished, make_repository, replace
from benchmarks.agent.tasks.click_project import CLICK

RIGHT = "version = attr: click.__version__"
WRONG = "version = attr: click.__release__"
BUILD = ".venv/bin/python -m build --wheel --no-isolation 2>&1 | tail -n 12"
READ = "head -n 40 setup.cfg; grep -n '__version__\\|__release__' -r src"


def prepare(place: Place) -> None:
    replace(place.root / "setup.cfg", RIGHT, WRONG)
    make_repository(place)


def ours(agent: Agent, _place: Place) -> str:
    agent.call("bash", {"command": BUILD})
    agent.call("bash", {"command": READ})
    agent.call("edit_file", {"path": "setup.cfg", "old_string": WRONG, "new_string": RIGHT})
    return agent.call("bash", {"command": f"{BUILD}; {FINISH}"})


def other(agent: Agent, place: Place) -> str:
    agent.call("run_command", {"command": BUILD})
    agent.call("run_command", {"command": READ})
    edits = [{"oldText": WRONG, "newText": RIGHT}]
    agent.call("edit_file", {"path": "setup.cfg", "edits": edits})
    return agent.call("run_command", {"command": f"{BUILD}; {FINISH}"})


def is_done(place: Place, _answer: str) -> bool:
    wheels = list((place.root / "dist").glob("click-8.1.7-*.whl"))
    if len(wheels) != 1 or not is_finished(place):
        return False
    with zipfile.ZipFile(wheels[0]) as wheel:
        return "click/core.py" in wheel.namelist()


TASK = Task(
    name="failing build, click",
    prompt="Building the wheel fails. Repair it, build the wheel, install the project and commit.",
    project=CLICK,
    prepare=prepare,
    ours=ours,
    other=other,
    is_done=is_done,
)
