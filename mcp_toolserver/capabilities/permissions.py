"""The table of capabilities: what each requires, when this server has it, and what enforces its limits."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum, IntEnum
from typing import Literal


class Permission(IntEnum):
    """How much a call may change, in ascending order."""

    READ_ONLY = 0
    WORKSPACE_WRITE = 1
    DANGER_FULL_ACCESS = 2

    def __init__(self, _: int) -> None:
        self.flag = self.name.lower().replace("_", "-")
        """The spelling on the command line: `read-only`, `workspace-write` or `danger-full-access`."""


@dataclass(frozen=True)
class Reason:
    """Why a capability is not available."""

    kind: Literal["sandbox", "configuration", "client"]
    """`sandbox`: the kernel cannot confine it; `configuration`: a setting or a program that is not installed;
    `client`: the client's own policy for this call."""
    text: str


Sandbox = Literal["bubblewrap", "landlock", "seatbelt", "none"]

ServerLock = int | Literal["seatbelt"]
"""What confines the server's own process: the version of Landlock, 0 for nothing, or Seatbelt."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """The facts about this host and its settings that decide which capabilities the server has."""

    mode: Permission = Permission.READ_ONLY
    commands_in: Permission | None = None
    """The mode below the server's in which commands run unless a user lets one out; None without one."""
    network: str = "fetch"
    git_writable: bool = False
    containers: str = ""
    desktop_private: bool = False
    starts_programs: bool = False
    command_sandbox: Sandbox = "none"
    """The layer that confines commands."""
    helper_sandbox: Sandbox = "none"
    """The layer that confines the server's own helper programs."""
    filters_syscalls: bool = False
    sandbox_problem: str = ""
    """Why there is no sandbox."""
    server_lock: ServerLock | None = None
    """What confines the server's process; None where no call will run."""
    openat2: bool = False
    shares_loopback: bool = False
    """Whether the commands of a session share a loopback interface."""
    shares_tmp: bool = False
    """Whether the commands of a session share a `/tmp` that lasts."""
    agent_model: bool = False
    """Whether the operator configured a model for agents."""
    upstreams: Literal["", "local", "networked"] = ""
    """Whether the operator configured upstream servers, and whether any reaches beyond this machine."""
    documents: tuple[str, ...] = ()
    """The kinds of documents for which a parser is installed."""
    missing_programs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a program is missing, by the name of the capability that it provides."""

    @property
    def is_unconfined(self) -> bool:
        """Whether commands run without a sandbox because the mode allows everything."""
        return self.mode is Permission.DANGER_FULL_ACCESS

    @property
    def may_leave_sandbox(self) -> bool:
        """Whether commands are confined and a call can ask a user to run one outside the sandbox."""
        return self.is_unconfined and self.commands_in is not None

    @property
    def is_networked(self) -> bool:
        """Whether commands reach beyond this machine."""
        return self.starts_programs and (self.is_unconfined or self.network in ("commands", "hosts"))

    def in_mode(self, mode: Permission) -> "HostFacts":
        """The facts for calls in a mode that is not above the server's."""
        lowered = replace(self, mode=mode)
        if self.is_unconfined and not lowered.is_unconfined:
            # The broker confines no command there, whoever asks.
            why = "this server runs in danger-full-access, where no command is confined"
            return replace(lowered, command_sandbox="none", sandbox_problem=why)
        return lowered

    @property
    def git_sandbox(self) -> Sandbox:
        """The layer that confines git, which reads more than one folder, as commands do."""
        return self.helper_sandbox if self.command_sandbox == "none" else self.command_sandbox


_Condition = Callable[[HostFacts], Reason | None]


def _installed(name: str) -> _Condition:
    def condition(host: HostFacts) -> Reason | None:
        why = host.missing_programs.get(name)
        return None if why is None else Reason("configuration", why)

    return condition


def _unless(is_missing: Callable[[HostFacts], bool], why: str) -> _Condition:
    return lambda host: Reason("configuration", why) if is_missing(host) else None


_starts_programs = _unless(lambda host: not host.starts_programs, "this server cannot start programs here")


def _sandboxed(layer: Callable[[HostFacts], str]) -> _Condition:
    """The server starts programs, and where the mode asks for a sandbox, `layer` is one."""

    def condition(host: HostFacts) -> Reason | None:
        if host.starts_programs and not host.is_unconfined and layer(host) == "none":
            return Reason("sandbox", host.sandbox_problem)
        return _starts_programs(host)

    return condition


_runs_commands = _sandboxed(lambda host: host.command_sandbox)
_runs_search = _sandboxed(lambda host: host.helper_sandbox)
_runs_git = _sandboxed(lambda host: host.git_sandbox)


_outside_containers = _unless(
    lambda host: host.containers == "containerOnly",
    'the operator lets commands run in containers only (containers = "containerOnly"); use container_shell',
)
_online = _unless(lambda host: host.network == "none", "this server was started with --network none")
_makes_git_folders = _unless(
    lambda host: host.mode is Permission.WORKSPACE_WRITE and not host.git_writable,
    "a clone has a .git folder, and this server was started with --git protected",
)
_has_upstreams = _unless(
    lambda host: not host.upstreams, "the operator configured no upstream servers (--upstreams)"
)
_private_allowed = _unless(
    lambda host: not host.desktop_private,
    "it shows what a user may want to keep private; the operator can allow it with --desktop-private",
)


def _answers_about_code(host: HostFacts) -> Reason | None:
    """A language server is a command; where none can run, a search answers."""
    return Capability.SEARCH.unavailable(host) if Capability.PROCESS.unavailable(host) else None


def _server_layers(host: HostFacts) -> tuple[str, ...]:
    if host.server_lock == "seatbelt":
        return ("seatbelt",)
    return ("landlock", "seccomp") if host.server_lock else ()


def _own_state(host: HostFacts) -> tuple[str, ...]:
    """It changes nothing but the server's own state."""
    return ("own state", *_server_layers(host))


def _file_layers(host: HostFacts) -> tuple[str, ...]:
    return ("openat2" if host.openat2 else "walk", *_server_layers(host))


def _search_layers(host: HostFacts) -> tuple[str, ...]:
    sandbox = () if host.helper_sandbox == "none" else (f"{host.helper_sandbox} (rg)",)
    return (*_file_layers(host), *sandbox)


def _git_layers(host: HostFacts) -> tuple[str, ...]:
    sandbox = () if host.git_sandbox == "none" else (f"{host.git_sandbox} (git)",)
    return (*_file_layers(host), *sandbox)


def _command_layers(host: HostFacts) -> tuple[str, ...]:
    if host.command_sandbox == "none":
        return ()
    return (host.command_sandbox, *(("seccomp",) if host.filters_syscalls else ()))


def _always(_: HostFacts) -> bool:
    return True


def _commands_reach_network(host: HostFacts) -> bool:
    return host.is_networked and Capability.PROCESS.unavailable(host) is None


def _server_reaches_network(host: HostFacts) -> bool:
    return host.network != "none" or host.server_lock == 0


def _containers_reach_network(host: HostFacts) -> bool:
    return host.network == "commands" or host.containers == "failover"


def _mode(host: HostFacts) -> Permission:
    """In its sandbox a command can do no more than the mode allows."""
    return host.mode


def _command_mode(host: HostFacts) -> Permission:
    return host.mode if host.commands_in is None else min(host.mode, host.commands_in)


def _code_permission(host: HostFacts) -> Permission:
    return host.mode if Capability.PROCESS.unavailable(host) is None else Permission.READ_ONLY


@dataclass(frozen=True)
class _Row:
    """What the table says of one capability."""

    label: str
    _: KW_ONLY
    permission: Permission = Permission.READ_ONLY
    """The permission it requires where nothing but this process enforces it."""
    required: Callable[[HostFacts], Permission] | None = None
    """The permission it requires on a host; None for `permission`."""
    requires: tuple[_Condition, ...] = ()
    """When the server has it."""
    layers: Callable[[HostFacts], tuple[str, ...]] = _own_state
    """What enforces its limits."""
    open_world: Callable[[HostFacts], bool] = lambda _: False
    """Whether it reaches beyond this machine's files."""
    needs_model: bool = False
    """Whether it needs a language model: the operator's, or that of the client that makes the call."""
    outlives_call: bool = False
    """Whether its work goes on after the call, when the model of a client answers no more."""
    is_desktop: bool = False
    """Whether it reaches the user's desktop."""


def _command(
    label: str,
    *requires: _Condition,
    required: Callable[[HostFacts], Permission] = _command_mode,
    open_world: Callable[[HostFacts], bool] = lambda _: False,
) -> _Row:
    return _Row(
        label,
        permission=Permission.DANGER_FULL_ACCESS,
        required=required,
        requires=(_outside_containers, *requires, _runs_commands),
        layers=_command_layers,
        open_world=open_world,
    )


def _deferred(label: str, *, needs_model: bool = False, outlives_call: bool = True) -> _Row:
    """What makes calls of tools, now or later: no call of them can do more than the mode allows."""
    return _Row(
        label,
        permission=Permission.DANGER_FULL_ACCESS,
        required=_mode,
        # What an agent reads goes to its model.
        open_world=_always if needs_model else _commands_reach_network,
        needs_model=needs_model,
        outlives_call=outlives_call,
    )


def _web(label: str, permission: Permission) -> _Row:
    return _Row(
        label, permission=permission, requires=(_online,), layers=lambda _: ("guard",), open_world=_always
    )


def _desktop(
    label: str, *requires: _Condition, open_world: Callable[[HostFacts], bool] = lambda _: False
) -> _Row:
    """Only the permission mode limits it."""
    return _Row(
        label,
        permission=Permission.DANGER_FULL_ACCESS,
        requires=(_installed(label), *requires, _starts_programs),
        layers=lambda _: (),
        open_world=open_world,
        is_desktop=True,
    )


class Capability(Enum):
    """One thing a tool may need from the host: the table of capabilities, a row each."""

    # A call looks dozens of them up in sets, and the hash that enumerations have is written in Python.
    __hash__ = object.__hash__

    FS_READ = _Row("fs_read", layers=_file_layers)
    FS_WRITE = _Row("fs_write", permission=Permission.WORKSPACE_WRITE, layers=_file_layers)
    SEARCH = _Row("search", requires=(_installed("search"), _runs_search), layers=_search_layers)
    GIT = _Row("git", requires=(_installed("git"), _runs_git), layers=_git_layers)
    GIT_WRITE = _Row(
        "git_write",
        permission=Permission.WORKSPACE_WRITE,
        requires=(_installed("git"), _runs_commands),
        layers=_git_layers,
    )
    CLONES = _Row(
        "clones",
        permission=Permission.WORKSPACE_WRITE,
        requires=(_installed("git"), _makes_git_folders, _runs_commands),
        layers=_command_layers,
        open_world=_commands_reach_network,
    )
    # It uses the user's credentials and changes what is elsewhere, so no sandbox lowers it.
    PUSHES = _Row(
        "pushes",
        permission=Permission.DANGER_FULL_ACCESS,
        requires=(_installed("git"), _starts_programs),
        layers=lambda _: (),
        open_world=_always,
    )
    PROCESS = _command("process", open_world=_commands_reach_network)
    JOBS = _Row("jobs", layers=_command_layers)
    SESSIONS = _command("sessions", required=_mode)
    POWERSHELL = _command("powershell", _installed("powershell"))
    # No sandbox lowers it: whoever can ask a container engine for something can do everything.
    CONTAINERS = _Row(
        "containers",
        permission=Permission.DANGER_FULL_ACCESS,
        requires=(_installed("containers"), _starts_programs),
        layers=lambda _: ("container",),
        open_world=_containers_reach_network,
    )
    CLOCK = _Row("clock")
    ASK = _Row("ask")
    TELL = _Row("tell")
    TODOS = _Row("todos")
    PREFERENCES = _Row("preferences")
    FETCH = _web("fetch", Permission.READ_ONLY)
    SEND = _web("send", Permission.DANGER_FULL_ACCESS)
    CATALOGUE = _Row("catalogue")
    # A tool of the user's declares the permission that its code requires.
    OWN_CODE = _Row("own_code", layers=_server_layers, open_world=_server_reaches_network)
    LANGUAGES = _Row(
        "languages",
        permission=Permission.DANGER_FULL_ACCESS,
        required=_code_permission,
        requires=(_answers_about_code,),
        layers=_command_layers,
        open_world=_commands_reach_network,
    )
    AGENTS = _deferred("agents", needs_model=True, outlives_call=False)
    TEAMS = _deferred("teams", needs_model=True)
    TASKS = _Row("tasks")
    TASK_RUNS = _deferred("task_runs")
    CRON = _Row("cron")
    SCHEDULES = _deferred("schedules")
    SKILLS = _Row("skills", layers=_file_layers)
    SKILLS_SAVE = _Row("skills_save", permission=Permission.WORKSPACE_WRITE)
    PLAN = _Row("plan")
    WORKTREES = _Row(
        "worktrees",
        permission=Permission.WORKSPACE_WRITE,
        requires=(_installed("git"), _runs_commands),
        layers=_git_layers,
    )
    # Each tool of an upstream server declares the permission that it requires.
    UPSTREAMS = _Row(
        "upstreams",
        requires=(_has_upstreams,),
        layers=_command_layers,
        open_world=lambda host: host.upstreams == "networked",
    )
    DESKTOP_OPEN = _desktop("desktop_open", open_world=_always)
    DESKTOP_NOTIFY = _desktop("desktop_notify")
    DESKTOP_SAY = _desktop("desktop_say")
    CLIPBOARD_READ = _desktop("clipboard_read", _private_allowed)
    CLIPBOARD_WRITE = _desktop("clipboard_write")
    SCREEN = _desktop("screen", _private_allowed)
    WINDOWS = _desktop("windows", _private_allowed)
    DESKTOP_APP = _desktop("desktop_app", open_world=_always)
    DESKTOP_FIND = _desktop("desktop_find")
    NOTES_READ = _desktop("notes_read", _private_allowed)
    NOTES_WRITE = _desktop("notes_write")

    @property
    def label(self) -> str:
        """Its name in rules, the audit log and messages."""
        return self.value.label

    @property
    def permission(self) -> Permission:
        """The permission it requires where nothing but this process enforces it."""
        return self.value.permission

    def unavailable(self, host: HostFacts) -> Reason | None:
        """Why the server does not have it; None where it has."""
        return next((why for condition in self.value.requires if (why := condition(host))), None)

    def required(self, host: HostFacts) -> Permission:
        """The permission it requires on this host, where it is available."""
        row = self.value
        return row.permission if row.required is None else row.required(host)


DESKTOP = tuple(need for need in Capability if need.value.is_desktop)
"""What reaches the user's desktop."""
