"""A tool as a value, and the runtime that a call of it gets. Tools see all of it through
`mcp_toolserver.tool`; what a start needs imports it from here, without every shape that a tool may use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.calls import Report, Spill
    from mcp_toolserver.capabilities.catalogue import Catalogue
    from mcp_toolserver.capabilities.clock import Clock
    from mcp_toolserver.capabilities.clones import Clones
    from mcp_toolserver.capabilities.containers import Containers
    from mcp_toolserver.capabilities.desktop import Desktop
    from mcp_toolserver.capabilities.files import CanonicalPath, Files
    from mcp_toolserver.capabilities.git import Git
    from mcp_toolserver.capabilities.human import Ask, Tell
    from mcp_toolserver.capabilities.kept import Preferences, Todos
    from mcp_toolserver.capabilities.languages import Languages
    from mcp_toolserver.capabilities.origin import Origin
    from mcp_toolserver.capabilities.prices import Capability, Permission
    from mcp_toolserver.capabilities.processes import Jobs, JobState, Processes
    from mcp_toolserver.capabilities.search import Search
    from mcp_toolserver.capabilities.sessions import Sessions
    from mcp_toolserver.capabilities.web import Fetch, Send

T = TypeVar("T")


@dataclass(frozen=True)
class PathMark:
    """Marks an argument as a path, so that the dispatcher puts it in canonical spelling."""


class Pathful(Protocol):
    """The value of an argument that names paths somewhere inside."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, as they are spelt in it."""
        ...

    def respelt(self, canonical: Callable[[str], CanonicalPath]) -> Pathful:
        """The same value with canonical paths. Raises: ToolError: one cannot be used."""
        ...


@dataclass(frozen=True)
class PathsMark:
    """Marks a `Pathful` argument, so that the dispatcher puts its paths in canonical spelling."""


@dataclass(frozen=True)
class UrlMark:
    """Marks an argument as an address of the web, so that rules match it part by part."""


class Args(BaseModel):
    """The arguments of a tool: frozen, strict about types, no unknown field."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Record(BaseModel):
    """The structured result of a record-like tool (lists, statuses)."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, kw_only=True)
class Image:
    """A picture for the model."""

    data: bytes
    mime_type: str


@dataclass(frozen=True)
class Output:
    """What a tool gives back: text that stands alone, and beside it what only a program wants."""

    text: str
    data: Record | None = None
    images: tuple[Image, ...] = ()
    truncated: bool = False
    """The text leaves something out, and says how to get it."""
    spill: Spill | None = None
    """Where the whole of it lies, when the tool itself kept it."""

    @classmethod
    def of_job(cls, text: str, state: JobState, images: tuple[Image, ...] = ()) -> Output:
        """What a command printed, as `text` shows it."""
        is_cut = state.omitted > 0
        return cls(text, images=images, truncated=is_cut, spill=state.spill if is_cut else None)


class Runtime(Protocol):
    """What a running call may use: the capabilities that its tool declared. Others raise on access."""

    @property
    def fs(self) -> Files: ...
    @property
    def search(self) -> Search: ...
    @property
    def git(self) -> Git: ...
    @property
    def clones(self) -> Clones: ...
    @property
    def processes(self) -> Processes: ...
    @property
    def jobs(self) -> Jobs: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def powershell(self) -> Sequence[str]:
        """How an argument list for PowerShell begins; the script follows."""
        ...

    @property
    def containers(self) -> Containers: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def ask(self) -> Ask: ...
    @property
    def tell(self) -> Tell: ...
    @property
    def todos(self) -> Todos: ...
    @property
    def preferences(self) -> Preferences: ...
    @property
    def web(self) -> Fetch: ...
    @property
    def http(self) -> Send: ...
    @property
    def languages(self) -> Languages: ...
    @property
    def desktop(self) -> Desktop: ...
    @property
    def report(self) -> Report: ...
    @property
    def catalogue(self) -> Catalogue: ...
    @property
    def origin(self) -> Origin: ...
    async def compute(self, work: Callable[[], T]) -> T:
        """Do pure work that may take long, without holding up other calls."""
        ...


class Profile(IntEnum):
    """The smallest ready-made selection of tools that holds this one."""

    LEAN = 0
    DEFAULT = 1
    ALL = 2


@dataclass(frozen=True)
class Alias:
    """Another name of a tool, with the argument names and units that its users know.

    An alias with the tool's own name adds spellings to the arguments of the tool itself.
    """

    name: str
    renames: Mapping[str, str] = field(default_factory=dict[str, str])
    """Argument name there → argument name here."""
    converts: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict[str, Callable[[Any], Any]])
    """Argument name here → conversion of its value from the unit there."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one call, applied by the dispatcher."""

    deadline: float = 60.0
    """Seconds."""
    output_bytes: int = 200_000
    """UTF-8 bytes of text sent; more is cut, and the whole kept beside."""


@dataclass(frozen=True)
class Forward:
    """In place of what runs: a call of the tool is a call of another one, and is treated as that in all."""

    target: Callable[[Any], tuple[str, Mapping[str, JsonValue]]]
    """Its arguments → the name and the arguments of the other."""


Kind = Literal["read", "edit", "search", "execute", "fetch", "think", "other"]


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool as a value: what the model reads, what it may do, and the function that does it."""

    name: str
    description: str
    """The module docstring; at most 2,048 characters."""
    permission: Permission
    needs: frozenset[Capability]
    args: type[Args]
    run: Callable[[Any, Runtime], Awaitable[Output]] | Forward
    kind: Kind
    """The Agent Client Protocol's kind of tool."""
    subjects: Callable[[Any], tuple[str, ...]]
    """What a call touches: the text that rules match."""
    output: type[Record] | None = None
    destructive: bool = False
    """May overwrite or delete what was there."""
    idempotent: bool = False
    """A second call with the same arguments changes nothing more."""
    may_be_long: bool = False
    """A call may take longer than clients wait for an answer; those that can follow one then get a handle."""
    aliases: tuple[Alias, ...] = ()
    limits: Limits = Limits()
    profile: Profile = Profile.ALL
