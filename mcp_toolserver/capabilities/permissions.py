"""The table of capabilities: what each requires, when this server has it, and what enforces its limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Literal


class Permission(IntEnum):
    """How much a call may change, in ascending order."""

    READ_ONLY = 0
    WORKSPACE_WRITE = 1
    DANGER_FULL_ACCESS = 2

    @property
    def flag(self) -> str:
        """The spelling on the command line: `read-only`, `workspace-write` or `danger-full-access`."""
        return self.name.lower().replace("_", "-")


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
    documents: tuple[str, ...] = ()
    """The kinds of documents for which a parser is installed."""
    missing_programs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a program is missing, by the name of the capability that it provides."""

    @property
    def is_unconfined(self) -> bool:
        """Whether commands run without a sandbox because the mode allows everything."""
        return self.mode is Permission.DANGER_FULL_ACCESS

    @property
    def is_networked(self) -> bool:
        """Whether commands reach beyond this machine."""
        return self.starts_programs and (self.is_unconfined or self.network == "commands")

    @property
    def git_sandbox(self) -> Sandbox:
        """The layer that confines git, which reads more than one folder, as commands do."""
        return self.helper_sandbox if self.command_sandbox == "none" else self.command_sandbox


_Condition = Callable[[HostFacts], Reason | None]
_Layers = Callable[[HostFacts], tuple[str, ...]]


def _installed(name: str) -> _Condition:
    def condition(host: HostFacts) -> Reason | None:
        why = host.missing_programs.get(name)
        return None if why is None else Reason("configuration", why)

    return condition


def _starts_programs(host: HostFacts) -> Reason | None:
    return None if host.starts_programs else Reason("configuration", "this server cannot start programs here")


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


def _outside_containers(host: HostFacts) -> Reason | None:
    if host.containers != "containerOnly":
        return None
    why = 'the operator lets commands run in containers only (containers = "containerOnly")'
    return Reason("configuration", f"{why}; use container_shell")


def _online(host: HostFacts) -> Reason | None:
    offline = "this server was started with --network none"
    return Reason("configuration", offline) if host.network == "none" else None


def _makes_git_folders(host: HostFacts) -> Reason | None:
    if host.mode is not Permission.WORKSPACE_WRITE or host.git_writable:
        return None
    why = "a clone has a .git folder, and no command may make one unless the server is started with "
    return Reason("configuration", f"{why}--git writable")


def _private_allowed(host: HostFacts) -> Reason | None:
    why = "it shows what a user may want to keep private; the operator can allow it with --desktop-private"
    return None if host.desktop_private else Reason("configuration", why)


def _answers_about_code(host: HostFacts) -> Reason | None:
    """A language server is a command; where none can run, a search answers."""
    return Capability.SEARCH.unavailable(host) if Capability.PROCESS.unavailable(host) else None


def _no_layer(_: HostFacts) -> tuple[str, ...]:
    """Only the permission mode limits it."""
    return ()


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


def _container(_: HostFacts) -> tuple[str, ...]:
    return ("container",)


def _address_guard(_: HostFacts) -> tuple[str, ...]:
    return ("guard",)


def _never(_: HostFacts) -> bool:
    return False


def _always(_: HostFacts) -> bool:
    return True


def _commands_reach_network(host: HostFacts) -> bool:
    return host.is_networked and Capability.PROCESS.unavailable(host) is None


def _server_reaches_network(host: HostFacts) -> bool:
    return host.network != "none" or host.server_lock == 0


def _containers_reach_network(host: HostFacts) -> bool:
    return host.network == "commands" or host.containers == "failover"


@dataclass(frozen=True, kw_only=True)
class _Row:
    name: str
    permission: Permission
    requires: tuple[_Condition, ...] = ()
    layers: _Layers = _own_state
    open_world: Callable[[HostFacts], bool] = _never
    required: Callable[[HostFacts], Permission] | None = None
    provider: str = ""
    needs_model: bool = False


def _own(name: str) -> _Row:
    return _Row(name=name, permission=Permission.READ_ONLY)


def _mode(host: HostFacts) -> Permission:
    """In its sandbox a command can do no more than the mode allows."""
    return host.mode


def _code_permission(host: HostFacts) -> Permission:
    return host.mode if Capability.PROCESS.unavailable(host) is None else Permission.READ_ONLY


def _command(
    name: str,
    *requires: _Condition,
    permission: Permission = Permission.DANGER_FULL_ACCESS,
    open_world: Callable[[HostFacts], bool] = _never,
    provider: str = "",
) -> _Row:
    return _Row(
        name=name,
        permission=permission,
        requires=(*requires, _runs_commands),
        layers=_command_layers,
        open_world=open_world,
        required=_mode,
        provider=provider,
    )


def _deferred(name: str, provider: str, *, needs_model: bool = False) -> _Row:
    """What makes calls of tools, now or later: no call of them can do more than the mode allows."""
    return _Row(
        name=name,
        permission=Permission.DANGER_FULL_ACCESS,
        needs_model=needs_model,
        # What an agent reads goes to its model.
        open_world=_always if needs_model else _commands_reach_network,
        required=_mode,
        provider=provider,
    )


def _stored(name: str, provider: str, permission: Permission = Permission.READ_ONLY) -> _Row:
    return _Row(name=name, permission=permission, provider=provider)


def _desktop(name: str, *requires: _Condition, open_world: Callable[[HostFacts], bool] = _never) -> _Row:
    return _Row(
        name=name,
        permission=Permission.DANGER_FULL_ACCESS,
        requires=(_installed(name), *requires, _starts_programs),
        layers=_no_layer,
        open_world=open_world,
        provider="desktop.provider",
    )


class Capability(Enum):
    """One thing a tool may need from the host. Its value is its name in rules and the audit log."""

    # A call looks dozens of them up in sets, and the hash that enumerations have is written in Python.
    __hash__ = object.__hash__

    _value_: str
    permission: Permission
    """The permission it requires where nothing but this process enforces it."""
    provider: str
    """The module below `runtime/` that provides it, imported on first use; empty where the composition root
    or the call itself does."""
    needs_model: bool
    """Whether it needs a language model: the operator's, or that of the client that makes the call."""
    _row: _Row

    def __new__(cls, row: _Row) -> "Capability":
        """The member that `row` describes."""
        member = object.__new__(cls)
        member._value_ = row.name
        member.permission = row.permission
        member.provider = row.provider
        member.needs_model = row.needs_model
        member._row = row
        return member

    FS_READ = _Row(name="fs_read", permission=Permission.READ_ONLY, layers=_file_layers)
    FS_WRITE = _Row(name="fs_write", permission=Permission.WORKSPACE_WRITE, layers=_file_layers)
    SEARCH = _Row(
        name="search",
        permission=Permission.READ_ONLY,
        requires=(_installed("search"), _runs_search),
        layers=_search_layers,
        provider="search.provider",
    )
    GIT = _Row(
        name="git",
        permission=Permission.READ_ONLY,
        requires=(_installed("git"), _runs_git),
        layers=_git_layers,
        provider="git.provider",
    )
    GIT_WRITE = _Row(
        name="git_write",
        permission=Permission.WORKSPACE_WRITE,
        requires=(_installed("git"), _runs_commands),
        layers=_git_layers,
        provider="git.change_provider",
    )
    CLONES = _Row(
        name="clones",
        permission=Permission.WORKSPACE_WRITE,
        requires=(_installed("git"), _makes_git_folders, _runs_commands),
        layers=_command_layers,
        open_world=_commands_reach_network,
        provider="git.clone_provider",
    )
    PROCESS = _command("process", _outside_containers, open_world=_commands_reach_network)
    JOBS = _Row(name="jobs", permission=Permission.READ_ONLY, layers=_command_layers)
    SESSIONS = _command("sessions", _outside_containers, provider="repl.provider")
    POWERSHELL = _command("powershell", _outside_containers, _installed("powershell"))
    # No sandbox lowers it: whoever can ask a container engine for something can do everything.
    CONTAINERS = _Row(
        name="containers",
        permission=Permission.DANGER_FULL_ACCESS,
        requires=(_installed("containers"), _starts_programs),
        layers=_container,
        open_world=_containers_reach_network,
        provider="containers.provider",
    )
    CLOCK = _own("clock")
    ASK = _own("ask")
    TELL = _own("tell")
    TODOS = _own("todos")
    PREFERENCES = _own("preferences")
    FETCH = _Row(
        name="fetch",
        permission=Permission.READ_ONLY,
        requires=(_online,),
        layers=_address_guard,
        open_world=_always,
        provider="web.provider",
    )
    SEND = _Row(
        name="send",
        permission=Permission.DANGER_FULL_ACCESS,
        requires=(_online,),
        layers=_address_guard,
        open_world=_always,
        provider="web.provider",
    )
    CATALOGUE = _own("catalogue")
    # A tool of the user's declares the permission that its code requires.
    OWN_CODE = _Row(
        name="own_code",
        permission=Permission.READ_ONLY,
        layers=_server_layers,
        open_world=_server_reaches_network,
    )
    LANGUAGES = _Row(
        name="languages",
        permission=Permission.DANGER_FULL_ACCESS,
        requires=(_answers_about_code,),
        layers=_command_layers,
        open_world=_commands_reach_network,
        required=_code_permission,
        provider="lsp.provider",
    )
    AGENTS = _deferred("agents", "agents.provider", needs_model=True)
    TEAMS = _deferred("teams", "agents.provider", needs_model=True)
    TASKS = _stored("tasks", "tasks.provider")
    TASK_RUNS = _deferred("task_runs", "tasks.provider")
    CRON = _stored("cron", "cron.provider")
    SCHEDULES = _deferred("schedules", "cron.provider")
    SKILLS = _Row(
        name="skills", permission=Permission.READ_ONLY, layers=_file_layers, provider="skills.provider"
    )
    SKILLS_SAVE = _stored("skills_save", "skills.provider", Permission.WORKSPACE_WRITE)
    PLAN = _own("plan")
    WORKTREES = _Row(
        name="worktrees",
        permission=Permission.WORKSPACE_WRITE,
        requires=(_installed("git"), _runs_commands),
        layers=_git_layers,
        provider="worktrees.provider",
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

    def unavailable(self, host: HostFacts) -> Reason | None:
        """Why the server does not have it; None where it has."""
        return next((why for condition in self._row.requires if (why := condition(host))), None)

    def required(self, host: HostFacts) -> Permission:
        """The permission it requires on this host, where it is available."""
        return self.permission if self._row.required is None else self._row.required(host)

    def layers(self, host: HostFacts) -> tuple[str, ...]:
        """What enforces its limits."""
        return self._row.layers(host)

    def is_open_world(self, host: HostFacts) -> bool:
        """Whether it reaches beyond this machine's files."""
        return self._row.open_world(host)


JOB_SOURCES = {"agent_": "agents.provider", "task_": "tasks.provider"}
"""The module below `runtime/` that provides background jobs, by the prefix of their handles; commands in the
background, `bg_`, come from the composition root."""

DESKTOP = tuple(need for need in Capability if need.provider == "desktop.provider")
"""What reaches the user's desktop."""
