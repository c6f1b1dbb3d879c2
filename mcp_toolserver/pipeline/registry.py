"""The registry of tools: finds a tool by any of its names, and selects which tools a server offers.

`discover` imports the modules in `tools/`; `Registry` rejects two tools with one name.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from pydantic import JsonValue

from mcp_toolserver import tools
from mcp_toolserver.capabilities.permissions import HostFacts, Permission
from mcp_toolserver.errors import InvalidInput, RegistrationError, SettingsError, UnknownTool
from mcp_toolserver.policy.rules import FOREIGN
from mcp_toolserver.text.argument_cleanup import argument_type, own_name, parsed
from mcp_toolserver.text.json_schema import Schema
from mcp_toolserver.tool_spec import Alias, Profile, ToolSpec

_DEFAULT = Profile.DEFAULT.name.lower()

DEEPAGENTS: Mapping[str, tuple[str, ...]] = {
    "filesystem": ("ls", "read_file", "write_file", "edit_file", "mkdir"),
    "text": ("head", "tail", "diff"),
    "macos": ("mdfind", "open", "open_app", "download", "say", "notify"),
    "clipboard": ("read_clipboard", "write_clipboard"),
    "screenshot": ("take_screenshot", "take_window_screenshots"),
    "apple_notes": ("list_notes", "read_note", "create_note", "update_note"),
    "container": ("container_shell",),
}
"""The toolsets of DeepAgents that are no folders of `tools/`; its `web`, `search`, `git` and `shell` are."""


@dataclass(frozen=True)
class Entry:
    """A tool and the toolset that it belongs to."""

    spec: ToolSpec
    toolset: str

    @property
    def other_names(self) -> tuple[str, ...]:
        """The aliases of the tool."""
        return tuple(alias.name for alias in self.spec.aliases if alias.name != self.spec.name)


def discover() -> tuple[Entry, ...]:
    """Import every module in `tools/<toolset>/` that defines `TOOL`; sorted by tool name.

    Some clients show only the first line of a description, so each paragraph becomes one line.
    """
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(tools.__path__, f"{tools.__name__}.")
        if not info.ispkg
    ]
    entries = (
        Entry(replace(m.TOOL, description=unwrapped(m.__doc__ or "")), m.__name__.split(".")[2])
        for m in modules
        if hasattr(m, "TOOL")
    )
    return tuple(sorted(entries, key=lambda entry: entry.spec.name))


class Foreign(Protocol):
    """The tools of other servers, which may change while this one runs."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All that are offered, by name."""
        ...

    @property
    def unlisted(self) -> frozenset[str]:
        """Those that are not listed, but can be found."""
        ...

    @property
    def highest(self) -> Permission:
        """The highest level of any of them, known or not."""
        ...

    async def look(self) -> None:
        """Find out what those offer that were never asked. Bounded in time."""
        ...

    def why_missing(self, name: str) -> str:
        """Why none of them has this name, as a sentence."""
        ...


class NoForeign:
    """For a server without others. Implements `Foreign`."""

    entries: Mapping[str, Entry] = MappingProxyType({})
    unlisted: frozenset[str] = frozenset()
    highest = Permission.READ_ONLY

    async def look(self) -> None:
        return

    def why_missing(self, name: str) -> str:
        return f"This server has no other servers, so no tool {name}."


class Registry:
    """All tools by name.

    Raises:
        RegistrationError: two tools have the same name.
    """

    def __init__(self, entries: Iterable[Entry], foreign: Foreign | None = None) -> None:
        self.foreign: Foreign = foreign or NoForeign()
        self.entries: dict[str, Entry] = {}
        self._spellings: dict[str, Entry] = {}
        self._aliases: dict[str, Alias] = {}
        """Also that with a tool's own name, where it has one."""
        for entry in entries:
            self.entries[entry.spec.name] = entry
            self._aliases |= {alias.name: alias for alias in entry.spec.aliases}
            for name in (entry.spec.name, *entry.other_names):
                if name in self._spellings:
                    raise RegistrationError(f"two tools are called {name!r}")
                self._spellings[name] = entry

    def on(self, host: HostFacts, foreign: Foreign | None = None) -> "Registry":
        """Return the same tools with descriptions that say what holds on `host`, and `foreign` ones."""
        return Registry((_described(entry, host) for entry in self.entries.values()), foreign)

    def find(self, name: str) -> Entry:
        """Return the tool with this name or alias. Raises: UnknownTool."""
        entry = self._spellings.get(name) or self.foreign.entries.get(name)
        if entry is None:
            raise UnknownTool(name)
        return entry

    def translate(self, name: str, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the arguments of a call by the name or alias `name`, with the tool's own names and units.

        Raises:
            InvalidInput: an argument is given under two names, or its unit cannot be converted.
        """
        if (alias := self._aliases.get(name)) is None:
            return dict(arguments)
        schema = self._spellings[name].spec.schema
        renamed: dict[str, JsonValue] = {}
        for given, value in arguments.items():
            own = alias.renames.get(given, given)
            if own in renamed and renamed[own] != value:
                raise InvalidInput(f"`{own}` is given twice, also as `{given}`; send it once.")
            convert = alias.converts.get(own)
            renamed[own] = value if convert is None else _converted(schema, own, value, convert)
        return {**alias.defaults, **renamed}

    def argument(self, tool: str, name: str) -> str:
        """The own name of an argument of the tool, both under any name; empty if there is none."""
        if (entry := self._spellings.get(tool)) is None:
            return ""
        alias, names = self._aliases.get(tool), entry.spec.argument_names
        name = alias.renames.get(name, name) if alias else name
        return own if (own := own_name(name, names, {name: None})) in names else ""

    def needing_a_model(self, *, after_the_call: bool = False) -> frozenset[str]:
        """Names of the tools that need a language model; of those that need it `after_the_call`."""
        return frozenset(
            entry.spec.name
            for entry in self.entries.values()
            if any(need.value.needs_model for need in entry.spec.needs)
            and (not after_the_call or any(need.value.outlives_call for need in entry.spec.needs))
        )

    @property
    def members(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the tools of each toolset, those of DeepAgents included."""
        return {name: tuple(self._members(name)) for name in (*DEEPAGENTS, *self.toolsets)}

    @property
    def toolsets(self) -> tuple[str, ...]:
        """Names of the toolsets, sorted."""
        return tuple(sorted({entry.toolset for entry in self.entries.values()}))

    def select(
        self,
        toolsets: Sequence[str],
        names: Sequence[str],
        excluded: Sequence[str],
        *,
        with_default: Sequence[str] = (),
    ) -> frozenset[str]:
        """Return the names of the requested tools: those of `toolsets` and `names`, without `excluded`.

        A toolset is a folder of `tools/`, one of `DEEPAGENTS`, or a profile: `lean`, `default` or `all`. The
        default is `default`, or no toolset if `names` is given. `with_default` are toolsets that it includes.

        Raises:
            SettingsError: a toolset or tool is unknown; the text lists the choices.
        """
        asked = _asked(toolsets, names)
        if _DEFAULT in asked:
            asked = (*asked, *with_default)
        chosen = {name for toolset in asked for name in self._members(toolset)}
        chosen |= {self._operator_named(name) for name in names}
        return frozenset(chosen - {self._operator_named(name) for name in excluded})

    def unlisted(
        self,
        toolsets: Sequence[str],
        names: Sequence[str],
        excluded: Sequence[str],
        *,
        listed: frozenset[str],
    ) -> frozenset[str]:
        """Return the tools that are not `listed` but can be found: with `lean` all, with `default` those that
        are deferred. The other arguments are those of `select`."""
        asked = _asked(toolsets, names)
        every, deferred = Profile.LEAN.name.lower() in asked, _DEFAULT in asked
        found = {name for name, entry in self.entries.items() if every or (deferred and entry.spec.deferred)}
        return frozenset(found - listed - {self._operator_named(name) for name in excluded})

    def toolset(self, name: str) -> frozenset[str]:
        """The names of the tools in a toolset; none if it is unknown."""
        try:
            return frozenset(self._members(name)) & self.entries.keys()
        except SettingsError:
            return frozenset()

    def _members(self, toolset: str) -> Iterator[str]:
        profiles = {profile.name.lower(): profile for profile in Profile}
        if toolset in DEEPAGENTS:
            yield from DEEPAGENTS[toolset]
        elif toolset not in profiles and toolset not in self.toolsets:
            choices = ", ".join((*profiles, *self.toolsets))
            raise SettingsError(f"unknown toolset {toolset!r}; choose from {choices}")
        for name, entry in self.entries.items():
            if entry.toolset == toolset or (toolset in profiles and entry.spec.profile <= profiles[toolset]):
                yield name

    def _operator_named(self, name: str) -> str:
        if name.startswith(FOREIGN):
            # Which there are is found out later.
            return name
        if name not in self._spellings:
            raise SettingsError(f"unknown tool {name!r}; choose from {', '.join(self.entries)}")
        return self.find(name).spec.name


def _described(entry: Entry, host: HostFacts) -> Entry:
    spec = entry.spec
    if spec.unsandboxed_args is not None and host.may_leave_sandbox:
        entry = replace(entry, spec=(spec := replace(spec, args=spec.unsandboxed_args)))
    if spec.host_note is None or not (note := spec.host_note(host)):
        return entry
    return replace(entry, spec=replace(spec, description=f"{spec.description}\n\n{note}"))


def _asked(toolsets: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    return toolsets or (() if names else (_DEFAULT,))


def _converted(schema: Schema, own: str, value: JsonValue, convert: Callable[[Any], JsonValue]) -> JsonValue:
    """Convert a value's unit; validation reports values of the wrong type."""
    value = parsed(value, argument_type(schema, own))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return convert(value)


_ITEM = re.compile(r"(?:[-*•]|\d+[.)])\s")
_FENCE = "```"
_CODE = "    "


def unwrapped(text: str) -> str:
    """Put each paragraph and each list item of `text` on one line.

    Paragraphs, list items, fenced code and indented code keep their breaks.
    """
    lines: list[str] = []
    is_fenced = False
    for line in text.strip().splitlines():
        if is_fence := line.lstrip().startswith(_FENCE):
            is_fenced = not is_fenced
        if is_fenced or is_fence or not _goes_on(lines, line):
            lines.append(line.rstrip())
        else:
            lines[-1] += f" {line.strip()}"
    return "\n".join(lines)


def _goes_on(before: list[str], line: str) -> bool:
    """Whether `line` goes on with the sentence of the last line before it."""
    last = before[-1] if before else ""
    if not last or not line.strip() or _ITEM.match(line.strip()):
        return False
    return not last.lstrip().startswith(_FENCE) and not last.startswith(_CODE)
