"""The catalogue: every tool there is, found by any of its names, and which of them a server offers.

Nothing registers itself: `discover` looks at the modules beneath `tools/`, and `Registry` refuses a catalogue
with two owners of one name.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue

from mcp_toolserver import tools
from mcp_toolserver.errors import InvalidInput, RegistrationError, SettingsError, UnknownTool
from mcp_toolserver.text.schema import Schema, plain_schema
from mcp_toolserver.tool import Alias, PathMark, PathsMark, Profile, ToolSpec, UrlMark


@dataclass(frozen=True)
class Entry:
    """A tool with what follows from it."""

    spec: ToolSpec
    toolset: str

    @cached_property
    def schema(self) -> Schema:
        """The JSON Schema of the arguments."""
        return plain_schema(self.spec.args)

    @cached_property
    def output_schema(self) -> Schema | None:
        """The JSON Schema of the structured result, for record-like tools."""
        return plain_schema(self.spec.output) if self.spec.output else None

    @cached_property
    def path_fields(self) -> tuple[str, ...]:
        """The arguments that are paths."""
        return self._marked(PathMark)

    @cached_property
    def pathful_fields(self) -> tuple[str, ...]:
        """The arguments that name paths somewhere inside."""
        return self._marked(PathsMark)

    @cached_property
    def url_fields(self) -> tuple[str, ...]:
        """The arguments that are addresses of the web."""
        return self._marked(UrlMark)

    def _marked(self, mark: type[PathMark | PathsMark | UrlMark]) -> tuple[str, ...]:
        fields = self.spec.args.model_fields
        return tuple(name for name, info in fields.items() if any(isinstance(m, mark) for m in info.metadata))

    @property
    def other_names(self) -> tuple[str, ...]:
        """What else the tool answers to."""
        return tuple(alias.name for alias in self.spec.aliases if alias.name != self.spec.name)

    @cached_property
    def argument_names(self) -> Mapping[str, str]:
        """Attribute of the model → name on the wire."""
        return {name: info.alias or name for name, info in self.spec.args.model_fields.items()}


def discover() -> tuple[Entry, ...]:
    """Every module beneath `tools/<toolset>/` that defines `TOOL`, in order of tool name."""
    entries = (
        Entry(module.TOOL, toolset=name.split(".")[2])
        for name in _module_names()
        if hasattr(module := importlib.import_module(name), "TOOL")
    )
    return tuple(sorted(entries, key=lambda entry: entry.spec.name))


def _module_names() -> Iterator[str]:
    for info in pkgutil.walk_packages(tools.__path__, f"{tools.__name__}."):
        if not info.ispkg:
            yield info.name


class Registry:
    """All tools by name.

    Raises:
        RegistrationError: a name has two owners.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries: dict[str, Entry] = {}
        self._spellings: dict[str, tuple[Entry, Alias]] = {}
        for entry in entries:
            self.entries[entry.spec.name] = entry
            own = [alias for alias in entry.spec.aliases if alias.name == entry.spec.name]
            for alias in (
                *(own or [Alias(entry.spec.name)]),
                *(a for a in entry.spec.aliases if a not in own),
            ):
                if alias.name in self._spellings:
                    raise RegistrationError(f"two tools are called {alias.name!r}")
                self._spellings[alias.name] = (entry, alias)

    def find(self, name: str) -> Entry:
        """Raises: UnknownTool."""
        return self._spelling(name)[0]

    def translate(self, name: str, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The arguments under the tool's own names and in its own units.

        Raises:
            UnknownTool: no tool is called `name`.
            InvalidInput: one argument is given under two names, or in a unit that cannot be converted.
        """
        alias = self._spelling(name)[1]
        renamed: dict[str, JsonValue] = {}
        for given, value in arguments.items():
            own = alias.renames.get(given, given)
            if own in renamed:
                raise InvalidInput(f"`{own}` is given twice, also as `{given}`; send it once.")
            renamed[own] = _converted(alias, own, value)
        return renamed

    def _spelling(self, name: str) -> tuple[Entry, Alias]:
        try:
            return self._spellings[name]
        except KeyError:
            raise UnknownTool(name) from None

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
            if entry.toolset == toolset or (toolset in profiles and entry.spec.profile <= profiles[toolset]):
                yield name

    def _operator_named(self, name: str) -> str:
        if name not in self._spellings:
            raise SettingsError(f"unknown tool {name!r}; choose from {', '.join(self.entries)}")
        return self.find(name).spec.name


def _converted(alias: Alias, own: str, value: JsonValue) -> JsonValue:
    """A value of the wrong type is left for validation, which says so better."""
    convert = alias.converts.get(own)
    if convert is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return convert(value)
