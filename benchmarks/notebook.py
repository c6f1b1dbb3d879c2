"""Changing and showing one cell of a large notebook, against nbformat alone."""

from itertools import count
from pathlib import Path

import nbformat
from nbformat import v4

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Unanswered
from benchmarks.figures import Row, interleaved, ratio, seconds
from benchmarks.servers import ours

CELLS = 500
MIDDLE = CELLS // 2
FACTOR = 1.3
PICTURE = "A" * 8_000
"""As text in the file."""


def run(effort: Effort, folder: Path) -> list[Row]:
    root = folder / "notebook"
    root.mkdir()
    edited, other = root / "ours.ipynb", root / "other.ipynb"
    for file in (edited, other):
        nbformat.write(_made(), file)
    what = f"{edited.stat().st_size / 1e6:.1f} MB, {CELLS} cells"
    with Client(ours(root, mode="workspace-write")) as client:
        numbers = count()
        edits = {
            "ours": lambda: _edited(client, edited, next(numbers)),
            "nbformat": lambda: seconds(lambda: _rewritten(other, next(numbers))),
        }
        interleaved(2, edits)
        editing = interleaved(effort.rounds, edits)
        reads = {
            "ours": lambda: _shown(client, edited),
            "nbformat": lambda: seconds(lambda: nbformat.read(other, as_version=4)),
        }
        interleaved(2, reads)
        reading = interleaved(effort.rounds, reads)
    against = "against nbformat"
    return [
        ratio(
            f"{what}: one cell replaced, {against} reading and writing",
            editing["ours"],
            editing["nbformat"],
            factor=FACTOR,
        ),
        ratio(f"{what}: one cell shown, {against} reading", reading["ours"], reading["nbformat"]),
    ]


def _made() -> nbformat.NotebookNode:
    """Code that has run: text on every cell's output, and a picture."""
    text = "".join(f"line {number} of what a cell printed\n" for number in range(30))
    outputs = [
        v4.new_output("stream", name="stdout", text=text),
        v4.new_output("display_data", data={"image/png": PICTURE, "text/plain": "<Figure>"}),
    ]
    cells = [
        v4.new_code_cell("\n".join(f"x_{line} = {number}" for line in range(10)), outputs=outputs)
        for number in range(CELLS)
    ]
    return v4.new_notebook(cells=cells)


def _edited(client: Client, file: Path, number: int) -> float:
    arguments = {"path": file.name, "cell_number": MIDDLE, "new_source": f"x = {number}"}
    answer = client.call("NotebookEdit", arguments)
    if f"+x = {number}" not in answer.text:
        raise Unanswered("NotebookEdit did not answer the change")
    return answer.seconds


def _rewritten(file: Path, number: int) -> None:
    notebook = nbformat.read(file, as_version=4)
    notebook.cells[MIDDLE].update(source=f"x = {number}", outputs=[], execution_count=None)
    nbformat.write(notebook, file)


def _shown(client: Client, file: Path) -> float:
    answer = client.call("read_file", {"path": file.name, "offset": MIDDLE, "limit": 1})
    if f"[cell {MIDDLE} code" not in answer.text:
        raise Unanswered("read_file did not show the cell")
    return answer.seconds


BENCHMARK = Benchmark(name="notebook", title="A notebook of 5 MB", run=run)
