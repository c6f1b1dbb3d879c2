"""The definition of another server's tool: as it is pinned, compared, and shown to clients."""

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from pydantic import JsonValue

import mcp_toolserver.tools
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.stores.pins import Pins, State
from mcp_toolserver.text.json_values import with_texts
from mcp_toolserver.text.lines.escape_invisible import visible, visible_values

MOST_TOOLS = 1_000
MOST_BYTES = 4 << 20
"""Limits for all tools of a server together; further ones are off."""

_LONGEST_NAME, _LONGEST_URI = 128, 2_048

Definition = dict[str, JsonValue]

_FOLDER = "<folder>"
_FOLDERS = re.compile(rf"{_FOLDER}(?:[\s,;:]+{_FOLDER})+")
_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%a %b %d %Y", "%B %d, %Y", "%d %B %Y")
_TIME = r"(?:[T ,]+\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))*)?"


@dataclass(frozen=True)
class Reach:
    """What the tools of a server can do at most, whatever they say."""

    mode: Permission
    is_networked: bool

    @property
    def hints(self) -> dict[str, JsonValue]:
        """The annotations that hold: in read-only mode and without a network, nothing can change."""
        reads = self.mode is Permission.READ_ONLY and not self.is_networked
        return {"readOnlyHint": reads, "destructiveHint": not reads, "openWorldHint": self.is_networked}


def normaliser(
    command: Iterable[str], places: Iterable[str], now: datetime
) -> Callable[[JsonValue], JsonValue]:
    """Return a function that replaces what differs between starts: the folders in a command and these
    `places`, and dates of today.

    Nothing else is replaced: a change of any other path or date is a change of the definition. A folder at
    the top, such as /srv, is not replaced, because texts name those for other reasons.
    """
    named = (*places, *(word.partition("=")[2] or word for word in command))
    forms = (os.path.normpath, os.path.realpath)
    paths = {form(path) for path in named if os.path.isabs(path) for form in forms}
    found = {path for path in paths if path.count("/") > 1}
    folders = [re.escape(path) for path in sorted(found, key=len, reverse=True)]
    days = (now.astimezone(zone) + timedelta(days=day) for zone in (None, UTC) for day in (-1, 0, 1))
    dates = "|".join(sorted({re.escape(day.strftime(form)) for day in days for form in _DATES}))
    varying = re.compile(
        rf"(?P<folder>{'|'.join(folders) or '(?!)'})(?![\w-]|\.\w)|(?<!\d)(?:{dates}){_TIME}"
    )

    def normal(text: str) -> str:
        text = varying.sub(lambda one: _FOLDER if one["folder"] else "<date>", text)
        return _FOLDERS.sub(_FOLDER, text)

    return lambda value: with_texts(value, normal)


def named(tools: Sequence[JsonValue], key: str = "name") -> dict[str, Definition]:
    """The usable definitions by their `key`: of one that occurs twice the first, none with one that hides
    something, and no more than the limits allow."""
    found: dict[str, Definition] = {}
    size = 0
    for tool in tools:
        name = tool.get(key) if isinstance(tool, dict) else None
        longest = _LONGEST_NAME if key == "name" else _LONGEST_URI
        if isinstance(tool, dict) and isinstance(name, str) and name not in found and is_clear(name, longest):
            size += len(json.dumps(tool))
            if size > MOST_BYTES or len(found) == MOST_TOOLS:
                break
            found[name] = tool
    return found


def is_clear(name: str, longest: int = _LONGEST_NAME) -> bool:
    return 0 < len(name) <= longest and name == visible(name) and name.isprintable()


@dataclass(kw_only=True, eq=False)
class Definitions:
    """The definitions of a server, compared with its pins: what waits for approval is off."""

    server: str
    """The name of the server."""
    pins: Pins
    normal: Callable[[JsonValue], JsonValue]
    """Removes from a definition what differs between starts."""
    known: dict[str, Definition] = field(default_factory=dict[str, Definition])
    """By tool."""
    _states: dict[str, State] = field(default_factory=dict[str, State])

    def approved(self, tools: Sequence[JsonValue]) -> dict[str, Definition]:
        """Those that are approved, of what the server lists now."""
        found = named(tools)
        self.known |= found
        self._judge(found)
        return {name: tool for name, tool in found.items() if self._states[name] == "approved"}

    @property
    def is_waiting(self) -> bool:
        """Whether any is off."""
        return any(state != "approved" for state in self._states.values())

    def why_off(self, tool: str) -> str:
        """Why calls of a known tool are refused; empty if its definition is approved."""
        if self._states[tool] != "approved":
            # The operator may have approved it since.
            self._judge({tool: self.known[tool]})
        if (state := self._states[tool]) == "approved":
            return ""
        what = "changed since it was approved" if state == "changed" else "is new"
        return f"{tool} is off: its definition {what}. {self._advice}"

    def instructions(self, text: str) -> str:
        """The instructions of the server that clients get."""
        try:
            state = self.pins.judge("instructions", {"instructions": self.normal(text)})["instructions"]
        except (OSError, SettingsError):
            state = "changed"
        if state == "approved":
            return visible(text)
        return f"[The instructions of {self.server} have changed. {self._advice}]"

    def _judge(self, found: Mapping[str, Definition]) -> None:
        """Bring `_states` up to date; where the pins cannot be used, nothing is approved."""
        try:
            self._states |= self.pins.judge(
                "tools", {name: self.normal(tool) for name, tool in found.items()}
            )
        except (OSError, SettingsError):
            self._states |= dict.fromkeys(found, "changed")

    @property
    def _advice(self) -> str:
        return (
            f"The operator can look at it with `mcp-toolserver upstream diff {self.server}` and turn it on "
            f"with `mcp-toolserver upstream approve {self.server}`."
        )


def presented(tool: Definition, reach: Reach, server: str) -> Definition:
    """The definition for clients: nothing hidden, the hints that hold, and a note on the name of a tool of
    ours."""
    shown = visible_values(tool)
    before = shown.get("annotations")
    title = before.get("title") if isinstance(before, dict) else None
    shown["annotations"] = {**({"title": title} if isinstance(title, str) else {}), **reach.hints}
    if plain(str(tool["name"])) in own_names():
        text = shown.get("description") or ""
        note = f"[A tool of the server {server}, not the one of mcp-toolserver with this name.]"
        shown["description"] = f"{text}\n{note}".lstrip()
    return shown


@cache
def own_names() -> frozenset[str]:
    """The plain names of the tools of this server: each has a file of its name."""
    files = Path(mcp_toolserver.tools.__file__ or "").parent.glob("*/*.py")
    return frozenset(plain(file.stem) for file in files if not file.stem.startswith("_"))


def plain(name: str) -> str:
    """The name as a reader may take it: `ReadFile` for `read_file`."""
    return re.sub("[^a-z0-9]", "", name.lower())


def difference(name: str, before: JsonValue, after: JsonValue) -> str:
    """A unified diff of two definitions, in which nothing hides; None is no definition."""
    old, new = (
        [] if one is None else json.dumps(one, indent=2, sort_keys=True, ensure_ascii=False).splitlines()
        for one in (before, after)
    )
    changed = difflib.unified_diff(old, new, f"{name} (approved)", f"{name} (now)", lineterm="", n=2)
    return "\n".join(map(visible, changed))
