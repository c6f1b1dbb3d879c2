"""Defines `ToolSpec`, a tool as a value, and `Runtime`, which a call of it gets.

Tools import both from `mcp_toolserver.tool`. Other modules import them from here, which is cheaper: it does
not load the values of every capability.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from mcp_toolserver.capabilities.call_scope import ROOM, HookEvent, Report, Room
from mcp_toolserver.capabilities.permissions import DESKTOP, Capability, HostFacts, Permission
from mcp_toolserver.capabilities.requirements import RequirementSet
from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.text.documents.file_type import Image
from mcp_toolserver.text.json_schema import Schema, plain_schema

if TYPE_CHECKING:
    # What `Runtime` returns. The layers of the architecture hold at run time: nothing here imports these.
    from mcp_toolserver.capabilities.call_scope import Catalogue, SavedOutput
    from mcp_toolserver.capabilities.files import CanonicalPath
    from mcp_toolserver.capabilities.processes import JobState
    from mcp_toolserver.capabilities.user import Ask, Tell
    from mcp_toolserver.protocol.upstreams.calls import CallUpstreams
    from mcp_toolserver.runtime.agents.agents import CallAgents
    from mcp_toolserver.runtime.clock import SystemClock
    from mcp_toolserver.runtime.containers.containers import CallContainers
    from mcp_toolserver.runtime.cron.schedules import OwnerSchedules
    from mcp_toolserver.runtime.desktop.desktop import CallDesktop
    from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
    from mcp_toolserver.runtime.git.clone import GitCloner
    from mcp_toolserver.runtime.git.commit import GitWriter
    from mcp_toolserver.runtime.git.git import GitReader
    from mcp_toolserver.runtime.git.push import GitPusher
    from mcp_toolserver.runtime.lsp.code_queries import CodeQueries
    from mcp_toolserver.runtime.plan.plan_modes import OwnerPlans
    from mcp_toolserver.runtime.processes.commands import CallCommands
    from mcp_toolserver.runtime.providers import CallJobs
    from mcp_toolserver.runtime.repl.sessions import CallSessions
    from mcp_toolserver.runtime.search.search import Ripgrep
    from mcp_toolserver.runtime.skills.skills import CallSkills
    from mcp_toolserver.runtime.tasks.service import OwnerTasks
    from mcp_toolserver.runtime.web.calls import WebFetcher, WebSender
    from mcp_toolserver.runtime.worktrees.worktrees import CallWorktrees
    from mcp_toolserver.stores.stored import OwnerTodos, StoredPreferences

T = TypeVar("T")

HookFunctions = Mapping[HookEvent, Sequence[Callable[[dict[str, JsonValue]], object]]]


@dataclass(frozen=True)
class PathMark:
    """Marks an argument as a path; the dispatcher puts it in canonical spelling."""


class Pathful(Protocol):
    """The value of an argument that contains paths, such as a patch."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, spelt as the caller sent them."""
        ...

    def respelt(self, canonical: Callable[[str], CanonicalPath]) -> Pathful:
        """Return the value with canonical paths. Raises: ToolError: a path cannot be used."""
        ...


@dataclass(frozen=True)
class PathsMark:
    """Marks a `Pathful` argument; the dispatcher puts its paths in canonical spelling."""


@dataclass(frozen=True)
class UrlMark:
    """Marks an argument as a web address; rules match its parts."""


class Args(BaseModel):
    """The arguments of a tool: frozen, strict about types, no unknown field."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    def why_outside(self) -> str:
        """Why the command of the call is to run outside the sandbox; empty where it is not."""
        return ""


class Record(BaseModel):
    """The structured result of a record-like tool (lists, statuses)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


@dataclass(frozen=True, kw_only=True)
class ResourceLink:
    """A reference to something that the client may read. Raises: ValueError: `uri` has no scheme."""

    uri: str
    name: str = ""
    """What clients show to people; empty: they show `uri`."""

    def __post_init__(self) -> None:
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S", self.uri):
            raise ValueError("the uri of a resource needs a scheme, as in file:///a")


@dataclass(frozen=True)
class Output:
    """The result of a tool: text that is complete without the rest, and structured data for programs."""

    text: str
    data: Record | None = None
    images: tuple[Image, ...] = ()
    resources: tuple[ResourceLink, ...] = ()
    """Some clients get only the text, so it names them too."""
    state_update: Mapping[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    """See `ToolContext.state`."""
    truncated: bool = False
    """Whether the text omits something; it then says how to get it."""
    saved_output: SavedOutput | None = None
    """The whole text, if the tool saved it."""
    whole: str = ""
    """The whole text, to be saved, if `text` shows a part and no argument gets the rest."""
    sha256: Mapping[CanonicalPath, str] = field(default_factory=dict["CanonicalPath", str])
    """Of each written file, in hexadecimal, by path; sent as metadata."""

    exit_status: int = 0
    """Of the command that was run, as far as it has ended; 1 where it was ended without one."""

    @classmethod
    def of_job(cls, text: str, state: JobState, images: tuple[Image, ...] = ()) -> Output:
        """Return the output of a command, formatted as `text`."""
        is_cut = state.omitted > 0
        return cls(
            text,
            images=images,
            truncated=is_cut,
            saved_output=state.saved_output if is_cut else None,
            exit_status=state.exit_status or int(not state.running and state.reason != "exited"),
        )


async def unheard(message: str) -> None:
    """Progress that nobody waits for."""


class ToolContext(BaseModel):
    """The context of a call. Immutable."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    working_directory: str
    """Absolute path; in the server the first root, empty where the client left none."""
    session_id: str
    call_id: str = ""
    """In a model's loop the id that its API gave the call, in the server that of the audit log."""
    state: Mapping[str, JsonValue] = Field(default_factory=dict)
    """What earlier calls of the session stored by a `state_update`; applied after a call succeeds."""
    report: Report = Field(default=unheard, exclude=True, repr=False)
    """Reports progress: `await context.report("half")`; in a sync function
    `anyio.from_thread.run(context.report, "half")`."""
    hooks: HookFunctions = Field(default={}, exclude=True, repr=False)
    """Functions, sync or async, that see calls outside a server; see `pipeline.hooks`."""


class Compute(Protocol):
    """Runs pure work that may take long in a worker thread; a cancelled call does not wait for it."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


class Service(Generic[T]):
    """A property of `Runtime`: the service of the first of `needs` that the tool declares."""

    def __init__(self, *needs: Capability) -> None:
        self._needs = needs

    def __get__(self, runtime: Runtime, _: type[Runtime]) -> T:
        """Raises: RegistrationError: the tool declares none of them."""
        for need in self._needs:
            if need in runtime.services:
                return runtime.services[need]
        names = " or ".join(need.label for need in self._needs)
        raise RegistrationError(f"the tool uses {names} but does not declare it")


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What a running call may use: the services of the capabilities that its tool declares."""

    services: Mapping[Capability, Any]
    report: Report
    compute: Compute
    room: Room = ROOM

    fs: ClassVar[Service[ConfinedFiles]] = Service(Capability.FS_READ, Capability.FS_WRITE)
    search: ClassVar[Service[Ripgrep]] = Service(Capability.SEARCH)
    git: ClassVar[Service[GitReader]] = Service(Capability.GIT)
    git_changes: ClassVar[Service[GitWriter]] = Service(Capability.GIT_WRITE)
    clones: ClassVar[Service[GitCloner]] = Service(Capability.CLONES)
    pushes: ClassVar[Service[GitPusher]] = Service(Capability.PUSHES)
    processes: ClassVar[Service[CallCommands]] = Service(Capability.PROCESS)
    jobs: ClassVar[Service[CallJobs]] = Service(Capability.JOBS)
    sessions: ClassVar[Service[CallSessions]] = Service(Capability.SESSIONS)
    powershell: ClassVar[Service[Sequence[str]]] = Service(Capability.POWERSHELL)
    """The first arguments of every PowerShell command; the script follows."""
    containers: ClassVar[Service[CallContainers]] = Service(Capability.CONTAINERS)
    clock: ClassVar[Service[SystemClock]] = Service(Capability.CLOCK)
    ask: ClassVar[Service[Ask]] = Service(Capability.ASK)
    tell: ClassVar[Service[Tell]] = Service(Capability.TELL)
    todos: ClassVar[Service[OwnerTodos]] = Service(Capability.TODOS)
    tasks: ClassVar[Service[OwnerTasks]] = Service(Capability.TASKS, Capability.TASK_RUNS)
    plan: ClassVar[Service[OwnerPlans]] = Service(Capability.PLAN)
    preferences: ClassVar[Service[StoredPreferences]] = Service(Capability.PREFERENCES)
    web: ClassVar[Service[WebFetcher]] = Service(Capability.FETCH)
    http: ClassVar[Service[WebSender]] = Service(Capability.SEND)
    languages: ClassVar[Service[CodeQueries]] = Service(Capability.LANGUAGES)
    desktop: ClassVar[Service[CallDesktop]] = Service(*DESKTOP)
    """Limited to the desktop capabilities that the tool declares."""
    agents: ClassVar[Service[CallAgents]] = Service(Capability.AGENTS)
    teams: ClassVar[Service[CallAgents]] = Service(Capability.TEAMS)
    worktrees: ClassVar[Service[CallWorktrees]] = Service(Capability.WORKTREES)
    cron: ClassVar[Service[OwnerSchedules]] = Service(Capability.CRON)
    catalogue: ClassVar[Service[Catalogue]] = Service(Capability.CATALOGUE)
    skills: ClassVar[Service[CallSkills]] = Service(Capability.SKILLS, Capability.SKILLS_SAVE)
    origin: ClassVar[Service[ToolContext]] = Service(Capability.OWN_CODE)
    upstreams: ClassVar[Service[CallUpstreams]] = Service(Capability.UPSTREAMS)


class Profile(IntEnum):
    """Ready-made selections of tools. A tool names the smallest one that contains it."""

    LEAN = 0
    DEFAULT = 1
    ALL = 2


@dataclass(frozen=True)
class Alias:
    """Another name of a tool, with its own argument names and units.

    An alias with the tool's own name adds spellings to the arguments of the tool itself.
    """

    name: str
    renames: Mapping[str, str] = field(default_factory=dict[str, str])
    """Argument name under this alias → argument name of the tool."""
    converts: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict[str, Callable[[Any], Any]])
    """Argument name of the tool → function that converts its value from the unit of this alias."""
    defaults: Mapping[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    """Argument name of the tool → its value where a call by this alias sends none."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one call, applied by the dispatcher."""

    deadline: float = 60.0
    """Seconds that a call may run, without the time in the queue."""
    output_bytes: int = Room.bytes
    """Maximum UTF-8 bytes of text, so also of characters. A longer text is truncated, and the whole is saved.
    For some clients it is less."""


@dataclass(frozen=True)
class Forward:
    """Makes a call of the tool a call of another tool, for the policy and the audit log too."""

    target: Callable[[Any], tuple[str, Mapping[str, JsonValue]]]
    """Arguments → name and arguments of the other tool."""
    only_foreign: bool = False
    """Whether it can only be the tool of another server."""


Kind = Literal["read", "edit", "search", "execute", "fetch", "think", "other"]


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool as a value: the text for the model, its permission and needs, and the function that runs."""

    name: str
    title: str = ""
    """The name that clients show to people; empty: they show `name`."""
    description: str = ""
    """What the model reads, at most 2,048 characters. `discover` takes the module docstring."""
    needs: frozenset[Capability]
    permission: Permission | None = None
    """What a call requires at least; None for what the needs require on the host."""
    args: type[Args]
    run: Callable[[Any, Runtime], Awaitable[Output]] | Forward
    preview: Callable[[Any, Runtime], Awaitable[str]] | None = None
    """Finds out what a call would do, for the question to the user; the call then does just that."""
    kind: Kind = "other"
    """The Agent Client Protocol's kind of tool."""
    subjects: Callable[[Any], tuple[str, ...]] | None = None
    """Arguments → the paths, commands or addresses that rules match; None for those that are marked so."""
    requires: RequirementSet | None = None
    """All that calls may touch; None for what mode and rules say."""
    script: Callable[[Any], str] | None = None
    """Arguments → the shell script that the call runs, empty for none. Rules match its parts as subjects, and
    the check of dangerous commands reads it."""
    content_after: Callable[[Any, bytes], bytes] | None = None
    """Arguments and the content of the file that they name → its content after the call, for the question
    whether it may run."""
    output: type[Record] | None = None
    destructive: bool = False
    """Whether it may overwrite or delete something."""
    idempotent: bool = False
    """Whether a second call with the same arguments changes nothing more."""
    open_world: bool | None = None
    """Whether it reaches beyond this machine; None for what its needs say."""
    serial: bool = False
    """Whether its calls run one at a time, and never together with those of other serial tools."""
    may_be_long: bool = False
    """Whether a call may take longer than clients wait. Clients that support tasks then get a handle."""
    aliases: tuple[Alias, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arguments of other servers, in snake_case, that calls may have but nothing reads → why; the answer says
    so of each that is neither false nor empty."""
    limits: Limits = Limits()
    profile: Profile = Profile.ALL
    deferred: bool = False
    """Whether `default` offers it without listing it: ToolSearch finds it, and calls by name run."""
    unsandboxed_args: type[Args] | None = None
    """In the place of `args` where a user can let a call out of the sandbox of commands."""
    host_note: Callable[[HostFacts], str] | None = None
    """Facts about the host → a paragraph for the end of the description, on what the tool can do there."""
    custom_schema: Schema | None = None
    """JSON Schema of the arguments, if it is not generated from `args`."""

    @cached_property
    def schema(self) -> Schema:
        """JSON Schema of the arguments."""
        return plain_schema(self.args) if self.custom_schema is None else self.custom_schema

    @cached_property
    def output_schema(self) -> Schema | None:
        """JSON Schema of the structured result, for record-like tools."""
        return plain_schema(self.output) if self.output else None

    @cached_property
    def own_permission(self) -> Permission:
        """The permission that a call requires where nothing but this process enforces limits."""
        if self.permission is not None:
            return self.permission
        return max((need.permission for need in self.needs), default=Permission.READ_ONLY)

    def level(self, permissions: Mapping[Capability, Permission]) -> Permission:
        """The permission that a call requires on a host whose capabilities require `permissions`."""
        declared = Permission.READ_ONLY if self.permission is None else self.permission
        here = map(permissions.__getitem__, permissions.keys() & self.needs)
        return max((declared, *here))

    @property
    def forwards(self) -> bool:
        """Whether a call of the tool is a call of another tool."""
        return isinstance(self.run, Forward)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The arguments by their names in the schema."""
        return tuple(info.alias or name for name, info in self.args.model_fields.items())

    @cached_property
    def path_fields(self) -> tuple[str, ...]:
        """Arguments that are paths, or contain paths."""
        return self._marked(PathMark, PathsMark)

    @cached_property
    def url_fields(self) -> tuple[str, ...]:
        """Arguments that are URLs."""
        return self._marked(UrlMark)

    def _marked(self, *marks: type[PathMark | PathsMark | UrlMark]) -> tuple[str, ...]:
        fields = self.args.model_fields.items()
        return tuple(name for name, info in fields if any(isinstance(m, marks) for m in info.metadata))
