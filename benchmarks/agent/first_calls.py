"""The first calls that models wrote, replayed against the server: are they accepted, and do what was asked?

`first_calls/*.jsonl` has a call per line and task, a file per style of habits. The calls are as models wrote
them who knew the tasks and the content of the workspace, and either the list of tools or nothing but their
names; only the root is written as `$ROOT`. `first_calls/tasks.json` says in words what was asked, and what
must be true after the call.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.agent.first_calls_workspace import build
from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Unanswered
from benchmarks.figures import Row
from benchmarks.servers import ours

RECORDED = Path(__file__).with_name("first_calls")
ROOT = "$ROOT"
TARGET = 0.9


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a user asked, and what must be true afterwards. What is None is not checked."""

    id: str
    task: str
    says: str | None = None
    """A regular expression found in the answer."""
    file: str | None = None
    """A path that must exist; `holds` and `lacks` are about its content."""
    holds: str | None = None
    """A regular expression found in the file."""
    lacks: str | None = None
    """A text that is not in the file."""
    absent: str | None = None
    """A path that must not exist."""

    def is_done(self, answer: str, root: Path) -> bool:
        """Whether the answer and the workspace are as they must be."""
        if self.says is not None and not re.search(self.says, answer):
            return False
        if self.absent is not None and (root / self.absent).exists():
            return False
        return self.file is None or self._is_written(root / self.file)

    def _is_written(self, place: Path) -> bool:
        if not place.is_file():
            return place.exists() and self.holds is None
        text = place.read_text(encoding="utf-8")
        return (self.holds is None or re.search(self.holds, text) is not None) and (
            self.lacks is None or self.lacks not in text
        )


@dataclass(frozen=True, kw_only=True)
class Call:
    """A first call."""

    task: str
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a first call."""

    call: Call
    accepted: bool
    """The answer is not an error."""
    done: bool
    """What was asked is done."""
    answer: str


def tasks() -> dict[str, Task]:
    """All tasks, by their id."""
    read: list[dict[str, Any]] = json.loads((RECORDED / "tasks.json").read_text(encoding="utf-8"))
    return {one["id"]: Task(**one) for one in read}


def recorded() -> dict[str, list[Call]]:
    """The calls, by the style of the habits that they were written from."""
    return {file.stem: [_call(line) for line in _lines(file)] for file in sorted(RECORDED.glob("*.jsonl"))}


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def _call(line: str) -> Call:
    return Call(**json.loads(line))


@contextmanager
def _workspace(folder: Path) -> Generator[Path]:
    template = folder / "template"
    template.mkdir()
    build(template)
    root = folder / "shop"
    root.mkdir()
    try:
        yield root
    finally:
        shutil.rmtree(root)
        shutil.rmtree(template)


def replay(calls: Iterable[Call], folder: Path) -> list[Outcome]:
    """Send each call to one server, on a workspace as it was at first. `folder` must be empty."""
    wanted = tasks()
    with _workspace(folder) as root, Client(ours(root, mode="workspace-write", toolset="all")) as client:
        return [_outcome(client, call, wanted[call.task], root) for call in calls]


def _outcome(client: Client, call: Call, task: Task, root: Path) -> Outcome:
    _renew(root)
    spelt = json.loads(json.dumps(call.arguments).replace(ROOT, str(root)))
    try:
        result = client.request("tools/call", {"name": call.tool, "arguments": spelt}).result
    except Unanswered as error:
        return Outcome(call=call, accepted=False, done=False, answer=str(error))
    answer = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
    accepted = not result.get("isError")
    return Outcome(call=call, accepted=accepted, done=accepted and task.is_done(answer, root), answer=answer)


def _renew(root: Path) -> None:
    """Make the workspace as it was. The root itself stays: the server holds it open."""
    for place in root.iterdir():
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    subprocess.run(["cp", "--archive", f"{root.parent}/template/.", str(root)], check=True)


def run(_effort: Effort, folder: Path) -> list[Row]:
    rows: list[Row] = []
    for style, calls in recorded().items():
        place = folder / f"first-calls-{style}"
        place.mkdir()
        outcomes = replay(calls, place)
        accepted, done = (sum(getattr(one, name) for one in outcomes) for name in ("accepted", "done"))
        rows.append(
            Row(
                what=f"first calls, {style.replace('-', ' ')}",
                ours=f"{done} of {len(outcomes)} do what was asked",
                compared=f"{accepted} accepted",
                target=f"≥ {TARGET:.0%}",
                holds=done >= TARGET * len(outcomes),
            )
        )
    return rows


BENCHMARK = Benchmark(name="first-calls", title="First calls", run=run)
