"""Commands with children that go their own way, and looking for what is left of them and reported."""

import json
import secrets
from pathlib import Path
from typing import Any

from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.log import log
from tests.support.processes import arguments, processes


def mentioning(mark: str) -> list[list[str]]:
    """The command lines in which `mark` occurs, of all processes, whatever holds them."""
    return [line for line in map(arguments, processes()) if any(mark in word for word in line)]


class Family:
    """A command that ignores polite signals, a child that leaves its session, and a grandchild that does.

    They are known by how long they sleep: where they live, they may have other numbers.
    """

    def __init__(self) -> None:
        self.mark = f"3{secrets.randbelow(10**9):09}"
        sleep = f"sleep {self.mark}"
        self.command = f"trap '' TERM INT HUP; setsid {sleep} & (setsid {sleep} & wait) & {sleep} & wait"

    @property
    def runs(self) -> bool:
        return mentioning(self.mark).count(["sleep", self.mark]) == 3

    @property
    def is_gone(self) -> bool:
        return not mentioning(self.mark)


def lines(home: Path) -> list[dict[str, Any]]:
    """The audit log of a server, which must be whole."""
    assert log(str(home / "state"), Invocation(verify=True)) == 0
    files = sorted((home / "state/audit").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def outcomes(home: Path) -> list[tuple[str, str]]:
    """The tools that were called, and what became of the calls."""
    return [(line["tool"], line["outcome"]) for line in lines(home)]
