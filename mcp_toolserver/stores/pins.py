"""The definitions of other servers' tools that were seen first or approved, and those that wait for approval.

A server has one file in the state folder. What it lists first is approved; what is new or differs later waits
until the operator approves it.
"""

import json
import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.stores.file_lock import locked
from mcp_toolserver.stores.state_dir import private_folder, replace_file

FOLDER = "pins"

NAME = re.compile(r"(?!.*__)[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Of a server. Two underscores separate it from a tool in rules."""

MOST_WAITING = 1_000
"""Definitions of one kind that wait for approval; further ones are off, and are not kept."""

Kind = Literal["tools", "instructions"]
Definitions = dict[str, JsonValue]
State = Literal["approved", "new", "changed"]


@dataclass(kw_only=True)
class Record:
    """What is known of a server. A kind is absent until the server lists it first."""

    command: list[str] = field(default_factory=list[str])
    """The last command that started it."""
    approved: dict[Kind, Definitions] = field(default_factory=dict[Kind, Definitions])
    waiting: dict[Kind, Definitions] = field(default_factory=dict[Kind, Definitions])
    listed: list[JsonValue] = field(default_factory=list[JsonValue])
    """The definitions of tools that it listed last, as they were."""
    prompts: list[JsonValue] = field(default_factory=list[JsonValue])
    """Those of prompts."""
    has_resources: bool = True
    """Whether it said then that it has resources."""


class Pins:
    """The pins of the server `name`; nothing is written before the first `judge`."""

    def __init__(self, state: str, name: str, command: list[str] | None = None) -> None:
        self._state, self._name, self._command = state, name, command

    def load(self) -> Record | None:
        """Return the record, None if the server is unknown. Raises: SettingsError: it is damaged."""
        path, known = f"{self._state}/{FOLDER}/{self._name}.json", vars(Record())
        try:
            # Building a model of it would take longer than reading it, and the start waits for that.
            record = Record(**json.loads(Path(path).read_bytes()))
            kinds = [*record.approved.values(), *record.waiting.values()]
            if {type(one) for one in kinds} <= {dict} and all(
                type(value) is type(known[name]) for name, value in vars(record).items()
            ):
                return record
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            pass
        raise SettingsError(f"the pins in {path} cannot be read; remove them to pin anew")

    def judge(self, kind: Kind, found: Mapping[str, JsonValue]) -> dict[str, State]:
        """Compare definitions with those that are pinned; the first of a kind are pinned as they are.

        Raises:
            OSError, SettingsError: the pins cannot be read or written.
        """
        with self._changing() as record:
            approved = record.approved.setdefault(kind, dict(found))
            waiting = record.waiting.setdefault(kind, {})
            for name, definition in found.items():
                if name in approved and approved[name] == definition:
                    waiting.pop(name, None)
                elif name in waiting or len(waiting) < MOST_WAITING:
                    waiting[name] = definition
            return {
                name: ("approved" if approved[name] == definition else "changed")
                if name in approved
                else "new"
                for name, definition in found.items()
            }

    def remember(
        self, listed: Sequence[JsonValue], prompts: Sequence[JsonValue], *, has_resources: bool
    ) -> None:
        """Keep what a server lists, for the next start. Raises: OSError, SettingsError."""
        with self._changing() as record:
            record.listed, record.prompts = list(listed), list(prompts)
            record.has_resources = has_resources

    def approve(self, shown: Mapping[Kind, Definitions]) -> None:
        """Approve exactly these definitions. Raises: as for `judge`."""
        with self._changing() as record:
            for kind, definitions in shown.items():
                record.approved[kind] = {**record.approved.get(kind, {}), **definitions}
                waiting = record.waiting.get(kind, {})
                record.waiting[kind] = {
                    name: one for name, one in waiting.items() if one != definitions.get(name)
                }

    @contextmanager
    def _changing(self) -> Generator[Record]:
        """Give the record, and write it if it was changed; no other process changes it meanwhile."""
        folder = private_folder(self._state, FOLDER)
        lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with locked(lock):
                record = self.load()
                before = record and json.dumps(asdict(record))
                record = record or Record()
                record.command = self._command or record.command
                yield record
                if (text := json.dumps(asdict(record))) != before:
                    replace_file(f"{folder}/{self._name}.json", text)
        finally:
            os.close(lock)


def pinned_servers(state: str) -> list[str]:
    """The names of the servers that have pins."""
    return sorted(path.stem for path in Path(state, FOLDER).glob("*.json"))
