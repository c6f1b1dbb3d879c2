"""Where an unfamiliar project decides something."""

from benchmarks.agent.agent import Agent
from benchmarks.agent.task import Place, Task, nothing
from benchmarks.agent.tasks.openpyxl_project import OPENPYXL

WHERE = "openpyxl/styles/numbers.py"
LINE = 104


def ours(agent: Agent, _place: Place) -> str:
    agent.call(
        "grep_search", {"pattern": r"def is_\w*date|is_date\w*\(|date_formats", "output_mode": "content"}
    )
    read = agent.call("read_file", {"path": WHERE, "offset": LINE - 16, "limit": 40})
    return _answer(read)


def other(agent: Agent, _place: Place) -> str:
    agent.call("run_command", {"command": r"grep -rnE 'def is_\w*date|is_date\w*\(|date_formats' openpyxl"})
    return _answer(agent.call("run_command", {"command": f"sed -n {LINE - 15},{LINE + 24}p {WHERE}"}))


def _answer(read: str) -> str:
    """What the agent tells the user, if it has seen the function."""
    seen = "def is_date_format(fmt):" in read and "STRIP_RE = re.compile" in read
    return (
        f"is_date_format in {WHERE}:{LINE} ignores what STRIP_RE matches." if seen else "I did not find it."
    )


def is_done(place: Place, answer: str) -> bool:
    lines = (place.root / WHERE).read_text(encoding="utf-8").splitlines()
    return lines[LINE - 1] == "def is_date_format(fmt):" and f"{WHERE}:{LINE}" in answer


TASK = Task(
    name="understanding a project, openpyxl",
    prompt="Where is it decided that the number in a cell is a date, and which part of a format is ignored?",
    project=OPENPYXL,
    prepare=nothing,
    ours=ours,
    other=other,
    is_done=is_done,
)
