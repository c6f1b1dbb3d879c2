"""The settings: flags override environment variables, which override the config file.

An unknown value or key stops start-up. This module uses the standard library
only, because it runs before the broker is forked and before anything else is imported.
"""

import argparse
import ipaddress
import os
import re
import textwrap
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal, NoReturn, Required, TypedDict, TypeVar, Unpack

from mcp_toolserver import __version__
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.text.git.author import parse_author
from mcp_toolserver.text.path_syntax import lies_in

PREFIX = "MCP_TOOLSERVER_"

T = TypeVar("T")

Raw = str | int | float | bool | list[str] | dict[str, list[str]]
"""A value as a flag, a variable or a TOML file gives it."""

Value = str | int | float | bool | Permission | tuple[str, ...] | None

Group = Literal["tools", "transport", "confinement", "commands", "web", "limits", "output", "files"]

GROUPS: Mapping[Group, str] = {
    "tools": "Permissions and tools",
    "transport": "Transport",
    "confinement": "Confinement",
    "commands": "Commands",
    "web": "Web",
    "limits": "Limits",
    "output": "Logging and output",
    "files": "Files of the server",
}
"""The groups of settings with their headings, in the order of `--help`."""


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
    rule: bool = False
    """A list of the config file's table `[rules]`."""
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
        if self.rule:
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
    rule: bool
    unset: str


def setting(
    default: T, read: Callable[[Raw], Value], text: str, metavar: str | None = None, **form: Unpack[_Form]
) -> T:
    """Declare a field of `Settings` with its default value and how it is given; see `Option`."""
    option = Option(read=read, text=text, default=default, metavar=metavar, **form)
    return field(default=default, metadata={"option": option})


def _path(text: str, home: str) -> str:
    """A path that begins with `~` or `~/`, as JSON files and client bundles have it: no shell expanded it."""
    return home + text[1:] if text == "~" or text.startswith("~/") else text


def _path_of_key(entry: str, home: str) -> str:
    """The same for the path in `engine=FILE`."""
    engine, sign, path = entry.partition("=")
    return f"{engine}{sign}{_path(path, home)}"


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
        expand=_path,
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
        "additional name of this server in the HTTP Host header, NAME or NAME:PORT; repeatable",
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
        expand=_path,
        group="transport",
        unset="a new token, printed at start",
    )
    tokens: str | None = setting(
        None,
        _text,
        "file with a token, mode, roots and limits for each of several users, mode 0600",
        metavar="FILE",
        expand=_path,
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
        expand=_path,
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
        "seconds after which a command continues in the background",
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
    tool_files: tuple[str, ...] = setting(
        (), _texts, "Python files with custom tools", expand=_path, group="tools"
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
    deny: tuple[str, ...] = setting((), _texts, "calls to reject", rule=True, group="tools")
    ask: tuple[str, ...] = setting(
        (), _texts, "calls that need the user's approval", rule=True, group="tools"
    )
    allow: tuple[str, ...] = setting((), _texts, "calls that need no approval", rule=True, group="tools")
    config: str | None = None
    """The config file that was read."""


def _options() -> Iterator[Option]:
    for declared in fields(Settings):
        option: Option | None = declared.metadata.get("option")
        if option is not None:
            yield replace(option, name=declared.name.replace("_", "-"))


OPTIONS = tuple(option for option in _options() if not option.rule)
RULES = tuple(option for option in _options() if option.rule)
"""The lists of the `[rules]` table in the config file."""

Action = Literal["serve", "setup", "tools", "call", "doctor", "log", "token", "demo", "completion"]

ACTIONS: Mapping[Action, str] = {
    "serve": "serve MCP (the default)",
    "setup": "add this server to an MCP client, with the flags given, or remove it",
    "tools": "list the tools that these flags offer",
    "call": "run one tool and print its result",
    "doctor": "test what is enforced on this machine, and say what is missing",
    "log": "print the audit log, or verify that nobody changed it",
    "token": "add, list or revoke the users in a file of tokens",
    "demo": "show a client that uses a read-only server on a folder",
    "completion": "print a script that completes commands, flags and values in a shell",
}

SHELLS = ("bash", "zsh", "fish")
"""Those that `completion` knows."""

FORMATS = ("table", "json", "mcp", "anthropic", "openai", "acp")


@dataclass(frozen=True, kw_only=True)
class SetupRequest:
    """What `setup` is to do."""

    client: str | None
    """None with `listed` only."""
    given: frozenset[str]
    """Names of the settings that were given as flags: these are configured in the client."""
    config: str | None = None
    """The config file, if it was given as a flag."""
    name: str = "toolserver"
    scope: str = "user"
    """`user` or `project`: the configuration of this user, or of the project in the current folder."""
    url: str | None = None
    windows: bool = False
    """From WSL, configure the client of Windows."""
    confine: bool = False
    removed: bool = False
    printed: bool = False
    confirmed: bool = False
    listed: bool = False


@dataclass(frozen=True, kw_only=True)
class TokenRequest:
    """What `token` is to do."""

    what: str
    """`add`, `list` or `revoke`."""
    name: str = ""
    """Empty with `list`."""
    expires: str = ""
    given: frozenset[str]
    """Names of the settings that were given as flags: these are for the name."""
    ceiling: Permission
    """The highest mode of a name: that of the server, where the environment or config file says it."""
    roots: tuple[str, ...]
    """The folders of the server, in which those of a name lie; the whole machine where they are unknown."""


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """A parsed command line."""

    action: Action
    settings: Settings
    tool: str = ""
    """`call`: the tool."""
    arguments: str = "{}"
    """`call`: its arguments as JSON."""
    json: bool = False
    format: str = "table"
    """`tools`: how to print."""
    follow: bool = False
    """`log`: keep printing new calls."""
    verify: bool = False
    """`log`: verify the audit log instead of printing it."""
    shell: str = ""
    """`completion` only."""
    setup: SetupRequest | None = None
    """`setup` only."""
    token: TokenRequest | None = None
    """`token` only."""


def load(argv: Sequence[str], environ: Mapping[str, str]) -> Invocation:
    """Read the command line, the environment and the config file they name.

    Raises:
        SettingsError: something is unknown or wrong; the text names it and the choices.
        SystemExit: `--help` or `--version` was printed.
    """
    parsed, unknown = command_parser().parse_known_args(_with_action(argv), namespace=_Parsed())
    if unknown:
        raise SettingsError(_unknown_argument(unknown[0], parsed.action))
    variables = _variables(environ)
    config = parsed.config or variables.pop(PREFIX + "CONFIG", None)
    config = config and _expanded(config, _path, environ)
    configured = {**_from_config(config), **_from_variables(variables)}
    given = {**configured, **_from_flags(parsed)}
    values = {**given, **_expand_paths(given, environ)}
    settings = replace(Settings(), config=config, **values)
    _check_outside_roots(settings, config)
    return Invocation(
        action=parsed.action,
        settings=settings,
        tool=parsed.tool,
        arguments=parsed.arguments,
        json=parsed.json,
        format=parsed.format,
        follow=parsed.follow,
        verify=parsed.verify,
        shell=parsed.shell,
        setup=_setup_request(parsed) if parsed.action == "setup" else None,
        token=_token_request(parsed, {**configured, **_expand_paths(configured, environ)})
        if parsed.action == "token"
        else None,
    )


def serves_stdio(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether an invalid command line is that of a server over stdio, as far as flags and variables say."""
    if argv[:1] and argv[0] != "serve" and argv[0] in ACTIONS:
        return False
    words = [word for argument in argv for word in argument.split("=", 1)]
    flags = [value for flag, value in pairwise(words) if flag == "--transport"]
    return (flags or [environ.get(f"{PREFIX}TRANSPORT")])[-1] not in ("http", "sse")


def _setup_request(parsed: "_Parsed") -> SetupRequest:
    if parsed.client is None and not parsed.list:
        raise SettingsError(f"name a client; `{_PROGRAM} setup --list` shows all")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", parsed.name):
        raise SettingsError(f"--name: {parsed.name!r} must have 1 to 64 of the characters A-Z a-z 0-9 _ -")
    return SetupRequest(
        client=parsed.client,
        given=frozenset(option.name for option in OPTIONS if parsed.given(option) is not None),
        config=parsed.config,
        name=parsed.name,
        scope=parsed.scope,
        url=parsed.url,
        windows=parsed.windows,
        confine=parsed.confine,
        removed=parsed.remove,
        printed=parsed.print,
        confirmed=parsed.yes,
        listed=parsed.list,
    )


def _token_request(parsed: "_Parsed", configured: Mapping[str, Value]) -> TokenRequest:
    if (parsed.what == "list") == bool(parsed.token_name):
        raise SettingsError("token list takes no NAME; token add and token revoke take one")
    ceiling, roots = configured.get("permission_mode"), configured.get("root")
    return TokenRequest(
        what=parsed.what,
        name=parsed.token_name,
        expires=parsed.expires,
        given=frozenset(option.name for option in OPTIONS if parsed.given(option) is not None),
        ceiling=ceiling if isinstance(ceiling, Permission) else Permission.DANGER_FULL_ACCESS,
        roots=roots if isinstance(roots, tuple) else ("/",),
    )


class _Parsed(argparse.Namespace):
    """The parsed command line, typed."""

    action: Action = "serve"
    config: str | None = None
    tool: str = ""
    arguments: str = "{}"
    json: bool = False
    format: str = "table"
    follow: bool = False
    verify: bool = False
    shell: str = ""
    client: str | None = None
    name: str = "toolserver"
    scope: str = "user"
    url: str | None = None
    windows: bool = False
    confine: bool = False
    remove: bool = False
    print: bool = False
    yes: bool = False
    list: bool = False
    what: str = ""
    token_name: str = ""
    expires: str = ""

    def given(self, option: Option) -> Raw | None:
        """The value of a flag, None when it was not given."""
        value: Raw | None = getattr(self, option.attribute, None)
        return value


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message} (see {self.prog} --help)")


_PROGRAM = "mcp-toolserver"

_SHOWN: Mapping[Action, Container[str]] = {
    "serve": frozenset(option.name for option in OPTIONS) | {"config"},
    "setup": ("permission-mode", "root", "toolsets", "transport"),
    "tools": ("permission-mode", "toolsets", "tools", "exclude-tools", "config"),
    "call": ("permission-mode", "root", "config"),
    "doctor": ("permission-mode", "root", "config"),
    "log": ("state-dir",),
    "token": ("tokens", "permission-mode", "root", "calls-per-minute", "max-calls", "config"),
    "demo": ("root",),
    "completion": (),
}
"""The settings in the help of each command. Every command accepts all of them, so that the flags of a server
can be copied."""


_EPILOGS: Mapping[Action, str] = {
    **dict.fromkeys(
        ("tools", "call", "doctor"), f"It also takes the other flags of the server; see {_PROGRAM} --help."
    ),
    "token": "The flags of `token add` are for the user: a mode, roots and limits within\n"
    "those of the server. Without --root, all roots of the server are meant.",
    "completion": f"""\
Write the script to the file from which the shell loads it:
  bash  ~/.local/share/bash-completion/completions/{_PROGRAM}
  zsh   _{_PROGRAM} in a folder of $fpath
  fish  ~/.config/fish/completions/{_PROGRAM}.fish""",
    "setup": "Without --root, the tools work in the folder that is open in the client, if the\n"
    "client tells it. The other flags of the server are configured as given; see\n"
    f"{_PROGRAM} --help.",
}


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps what is in brackets in one piece: defaults and variables."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        # No line ends at a no-break space.
        joined = re.sub(r"\[[^]]*\]", lambda fact: fact[0].replace(" ", "\xa0"), text)
        wrapped = (textwrap.wrap(part, width, break_on_hyphens=False) for part in joined.split("\n"))
        return [line.replace("\xa0", " ") for lines in wrapped for line in lines]


class _ProgramParser(_Parser):
    """Of the program: its help ends with the keys of the config file."""

    def format_help(self) -> str:
        formatter = self._get_formatter()
        for title, options in (
            (
                "Keys of the config file alone, which docs/configuration.md explains",
                [option for option in OPTIONS if not option.flag],
            ),
            ("Lists of its table [rules], which docs/rules.md explains", RULES),
        ):
            formatter.start_section(title)
            in_order = (option for group in GROUPS for option in options if option.group == group)
            formatter.add_arguments(
                argparse.Action([], dest=option.name, help=option.help) for option in in_order
            )
            formatter.end_section()
        return f"{super().format_help()}\n{formatter.format_help()}"


def _add_settings(
    parser: argparse.ArgumentParser, shown: Container[str], adapt: "Adapt", *, several: bool
) -> None:
    """Add the flags of the settings; `several` values may follow one that is repeatable."""
    # A flag that is absent sets nothing.
    parser.argument_default = argparse.SUPPRESS
    for group, title in GROUPS.items():
        section = parser.add_argument_group(title)
        for option in (option for option in OPTIONS if option.flag and option.group == group):
            text = option.help.replace("%", "%%") if option.name in shown else argparse.SUPPRESS
            if option.switch:
                section.add_argument(f"--{option.name}", help=text, action="store_true")
                continue
            added = section.add_argument(
                f"--{option.name}",
                metavar=option.metavar,
                help=text,
                action=("extend" if several else "append") if option.repeatable else "store",
                nargs="+" if option.repeatable and several else None,
            )
            adapt(added, option.choices)
        if group == "files":
            text = f"TOML file with settings and rules\n[default: none] [env: {PREFIX}CONFIG]"
            adapt(
                section.add_argument(
                    "--config", metavar="FILE", help=text if "config" in shown else argparse.SUPPRESS
                ),
                (),
            )


Adapt = Callable[[argparse.Action, Sequence[str]], object]
"""Gets each argument that takes a value, and the values if they are a fixed set."""


def command_parser(adapt: Adapt = lambda _, __: None) -> argparse.ArgumentParser:
    """Build the parser of the command line; `adapt` may change its arguments."""
    parser = _ProgramParser(
        prog=_PROGRAM,
        usage="%(prog)s [COMMAND] [FLAG ...]",
        formatter_class=_Formatter,
        description="A coding agent's tools over MCP, with a permission mode that the server\n"
        f"enforces. Start with `{_PROGRAM} setup CLIENT`, which adds this server to\n"
        "an MCP client. Without a COMMAND it serves.",
        allow_abbrev=False,
        add_help=False,
    )
    actions = parser.add_subparsers(
        dest="action", metavar="COMMAND", title="Commands", prog=_PROGRAM, parser_class=_Parser
    )
    # No command is parsed with these: they are here to be shown by --help.
    _add_settings(parser, _SHOWN["serve"], adapt, several=True)
    general = parser.add_argument_group("General")
    general.add_argument("-h", "--help", action="help", help="show this help")
    general.add_argument(
        "--version", action="version", version=f"%(prog)s {__version__}", help="show the version"
    )
    parsers: dict[Action, argparse.ArgumentParser] = {
        name: actions.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            usage="%(prog)s [FLAG ...]" if name == "serve" else None,
            epilog=_EPILOGS.get(name),
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        for name, text in ACTIONS.items()
    }
    for name, of in parsers.items():
        # What follows a repeatable flag of these may be their own arguments.
        _add_settings(of, _SHOWN[name], adapt, several=name not in ("call", "setup", "token"))
    parsers["tools"].add_argument(
        "--format", choices=FORMATS, default="table", help="how to print\n[default: table]"
    )
    tool = parsers["call"].add_argument("tool", metavar="NAME", help="a tool, under any of its names")
    adapt(tool, ())
    parsers["call"].add_argument(
        "arguments",
        metavar="JSON",
        nargs="?",
        default="{}",
        help="its arguments as a JSON object\n[default: {}]",
    )
    parsers["completion"].add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    parsers["log"].add_argument("--follow", action="store_true", help="keep printing new calls until Ctrl-C")
    parsers["log"].add_argument(
        "--verify", action="store_true", help="verify the audit log instead of printing it"
    )
    adapt(_add_setup_arguments(parsers["setup"]), ())
    _add_token_arguments(parsers["token"])
    for name in ("call", "doctor", "log"):
        parsers[name].add_argument("--json", action="store_true", help="print everything as JSON")
    return parser


def _add_setup_arguments(parser: argparse.ArgumentParser) -> argparse.Action:
    """Add the arguments of `setup`; returns that for the client."""
    parser.add_argument(
        "--name", metavar="NAME", help="name of the server in the client [default: toolserver]"
    )
    parser.add_argument(
        "--scope",
        choices=("user", "project"),
        help="configure the client for this user, or for the project in the current folder [default: user]",
    )
    parser.add_argument("--url", metavar="URL", help="with --transport http: address of a running server")
    parser.add_argument("--windows", action="store_true", help="in WSL: configure the client of Windows")
    parser.add_argument(
        "--confine",
        action="store_true",
        help="also turn off the client's own tools, which bypass this server",
    )
    parser.add_argument(
        "--remove",
        action="store_true",
        help="remove the server; with --confine, also turn the client's own tools on again",
    )
    parser.add_argument("--print", action="store_true", help="show the change and write nothing")
    parser.add_argument("--yes", action="store_true", help="write without asking")
    parser.add_argument(
        "--list", action="store_true", help="show all clients, and how this server is configured in each"
    )
    return parser.add_argument("client", metavar="CLIENT", nargs="?", help="the MCP client; --list shows all")


def _add_token_arguments(parser: argparse.ArgumentParser) -> None:
    parser.argument_default = argparse.SUPPRESS
    parser.add_argument(
        "what", choices=("add", "list", "revoke"), help="what to do with the file of --tokens"
    )
    parser.add_argument("token_name", metavar="NAME", nargs="?", help="who gets or loses the token")
    parser.add_argument("--expires", metavar="WHEN", help="12h, 90d, 4w, or a date and time with a zone")


def _with_action(argv: Sequence[str]) -> list[str]:
    """Insert `serve` if no command is named."""
    if argv[:1] and not argv[0].startswith("-") and argv[0] not in ACTIONS:
        raise SettingsError(
            f"unknown command {argv[0]!r}; choose from {', '.join(ACTIONS)} (see {_PROGRAM} --help)"
        )
    named = argv[:1] and (argv[0] in ACTIONS or argv[0] in ("-h", "--help", "--version"))
    if argv[:1] != ["call"]:
        _refuse_late_command(argv)
    return list(argv) if named else ["serve", *argv]


def _unknown_argument(word: str, action: Action) -> str:
    """The message about an argument that no parser takes, with the flag that it may stand for."""
    # Only mistakes need this import.
    from difflib import get_close_matches

    given = word.partition("=")[0]
    flags = [f"--{option.name}" for option in OPTIONS if option.flag]
    similar = [flag for flag in flags if len(given) > 3 and given.strip("-") in flag]
    similar = get_close_matches(given, flags, n=1) or similar[:1]
    meant = f"; did you mean {similar[0]}?" if similar and word.startswith("-") else ""
    of = "" if action == "serve" else f"{action} "
    return f"unknown argument {given!r}{meant} (see {_PROGRAM} {of}--help)"


def _refuse_late_command(argv: Sequence[str]) -> None:
    """Reject a command after a value: argparse would take it for another root folder."""
    for before, word in pairwise(argv):
        if word in ACTIONS and not before.startswith("-"):
            raise SettingsError(f"put {word} first: {_PROGRAM} {word} ...; a folder of that name is ./{word}")


def _from_flags(parsed: _Parsed) -> dict[str, Value]:
    return {
        option.attribute: _read(option, f"--{option.name}", raw)
        for option in OPTIONS
        if (raw := parsed.given(option)) is not None
    }


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Our variables; an unknown one is a typing error that would otherwise go unseen. Empty is not set."""
    ours = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value}
    known = {option.variable for option in OPTIONS if option.flag} | {PREFIX + "CONFIG"}
    for name in ours:
        if name not in known:
            raise SettingsError(f"unknown environment variable {name}; known are {', '.join(sorted(known))}")
    return ours


def _from_variables(variables: Mapping[str, str]) -> dict[str, Value]:
    return {
        option.attribute: _read(option, option.variable, option.split(raw))
        for option in OPTIONS
        if (raw := variables.get(option.variable)) is not None
    }


def _from_config(path: str | None) -> dict[str, Value]:
    if path is None:
        return {}
    # Servers without a config file skip this import.
    import tomllib

    try:
        content: dict[str, Raw] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the config file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the config file {path} is not TOML: {error}") from None
    rules = content.pop("rules", {})
    if not isinstance(rules, dict):
        raise SettingsError(f"{path}: rules must be a table, [rules]")
    return {
        **_known(path, content, {option.name: option for option in OPTIONS}),
        **_known(f"{path} [rules]", rules, {option.name: option for option in RULES}),
    }


def _expand_paths(given: Mapping[str, Value], environ: Mapping[str, str]) -> dict[str, Value]:
    """The path settings, with `~` expanded."""
    found: dict[str, Value] = {}
    for option in OPTIONS:
        value = given.get(option.attribute)
        if option.expand is None or not isinstance(value, (str, tuple)):
            continue
        one = isinstance(value, str)
        texts = tuple(_expanded(text, option.expand, environ) for text in ((value,) if one else value))
        found[option.attribute] = texts[0] if one else texts
    return found


def _expanded(text: str, expand: Callable[[str, str], str], environ: Mapping[str, str]) -> str:
    """`text` with the home folder of the user who started the server in place of `~`.

    Raises:
        SettingsError: it is not known, and would be needed.
    """
    if expand(text, "") == text:
        return text
    home = environ.get("HOME") or _registered_home()
    if not os.path.isabs(home):
        raise SettingsError(f"{text}: the home folder is unknown (HOME is {home!r}); write the whole path")
    return expand(text, home.rstrip("/"))


def _registered_home() -> str:
    """The home folder in the user database; empty where there is none."""
    try:
        # Windows has no such module, and is refused later with a better message.
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ""


def _known(place: str, content: Mapping[str, Raw], options: Mapping[str, Option]) -> dict[str, Value]:
    for key in content:
        if key not in options:
            raise SettingsError(f"{place}: unknown key {key!r}; choose from {', '.join(options)}")
    return {
        options[key].attribute: _read(options[key], f"{place}: {key}", raw) for key, raw in content.items()
    }


def _read(option: Option, source: str, raw: Raw) -> Value:
    try:
        return option.read(raw)
    except ValueError as error:
        raise SettingsError(f"{source}: {error}") from None


def _check_outside_roots(settings: Settings, config: str | None) -> None:
    """Reject settings files inside a root, where tools could change them."""
    places = {
        "config file": config,
        "token file": settings.token_file,
        "file of tokens": settings.tokens,
        "state folder": settings.state_dir,
    }
    keys = [("key file", entry.partition("=")[2] or None) for entry in settings.web_search_keys]
    files = [("tool file", path) for path in settings.tool_files]
    for what, path in (*places.items(), *keys, *files):
        for root in settings.root:
            if path is not None and _is_reachable_in(root, path):
                raise SettingsError(
                    f"the {what} {path} lies inside the root {root}, where tools could change it; move it out"
                )


def _is_reachable_in(root: str, path: str) -> bool:
    """Compare both the path as written and the resolved path: a link in the root can be redirected."""
    return lies_in(os.path.abspath(root), os.path.abspath(path)) or lies_in(
        os.path.realpath(root), os.path.realpath(path)
    )


_PUBLIC = (
    *("transport", "toolsets", "tools", "exclude_tools", "sandbox", "network", "git", "allow_degraded"),
    *("allow_unconfined_server", "desktop_private", "raw_output", "audit_values", "ask_seconds"),
    *("foreground_seconds", "web_robots", "containers", "command_processes", "command_memory"),
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
