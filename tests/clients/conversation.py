"""One conversation of the official TypeScript client with the server: what it does, and what must come of it.

Its driver takes the steps as JSON and tells after each what came of it, as JSON too, in words of `Outcome`.
It goes on when it reads a line, so that the machine can be looked at in between.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a driver saw of one step."""

    text: str = ""
    """Of all blocks, lines between them; of a long one the end."""
    length: int = 0
    """Characters of the whole text."""
    is_error: bool = False
    code: int | None = None
    """Of a protocol error."""
    names: Sequence[str] = ()
    """Of what was listed."""
    links: int = 0
    """Links to resources; the next step may read the last one as `link`."""
    progress: int = 0
    """Reports that came meanwhile."""
    asked: Sequence[str] = ()
    """What the user was asked meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something a client does, and what it must see."""

    name: str
    do: Mapping[str, Any]
    says: str = ""
    """A pattern that must be found in the text."""
    is_error: bool = False
    codes: Sequence[int | None] = (None,)
    """Of the protocol error, in any of the eras."""
    has: Sequence[str] = ()
    """Names that must be listed."""
    lacks: Sequence[str] = ()
    """Names that must not be."""
    links: int = 0
    progress: int = 0
    asked: Sequence[str] = ()
    at_least: int = 0
    """Characters of the whole text."""

    def faults(self, seen: Outcome) -> list[str]:
        """What differs."""
        wrong = {
            "text": not re.search(self.says, seen.text),
            "is_error": seen.is_error != self.is_error,
            "code": seen.code not in self.codes,
            "names": not set(self.has) <= set(seen.names) or bool(set(self.lacks) & set(seen.names)),
            "links": seen.links != self.links,
            "progress": seen.progress < self.progress,
            "asked": not all(re.search(*pair) for pair in zip(self.asked, seen.asked, strict=True)),
            "length": seen.length < self.at_least,
        }
        return [
            f"{self.name}: {what} is {getattr(seen, what)!r}" for what, is_wrong in wrong.items() if is_wrong
        ]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"op": "call", "tool": tool, "arguments": arguments}


RUNNING = "running"
"""The step in which a command runs, and is cancelled when the driver may go on."""

NOT_FOUND = (-32602, -32002)
"""Since 2026-07-28, and before."""

ANSWER = {"answer_1": "blue"}
"""What the user says when asked."""


def conversation(marker: str) -> list[Step]:
    """The steps. `marker` is a word in the command that is cancelled, by which its process can be found."""
    question = {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}
    return [
        Step(
            name="list the tools",
            do={"op": "tools"},
            has=("read_file", "glob_search", "bash", "AskUserQuestion"),
            lacks=("write_file", "edit_file"),
        ),
        Step(name="read a file", do=call("read_file", path="src/a.py"), says=r"1\tprint\('hello'\)"),
        Step(name="find files", do=call("glob_search", pattern="**/*.py"), says=r"src/a\.py"),
        Step(
            name="a refused write",
            do=call("write_file", path="b.txt", content="b"),
            says="requires workspace-write permission",
            is_error=True,
        ),
        Step(name="a tool error", do=call("read_file", path="none.txt"), says="none.txt", is_error=True),
        Step(name="a wrong argument", do=call("read_file", path=1), says="path", is_error=True),
        Step(name="an unknown tool", do=call("no_such_tool"), codes=(-32602,)),
        # The official TypeScript client drops progress that it reads in one piece with the answer.
        Step(name="progress", do=call("Sleep", duration_ms=1_000), says="Slept", progress=1),
        Step(
            name=RUNNING,
            do={"op": "cancel", "tool": "bash", "arguments": {"command": f"sleep 300 {marker}"}},
            says="given up",
        ),
        Step(name="what comes after", do=call("bash", command="echo again"), says="again"),
        Step(name="a long result", do=call("bash", command="seq 100000"), says="100000", links=1),
        Step(
            name="the whole of it", do={"op": "read", "uri": "link"}, says=r"\n100000\n?$", at_least=500_000
        ),
        Step(name="no such resource", do={"op": "read", "uri": "toolserver://output/none"}, codes=NOT_FOUND),
        Step(
            name="list the prompts",
            do={"op": "prompts"},
            has=("review-changes", "explain-code", "plan-change"),
        ),
        Step(
            name="get a prompt",
            do={"op": "prompt", "name": "explain-code", "arguments": {"path": "src/a.py"}},
            says=r"src/a\.py",
        ),
        Step(
            name="a question to the user",
            do=call("AskUserQuestion", questions=[question]),
            says="blue",
            asked=("Which colour",),
        ),
    ]
