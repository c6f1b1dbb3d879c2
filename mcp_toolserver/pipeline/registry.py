"""The catalogue: every tool there is, found by any of its names, and which of them a server offers.

Nothing registers itself: `discover` looks at the modules beneath `tools/`, `on_shelf` at what they were when
their labels were made, and `Registry` refuses a catalogue with two owners of one name.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from pydantic import JsonValue

from mcp_toolserver.errors import InvalidInput, RegistrationError, SettingsError, UnknownTool
from mcp_toolserver.labels import Label, Shelved, module_names, shelf
from mcp_toolserver.spec import Alias, Profile, ToolSpec


class Entry:
    """A tool, which is imported when it is needed, with what is known of it before."""

    def __init__(self, tool: ToolSpec | Shelved, toolset: str, label: Label | None = None) -> None:
        self._tool = tool
        self.toolset = toolset
        self.label = label or (Label.of(tool) if isinstance(tool, ToolSpec) else tool.label)

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool itself. Raises: RegistrationError: it is not what its label says."""
        return self._tool if isinstance(self._tool, ToolSpec) else self._tool.taken()

    @property
    def other_names(self) -> tuple[str, ...]:
        """What else the tool answers to."""
        return tuple(name for name in self.label.aliases if name != self.label.name)


def discover() -> tuple[Entry, ...]:
    """Every tool of the server's own, imported, in order of name: each module that defines `TOOL`."""
    modules = [importlib.import_module(name) for name in module_names()]
    entries = (Entry(m.TOOL, m.__name__.split(".")[2]) for m in modules if hasattr(m, "TOOL"))
    return tuple(sorted(entries, key=lambda entry: entry.label.name))


def on_shelf() -> tuple[Entry, ...]:
    """The same, as their labels have them and not imported."""
    return tuple(Entry(one, one.toolset) for one in shelf())


class Registry:
    """All tools by name.

    Raises:
        RegistrationError: a name has two owners.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries: dict[str, Entry] = {}
        self._spellings: dict[str, Entry] = {}
        for entry in entries:
            self.entries[entry.label.name] = entry
            for name in (entry.label.name, *entry.other_names):
                if name in self._spellings:
                    raise RegistrationError(f"two tools are called {name!r}")
                self._spellings[name] = entry

    def find(self, name: str) -> Entry:
        """Raises: UnknownTool."""
        try:
            return self._spellings[name]
        except KeyError:
            raise UnknownTool(name) from None

    def translate(self, name: str, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The arguments under the tool's own names and in its own units.

        Raises:
            UnknownTool: no tool is called `name`.
            InvalidInput: one argument is given under two names, or in a unit that cannot be converted.
        """
        alias = _alias(self.find(name).spec, name)
        renamed: dict[str, JsonValue] = {}
        for given, value in arguments.items():
            own = alias.renames.get(given, given)
            if own in renamed:
                raise InvalidInput(f"`{own}` is given twice, also as `{given}`; send it once.")
            renamed[own] = _converted(alias, own, value)
        return renamed

    @property
    def toolsets(self) -> tuple[str, ...]:
        """Names of the toolsets, sorted."""
        return tuple(sorted({entry.toolset for entry in self.entries.values()}))

    def select(
        self, toolsets: Sequence[str], names: Sequence[str], excluded: Sequence[str]
    ) -> frozenset[str]:
        """Names of the tools an operator asks for: those of `toolsets` and `names`, without `excluded`.

        A toolset is a folder of `tools/`, or one of the profiles `lean`, `default` and `all`. Without any
        toolset or name it is `default`; with names alone, just those.

        Raises:
            SettingsError: an unknown toolset or tool; the text lists the choices.
        """
        chosen = {name for toolset in toolsets for name in self._members(toolset)}
        if not toolsets and not names:
            chosen = set(self._members(Profile.DEFAULT.name.lower()))
        chosen |= {self._operator_named(name) for name in names}
        return frozenset(chosen - {self._operator_named(name) for name in excluded})

    def unlisted(
        self, toolsets: Sequence[str], listed: frozenset[str], excluded: Sequence[str]
    ) -> frozenset[str]:
        """What an operator leaves to be found, beside what is `listed`: with `lean`, everything else."""
        if Profile.LEAN.name.lower() not in toolsets:
            return frozenset()
        return frozenset(self.entries) - listed - {self._operator_named(name) for name in excluded}

    def _members(self, toolset: str) -> Iterator[str]:
        profiles = {profile.name.lower(): profile for profile in Profile}
        if toolset not in profiles and toolset not in self.toolsets:
            choices = ", ".join((*profiles, *self.toolsets))
            raise SettingsError(f"unknown toolset {toolset!r}; choose from {choices}")
        for name, entry in self.entries.items():
            if entry.toolset == toolset or (toolset in profiles and entry.label.profile <= profiles[toolset]):
                yield name

    def _operator_named(self, name: str) -> str:
        if name not in self._spellings:
            raise SettingsError(f"unknown tool {name!r}; choose from {', '.join(self.entries)}")
        return self.find(name).label.name


def _alias(spec: ToolSpec, name: str) -> Alias:
    """The alias that a tool is called by; its own name need not be one."""
    return next((alias for alias in spec.aliases if alias.name == name), Alias(name))


def _converted(alias: Alias, own: str, value: JsonValue) -> JsonValue:
    """A value of the wrong type is left for validation, which says so better."""
    convert = alias.converts.get(own)
    if convert is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return convert(value)
