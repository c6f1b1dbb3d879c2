"""A cell of the notebook of tqdm divides by zero; it is repaired, and the code is run."""

import json
from typing import Any

from benchmarks.agent.agent import Agent
from benchmarks.agent.projects import SourceDistribution
from benchmarks.agent.task import Place, Task, replace, succeeds

NOTEBOOK = "DEMO.ipynb"
CELL = 31
RIGHT = '/ max(d[\\"n\\"], 1)\\n'
WRONG = '/ d[\\"n\\"]\\n'
"""As they stand in the file, in JSON."""
CELLS = 56
SOURCE = '''\
from tqdm import tqdm
from time import sleep

class TqdmExtraFormat(tqdm):
    """Provides a `total_time` format parameter"""
    @property
    def format_dict(self):
        d = super().format_dict
        total_time = d["elapsed"] * (d["total"] or 0) / max(d["n"], 1)
        d.update(total_time=self.format_interval(total_time) + " in total")
        return d

for i in TqdmExtraFormat(
      range(9), ascii=" .oO0",
      bar_format="{total_time}: {percentage:.0f}%|{bar}{r_bar}"):
    if i == 4:
        break'''
FIND = f"""\
.venv/bin/python - <<'END'
import json
for number, cell in enumerate(json.load(open("{NOTEBOOK}", encoding="utf-8"))["cells"]):
    source = "".join(cell["source"])
    if "total_time" in source:
        print(number, source)
END"""
RUN = f"""\
.venv/bin/python - <<'END' 2>&1 | tail -n 3
import json
exec("".join(json.load(open("{NOTEBOOK}", encoding="utf-8"))["cells"][{CELL}]["source"]))
END"""


def prepare(place: Place) -> None:
    replace(place.root / NOTEBOOK, RIGHT, WRONG)


def ours(agent: Agent, _place: Place) -> str:
    # A search shows lines of the file, but the tool for notebooks wants the number of the cell.
    agent.call("bash", {"command": FIND})
    agent.call("NotebookEdit", {"path": NOTEBOOK, "cell_number": CELL, "new_source": SOURCE})
    return agent.call("bash", {"command": RUN})


def other(agent: Agent, place: Place) -> str:
    agent.call("run_command", {"command": f"grep -n -B 8 -A 8 'total_time =' {NOTEBOOK}"})
    edits = [{"oldText": WRONG, "newText": RIGHT}]
    agent.call("edit_file", {"path": NOTEBOOK, "edits": edits})
    return agent.call("run_command", {"command": RUN})


def is_done(place: Place, answer: str) -> bool:
    cells = json.loads((place.root / NOTEBOOK).read_text(encoding="utf-8"))["cells"]
    others = [cell for number, cell in enumerate(cells) if number != CELL]
    return (
        len(cells) == CELLS
        and _source(cells[CELL]) == SOURCE
        and not any("TqdmExtraFormat" in _source(cell) for cell in others)
        and "in total" in answer
        and "Error" not in answer
        and succeeds(place, [".venv/bin/python", "-c", SOURCE])
    )


def _source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


TASK = Task(
    name="notebook, tqdm",
    prompt=f"The cell of {NOTEBOOK} that shows the total time fails. Repair it, and run its code.",
    project=SourceDistribution(
        "tqdm", "4.66.5", "e1020aef2e5096702d8a025ac7d16b1577279c9d63f8375b63083e9a5f0fcbad"
    ),
    prepare=prepare,
    ours=ours,
    other=other,
    is_done=is_done,
)
