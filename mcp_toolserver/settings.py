"""The settings: their names, defaults and help, and how each is read. `invocation` says where they come from.

This module uses the standard library only, because it runs before the broker is forked and before anything
else is imported.
"""

import ipaddress
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Required, TypedDict, TypeVar, Unpack

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.sandbox.protected.names import EXCEPTABLE
from mcp_toolserver.text.git.author import parse_author

PREFIX = "MCP_TOOLSERVER_"

T = TypeVar("T")

Raw = str | int | float | bool | list[str] | dict[str, str | int | float | bool | list[str]]
"""A value as a flag, a variable or a TOML file gives it."""

Value = str | int | float | bool | Permission | tuple[str, ...] | None

Group = Literal["tools", "transport", "confinement", "commands", "web", "agent", "limits", "output", "files"]

GROUPS: Mapping[Group, str] = {
    "tools": "Permissions and tools",
    "transport": "Transport",
    "confinement": "Confinement",
    "commands": "Commands",
    "web": "Web",
    "agent": "Model of agents",
    "limits": "Limits",
    "output": "Logging and output",
    "files": "Files of the server",
}
"""The groups of settings with their headings, in the order of `--help`."""

Table = Literal["", "rules", "agent"]
"""A table of the config file; empty for its top level."""


@dataclass(frozen=True)
class Option:
    """How a setting is given: as a flag, a config key and, in capitals, a variable of the same spelling."""

    read: Callable[[Raw], Value]
    text: str
    """What it sets, without its values and its default."""
    group: Group
    default: object
    metavar: str | None = None
    """Of the value of a flag; settings without it are for the config file alone, except switches."""
    repeatable: bool = False
    separator: str = os.pathsep
    """Between the values of a repeatable setting in its variable."""
    switch: bool = False
    """The flag takes no value; a variable and the config file say true or false."""
    expand: Callable[[str, str], str] | None = None
    """For paths: a value and the home folder → the value without `~`."""
    table: Table = ""
    """The table of the config file that has it."""
    unset: str = ""
    """What the default value means, where the value does not say it."""
    name: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """All its values, if they are a fixed set."""
        return self.read.choices if isinstance(self.read, _OneOf) else ()

    @property
    def shown_default(self) -> str:
        """The default value for people; docs/configuration.md has the same."""
        match self.default:
            case _ if self.unset:
                return self.unset
            case bool():
                return ("on" if self.default else "off") if self.switch else str(self.default).lower()
            case Permission():
                return self.default.flag
            case float():
                return f"{self.default:g}"
            case _:
                return str(self.default or "none")

    @property
    def help(self) -> str:
        """What it sets, with its values, its default and its variable."""
        explained = all(choice in self.text for choice in self.choices)
        values = "" if explained else f": {', '.join(self.choices)}"
        if self.table == "rules":
            return self.text
        default = f"[default: {self.shown_default}]"
        return f"{self.text}{values}" + (
            f"\n{default} [env: {self.variable}]" if self.flag else f" {default}"
        )

    @property
    def flag(self) -> bool:
        """Whether it is also a flag and a variable."""
        return self.switch or self.metavar is not None

    @property
    def key(self) -> str:
        """Its name in its table of the config file: `agent-model` is `model` in `[agent]`."""
        return self.name.removeprefix(f"{self.table}-")

    @property
    def attribute(self) -> str:
        """Its name in `Settings`."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.attribute.upper()

    def split(self, text: str) -> Raw:
        """The values in the text of a variable."""
        return text.split(self.separator) if self.repeatable else text


class _Form(TypedDict, total=False):
    """The fields of `Option` that are given by name."""

    group: Required[Group]
    repeatable: bool
    separator: str
    switch: bool
    expand: Callable[[str, str], str]
    table: Table
    unset: str


def setting(
    default: T, read: Callable[[Raw], Value], text: str, metavar: str | None = None, **form: Unpack[_Form]
) -> T:
    """Declare a field of `Settings` with its default value and how it is given; see `Option`."""
    option = Option(read=read, text=text, default=default, metavar=metavar, **form)
    return field(default=default, metadata={"option": option})


def expand_home(text: str, home: str) -> str:
    """A path that begins with `~` or `~/`, as JSON files and client bundles have it: no shell expanded it."""
    return home + text[1:] if text == "~" or text.startswith("~/") else text


def _path_of_key(entry: str, home: str) -> str:
    """The same for the path in `engine=FILE`."""
    engine, sign, path = entry.partition("=")
    return f"{engine}{sign}{expand_home(path, home)}"


@dataclass(frozen=True)
class _OneOf:
    """Reads one value of a fixed set."""

    values: Mapping[str, Value]
    """By the text of each."""

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(self.values)

    def __call__(self, raw: Raw) -> Value:
        if not isinstance(raw, str) or raw not in self.values:
            raise ValueError(f"{raw!r} is none of {', '.join(self.values)}")
        return self.values[raw]


def _one_of(*choices: str) -> _OneOf:
    return _OneOf({choice: choice for choice in choices})


_permission = _OneOf({permission.flag: permission for permission in Permission})


def _text(raw: Raw) -> str:
    if not isinstance(raw, str) or not raw:
        raise ValueError("it must be text that is not empty")
    return raw


def _git_author(raw: Raw) -> str:
    return str(parse_author(_text(raw)))


def _words(raw: Raw) -> tuple[str, ...]:
    """A comma-separated text, or a list of texts."""
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list):
        raise ValueError("it must be a list of texts")
    return tuple(part for part in (_text(part).strip() for part in parts) if part)


def _paths(raw: Raw) -> tuple[str, ...]:
    """One path, or a list of paths; commas are part of a path."""
    return tuple(_text(part) for part in (raw if isinstance(raw, list) else [raw]))


def _writable_names(raw: Raw) -> tuple[str, ...]:
    names = tuple(text.lower() for text in _paths(raw))
    if unknown := [name for name in names if name not in EXCEPTABLE]:
        raise ValueError(f"{unknown[0]!r} cannot be excepted; give one of {', '.join(sorted(EXCEPTABLE))}")
    return names


_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?P<name>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?")


def _host_names(raw: Raw) -> tuple[str, ...]:
    """Exact host names or addresses, each with or without a port, in lower case."""
    return tuple(_host_name(text) for text in _paths(raw))


def _host_name(text: str) -> str:
    lowered = text.strip().lower()
    found = _HOST.fullmatch(lowered)
    if found is None or not _is_host(found["name"]) or not 0 < int(found["port"] or 1) <= 65535:
        raise ValueError(
            f"{text!r} is not a host. Give NAME or NAME:PORT, as clients send it in the Host header, without "
            "a scheme or path. There are no wildcards: with one, a web page could reach this server under a "
            "name of its own (DNS rebinding)"
        )
    return lowered


def _is_host(name: str) -> bool:
    """Whether a name or address stands for one host."""
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return "[" not in name and len(name) <= 253
    return not address.is_unspecified


def _texts(raw: Raw) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise ValueError("it must be a list of texts")
    return _paths(raw)


def _whole(low: int, high: int) -> Callable[[Raw], int]:
    def read(raw: Raw) -> int:
        number = int(raw) if isinstance(raw, str) and raw.isascii() and raw.isdigit() else raw
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise ValueError(f"it must be a whole number from {low} to {high}")
        return number

    return read


def _yes_or_no(raw: Raw) -> bool:
    words: Mapping[Raw, bool] = {True: True, False: False, "true": True, "false": False}
    if not isinstance(raw, (bool, str)) or raw not in words:
        raise ValueError("it must be true or false")
    return words[raw]


def _seconds(raw: Raw) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not 0 < raw <= 3600:
        raise ValueError("it must be a number of seconds above 0, at most 3600")
    return float(raw)


def _price(raw: Raw) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not 0 <= raw <= 10_000:
        raise ValueError("it must be a number of US dollars from 0 to 10000")
    return float(raw)


_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Constant for the life of the process."""

    permission_mode: Permission = setting(
        Permission.READ_ONLY, _permission, "highest permission of any tool", metavar="MODE", group="tools"
    )
    root: tuple[str, ...] = setting(
        (),
        _paths,
        "folder that the tools work in; repeatable; serve and call need one",
        metavar="DIR",
        repeatable=True,
        expand=expand_home,
        group="tools",
    )
    skills: tuple[str, ...] = setting(
        (),
        _paths,
        "folder with skills (NAME/SKILL.md) outside the roots; repeatable",
        metavar="DIR",
        repeatable=True,
        expand=expand_home,
        group="tools",
    )
    transport: str = setting(
        "stdio",
        _one_of("stdio", "http", "sse"),
        "how clients connect",
        metavar="TRANSPORT",
        group="transport",
    )
    host: str = setting("127.0.0.1", _text, "address to listen on", metavar="ADDR", group="transport")
    port: int = setting(
        8765, _whole(0, 65535), "port to listen on; 0 is any free one", metavar="N", group="transport"
    )
    allowed_host: tuple[str, ...] = setting(
        (),
        _host_names,
        "additional name of this server in the HTTP Host header, NAME (any port) or NAME:PORT; repeatable",
        metavar="HOST",
        repeatable=True,
        separator=",",
        group="transport",
    )
    token_file: str | None = setting(
        None,
        _text,
        "file with the bearer token, mode 0600",
        metavar="FILE",
        expand=expand_home,
        group="transport",
        unset="a new token, printed at start",
    )
    tokens: str | None = setting(
        None,
        _text,
        "file with a token, mode, roots and limits for each of several users, mode 0600",
        metavar="FILE",
        expand=expand_home,
        group="transport",
    )
    toolsets: tuple[str, ...] = setting(
        (),
        _words,
        "toolsets to serve: names, lean, default or all",
        metavar="A,B",
        group="tools",
        unset="default",
    )
    tools: tuple[str, ...] = setting(
        (), _words, "single tools, in addition to the toolsets", metavar="A,B", group="tools"
    )
    exclude_tools: tuple[str, ...] = setting(
        (), _words, "tools to leave out; overrides all other flags", metavar="A,B", group="tools"
    )
    sandbox: str = setting(
        "auto",
        _one_of("auto", "required", "off"),
        "confinement of commands",
        metavar="WHEN",
        group="confinement",
    )
    network: str = setting(
        "fetch",
        _one_of("none", "fetch", "commands"),
        "who may use the network: none, fetch (web tools), commands (web tools and commands)",
        metavar="WHO",
        group="confinement",
    )
    git: str = setting(
        "protected",
        _one_of("protected", "writable"),
        "whether confined commands may write the .git folder",
        metavar="ACCESS",
        group="confinement",
    )
    writable_name: tuple[str, ...] = setting(
        (),
        _writable_names,
        "protected name (.vscode) that tools and confined commands may write; repeatable",
        metavar="NAME",
        repeatable=True,
        separator=",",
        group="confinement",
    )
    git_author: str = setting(
        "",
        _git_author,
        "author of git_commit, 'NAME <ADDRESS>'",
        metavar="AUTHOR",
        group="tools",
        unset="that of the user's git configuration",
    )
    client_sandbox: str = setting(
        "apply",
        _one_of("apply", "ignore"),
        "sandbox policy of the client (Codex): apply where it is stricter, or ignore",
        metavar="POLICY",
        group="confinement",
    )
    client_roots: str = setting(
        "narrow",
        _one_of("narrow", "ignore"),
        "folders that the client declares (MCP roots): narrow the roots to them, or ignore them",
        metavar="USE",
        group="confinement",
    )
    allow_degraded: bool = setting(
        False,
        _yes_or_no,
        "in workspace-write, let commands run with Landlock alone, without bubblewrap",
        switch=True,
        group="confinement",
    )
    allow_unconfined_server: bool = setting(
        False,
        _yes_or_no,
        "serve although the kernel cannot confine the server's own process (no Landlock)",
        switch=True,
        group="confinement",
    )
    raw_output: bool = setting(
        False,
        _yes_or_no,
        "send control and invisible characters to clients as they are",
        switch=True,
        group="output",
    )
    """Send control, bidi and invisible characters as they are."""
    audit_values: bool = setting(
        False,
        _yes_or_no,
        "write the arguments of calls into the audit log too, secrets blanked",
        switch=True,
        group="output",
    )
    """Write the arguments of calls into the audit log, secrets blanked."""
    desktop_private: bool = setting(
        False,
        _yes_or_no,
        "let tools read the clipboard and notes, and look at the screen",
        switch=True,
        group="tools",
    )
    state_dir: str | None = setting(
        None,
        _text,
        "folder for the audit log, saved outputs and other state",
        metavar="DIR",
        expand=expand_home,
        group="files",
        unset="mcp-toolserver in the user's state folder",
    )
    log_level: str = setting(
        "warning",
        _one_of(*_LEVELS),
        "least severe messages on standard error",
        metavar="LEVEL",
        group="output",
    )
    log_format: str = setting(
        "text",
        _one_of("text", "json"),
        "form of the messages on standard error",
        metavar="FORMAT",
        group="output",
    )
    granted: Permission | None = setting(
        None,
        _permission,
        "level up to which calls run without asking the user",
        group="tools",
        unset="the permission mode",
    )
    """Calls up to this level run without a question; None means the permission mode."""
    ask_seconds: float = setting(
        45.0, _seconds, "seconds that a question to the user waits for an answer", group="tools"
    )
    foreground_seconds: float | None = setting(
        None,
        _seconds,
        "seconds after which a command or an agent continues in the background",
        group="commands",
        unset="what the client is known to wait, or else 45",
    )
    """None: what the client is known to wait, or else 45 s."""
    web_hosts: tuple[str, ...] = setting(
        (), _texts, "the only hosts that may be fetched from", group="web", unset="every public host"
    )
    """Hosts that may be fetched from; empty is every public one."""
    web_private: tuple[str, ...] = setting(
        (), _texts, "hosts and networks that may be fetched from although they are not public", group="web"
    )
    web_robots: bool = setting(True, _yes_or_no, "whether to obey robots.txt", group="web")
    web_search: tuple[str, ...] = setting((), _texts, "search engines, name or name=address", group="web")
    """Search engines, each as `name` or `name=address`; a session keeps to one of them."""
    web_search_keys: tuple[str, ...] = setting(
        (), _texts, "files with their keys, name=FILE", expand=_path_of_key, group="web"
    )
    agent_provider: str | None = setting(
        None,
        _one_of("anthropic", "openai"),
        "API that the model of agents has: anthropic, or openai (chat completions)",
        table="agent",
        group="agent",
        unset="no model",
    )
    agent_base_url: str | None = setting(
        None,
        _text,
        "address of the API, up to what precedes /v1/messages or /chat/completions",
        table="agent",
        group="agent",
        unset="that of the provider",
    )
    agent_model: str | None = setting(
        None, _text, "name of the model", table="agent", group="agent", unset="none; needed with provider"
    )
    agent_models: tuple[str, ...] = setting(
        (), _texts, "models of single types of agents, TYPE=MODEL", table="agent", group="agent"
    )
    agent_key_file: str | None = setting(
        None,
        _text,
        "file with the key of the API, mode 0600",
        expand=expand_home,
        table="agent",
        group="agent",
    )
    agent_key_variable: str | None = setting(
        None,
        _text,
        "environment variable with the key of the API, in place of key-file",
        table="agent",
        group="agent",
    )
    agent_input_price: float | None = setting(
        None,
        _price,
        "US dollars for a million tokens of input",
        table="agent",
        group="agent",
        unset="the published price of the model, if it is known",
    )
    agent_output_price: float | None = setting(
        None,
        _price,
        "US dollars for a million tokens of output",
        table="agent",
        group="agent",
        unset="as for input-price",
    )
    agent_turn_seconds: float = setting(
        300.0,
        _seconds,
        "seconds that one turn of the model may take, with repeated attempts",
        table="agent",
        group="agent",
    )
    agent_turns: int = setting(
        50, _whole(1, 1_000), "turns of the model in one run of an agent", table="agent", group="agent"
    )
    agent_tokens: int = setting(
        2_000_000,
        _whole(1_000, 1_000_000_000),
        "tokens in and out in one run of an agent, with those of the agents that it starts",
        table="agent",
        group="agent",
    )
    agent_seconds: float = setting(
        1_800.0, _seconds, "seconds that one run of an agent may take", table="agent", group="agent"
    )
    agent_cost: float | None = setting(
        None,
        _price,
        "US dollars that one run of an agent may cost, with the agents that it starts",
        table="agent",
        group="agent",
        unset="no limit",
    )
    agent_running: int = setting(
        8, _whole(1, 100), "agents that run at the same time", table="agent", group="agent"
    )
    tool_files: tuple[str, ...] = setting(
        (), _texts, "Python files with custom tools", expand=expand_home, group="tools"
    )
    tool_packages: tuple[str, ...] = setting(
        (), _texts, "installed packages to take tools from", group="tools"
    )
    containers: str = setting(
        "off",
        _one_of("off", "failover", "containerOnly"),
        "whether commands run in containers",
        group="commands",
    )
    """Where commands run: off is on this machine, and container_shell in containers; containerOnly leaves
    nothing but that; failover lets it run on this machine where no container can be started."""
    container_image: str = setting(
        "ghcr.io/astral-sh/uv:python3.13-alpine3.23", _text, "image of the containers", group="commands"
    )
    command_environment: tuple[str, ...] = setting(
        (),
        _texts,
        "names or patterns (`CARGO_*`) of more environment variables that commands see",
        group="commands",
    )
    command_processes: int = setting(512, _whole(1, 100_000), "processes of one command", group="commands")
    command_memory: int = setting(
        0,
        _whole(0, 2**24),
        "MiB that one command may use",
        group="commands",
        unset="0 = half of the machine's memory",
    )
    command_file_size: int = setting(
        8 * 1024, _whole(1, 2**24), "MiB of one file of a command", group="commands"
    )
    command_cpu_seconds: int = setting(
        0,
        _whole(0, 10**7),
        "seconds of processor time of one command",
        group="commands",
        unset="0 = one hour per processor",
    )
    """For all processes of one command; 0 means one hour per processor."""
    output_size: int = setting(1024, _whole(1, 2**24), "MiB of all saved outputs together", group="limits")
    output_hours: int = setting(24, _whole(1, 8760), "hours that a saved output is kept", group="limits")
    disk_reserve: int = setting(
        64,
        _whole(8, 2**24),
        "MiB that saved outputs leave free on the disk of the state folder",
        group="limits",
    )
    quarantine_size: int = setting(
        1024, _whole(1, 2**24), "MiB in quarantine; a start deletes the oldest beyond that", group="limits"
    )
    quarantine_days: int = setting(
        30, _whole(1, 3650), "days in quarantine; a start deletes what is older", group="limits"
    )
    undo_size: int = setting(
        256, _whole(0, 2**24), "MiB of replaced contents kept for undo; 0 keeps none", group="limits"
    )
    undo_days: int = setting(
        7,
        _whole(1, 3650),
        "days that replaced contents are kept; a start deletes what is older",
        group="limits",
    )
    max_body: int = setting(
        4 * 1024 * 1024, _whole(1024, 2**30), "bytes of one HTTP request", group="transport", unset="4 MiB"
    )
    max_calls: int = setting(
        256, _whole(1, 10_000), "requests in progress at once", metavar="N", group="limits"
    )
    max_calls_per_client: int = setting(
        128, _whole(1, 10_000), "requests in progress of one client over HTTP", metavar="N", group="limits"
    )
    calls_per_minute: int = setting(
        0,
        _whole(0, 1_000_000),
        "calls of tools by one client in a minute",
        metavar="N",
        group="limits",
        unset="0 = no limit",
    )
    max_sessions: int = setting(256, _whole(1, 10_000), "HTTP sessions at the same time", group="limits")
    deny: tuple[str, ...] = setting((), _texts, "calls to reject", table="rules", group="tools")
    ask: tuple[str, ...] = setting(
        (), _texts, "calls that need the user's approval", table="rules", group="tools"
    )
    allow: tuple[str, ...] = setting((), _texts, "calls that need no approval", table="rules", group="tools")
    config: str | None = None
    """The config file that was read."""


def _options() -> Iterator[Option]:
    for declared in fields(Settings):
        option: Option | None = declared.metadata.get("option")
        if option is not None:
            yield replace(option, name=declared.name.replace("_", "-"))


OPTIONS = tuple(option for option in _options() if not option.table)
"""Those at the top level of the config file."""

TABLES: Mapping[str, tuple[Option, ...]] = {
    table: tuple(option for option in _options() if option.table == table) for table in ("rules", "agent")
}
"""Those in its tables."""

_PUBLIC = (
    *("transport", "toolsets", "tools", "exclude_tools", "sandbox", "network", "git", "writable_name"),
    *("allow_degraded", "allow_unconfined_server", "desktop_private", "raw_output", "audit_values"),
    *("ask_seconds", "foreground_seconds", "web_robots", "containers", "command_processes", "command_memory"),
    *("command_file_size", "command_cpu_seconds", "output_size", "output_hours", "disk_reserve"),
    *("max_body", "max_calls", "max_sessions"),
)
"""The settings that clients may read. Omitted are the rules, which name what they hide, and the paths of
keys, tokens, code and state."""


def public_settings(settings: Settings, roots: Sequence[str]) -> Mapping[str, object]:
    """The settings that clients may read, under their config file names."""
    granted = settings.permission_mode if settings.granted is None else settings.granted
    values: dict[str, object] = {name.replace("_", "-"): getattr(settings, name) for name in _PUBLIC}
    return {
        "permission-mode": settings.permission_mode.flag,
        "granted": min(granted, settings.permission_mode).flag,
        "root": list(roots),
        **values,
    }
