"""A hundred lines from the middle of a very large file."""

from pathlib import Path
from statistics import median

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Unanswered
from benchmarks.figures import Row, at_most, milliseconds
from benchmarks.memory import Peak, megabytes
from benchmarks.servers import ours

GROWTH = 20_000_000
LINE = "a line of text that is as long as most lines are in a log file, number {:>9}\n"
BLOCK = 10_000
WANTED = 100
TIMES = 3


def run(effort: Effort, folder: Path) -> list[Row]:
    root = folder / "big"
    root.mkdir()
    (root / "small.txt").write_text("small\n", encoding="ascii")
    count = _written(root / "big.log", effort.big_file)
    arguments = {"path": "big.log", "offset": count // 2, "limit": WANTED}
    with Client(ours(root)) as client:
        client.call("read_file", {"path": "small.txt"})  # the first call of all costs more than its own
        peak = Peak.of(client.pid)
        answers = [client.call("read_file", arguments) for _ in range(TIMES)]
        growth = peak.growth()
    if LINE.format(count // 2).strip() not in answers[0].text:
        raise Unanswered("read_file did not answer the lines from the middle")
    (root / "big.log").unlink()
    what = f"{WANTED} lines from the middle of {megabytes(effort.big_file)}"
    return [
        Row(what=f"{what}: first time", ours=milliseconds(answers[0].seconds)),
        Row(what=f"{what}: median of {TIMES}", ours=milliseconds(median(a.seconds for a in answers))),
        at_most(f"{what}: growth of the server's memory", growth, GROWTH, megabytes),
    ]


def _written(file: Path, size: int) -> int:
    """Write lines to about `size` bytes; how many."""
    blocks = size // (BLOCK * len(LINE.format(0)))
    with file.open("w", encoding="ascii") as out:
        for block in range(blocks):
            out.writelines(LINE.format(number) for number in range(block * BLOCK, (block + 1) * BLOCK))
    return blocks * BLOCK


BENCHMARK = Benchmark(name="big-file", title="A slice of a large file", run=run)
