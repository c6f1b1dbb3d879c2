"""A public function of click gets another name, everywhere but in the list of past changes."""

from benchmarks.agent.agent import Agent
from benchmarks.agent.task import Place, Task, nothing, tests_pass
from benchmarks.agent.tasks.click_project import CLICK

OLD = "get_binary_stream"
NEW = "open_binary_stream"
RENAME = (
    rf"grep -rlw {OLD} src tests docs examples | xargs sed -i 's/\b{OLD}\b/{NEW}/g'"
    " && .venv/bin/python -m pytest -q 2>&1 | tail -n 3"
)
"""Both change so many places with sed: an edit for each file is five calls."""


def ours(agent: Agent, _place: Place) -> str:
    agent.call("grep_search", {"pattern": rf"\b{OLD}\b", "output_mode": "content"})
    return agent.call("bash", {"command": RENAME})


def other(agent: Agent, _place: Place) -> str:
    agent.call("run_command", {"command": f"grep -rnw {OLD} --exclude-dir=.venv ."})
    return agent.call("run_command", {"command": RENAME})


def is_done(place: Place, _answer: str) -> bool:
    files = [
        *(place.root / "src").rglob("*.py"),
        *(place.root / "tests").rglob("*.py"),
        *(place.root / "docs").rglob("*.rst"),
    ]
    texts = [file.read_text(encoding="utf-8") for file in files]
    left = sum(text.count(OLD) for text in texts)
    return left == 0 and sum(text.count(NEW) for text in texts) == 13 and tests_pass(place)


TASK = Task(
    name="rename across files, click",
    prompt=f"Rename the function {OLD} to {NEW} in the sources, tests and documentation.",
    project=CLICK,
    prepare=nothing,
    ours=ours,
    other=other,
    is_done=is_done,
)
