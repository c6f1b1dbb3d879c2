"""The settings: their names, defaults and help, and how each is read. `invocation` says where they come from.

This module uses the standard library only, because it runs before the broker is forked and before anything
else is imported.
"""

import ipaddress
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeVar

from mcp_toolserver.capabilities.call_scope import HookEvent
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.sandbox.protected.names import EXCEPTABLE
from mcp_toolserver.runtime.sandbox.proxy.allowed_hosts import parse_allowed_host
from mcp_toolserver.text.git.names import parse_author

PREFIX = "MCP_TOOLSERVER_"

T = TypeVar("T")

Table = dict[str, str | int | float | bool | list[str]]

Raw = str | int | float | bool | list[str] | list[Table] | Table
"""A value as a flag, a variable or a TOML file gives it."""

Texts = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class HookSetting:
    """A hook that is a command; see `pipeline.hooks`."""

    event: HookEvent
    command: Texts
    """The absolute path of a program, and its arguments."""
    matcher: Texts
    """Rules for the calls that it is about."""
    timeout: float


@dataclass(frozen=True)
class HookSettings:
    each: tuple[HookSetting, ...] = ()


Value = str | int | float | bool | Permission | Texts | HookSettings | None


@dataclass(frozen=True)
class Group:
    title: str

    def __call__(self, form: "Option", default: T, text: str, unset: str = "") -> T:
        """Declare a field of `Settings` that is given in this form, with its default value; see `Option`."""
        option = replace(form, default=default, group=self, text=text, unset=unset)
        return field(default=default, metadata={"option": option})


TOOLS, TRANSPORT, CONFINEMENT = Group("Permissions and tools"), Group("Transport"), Group("Confinement")
COMMANDS, WEB, AGENT, LIMITS = Group("Commands"), Group("Web"), Group("Model of agents"), Group("Limits")
OUTPUT, FILES = Group("Logging and output"), Group("Files of the server")
GROUPS = (TOOLS, TRANSPORT, CONFINEMENT, COMMANDS, WEB, AGENT, LIMITS, OUTPUT, FILES)
"""In the order of `--help`."""


@dataclass(frozen=True)
class Option:
    """How a setting is given: as a flag, a config key and, in capitals, a variable of the same spelling."""

    read: Callable[[Raw], Value]
    metavar: str | None = None
    """Of the value of a flag; settings without it are for the config file alone, except switches."""
    choices: tuple[str, ...] = ()
    """All its values, if they are a fixed set."""
    repeatable: bool = False
    separator: str = os.pathsep
    """Between the values of a repeatable setting in its variable."""
    switch: bool = False
    """The flag takes no value; a variable and the config file say true or false."""
    expand: Callable[[str, str], str] | None = None
    """For paths: a value and the home folder → the value without `~`."""
    is_rule: bool = False
    name: str = ""
    default: object = None
    group: Group = TOOLS
    text: str = ""
    """What it sets, without its values and its default."""
    unset: str = ""
    """What the default value means, where the value does not say it."""

    @property
    def table(self) -> str:
        """The table of the config file that has it; empty for its top level."""
        return "rules" if self.is_rule else "agent" if self.group is AGENT else ""

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
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        return PREFIX + self.attribute.upper()


class RuleText(str):
    """A rule as it is written, with the file and line that have it."""

    __slots__ = ("source",)

    source: str


def rule_line(text: str, key: str, rule: str = "") -> int:
    """The number of the line that has `rule` in the list `key` of the TOML `text`; of the key if it is not
    found."""
    lines = text.split("\n")
    is_key = re.compile(
        rf"""\s*(?:rules\s*\.\s*)?["']?{re.escape(key)}["']?\s*[=\].]|\s*\[\s*{re.escape(key)}"""
    )
    start = next((number for number, line in enumerate(lines) if is_key.match(line)), 0)
    written = (json.dumps(rule, ensure_ascii=False), f"'{rule}'")
    found = (number for number in range(start, len(lines)) if any(one in lines[number] for one in written))
    return next(found, start) + 1


def expand_home(text: str, home: str) -> str:
    """A path that begins with `~` or `~/`, as JSON files and client bundles have it: no shell expanded it."""
    return home + text[1:] if text == "~" or text.startswith("~/") else text


def _path_of_key(entry: str, home: str) -> str:
    """The same for the path in `engine=FILE`."""
    engine, sign, path = entry.partition("=")
    return f"{engine}{sign}{expand_home(path, home)}"


def _text(raw: Raw) -> str:
    if not isinstance(raw, str) or not raw:
        raise ValueError("it must be text that is not empty")
    return raw


def _words(raw: Raw) -> Texts:
    """A comma-separated text, or a list of texts."""
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list):
        raise ValueError("it must be a list of texts")
    return tuple(part for part in (_text(part).strip() for part in parts) if part)


def _paths(raw: Raw) -> Texts:
    """One path, or a list of paths; commas are part of a path."""
    return tuple(_text(part) for part in (raw if isinstance(raw, list) else [raw]))


def _writable_names(raw: Raw) -> Texts:
    names = tuple(text.lower() for text in _paths(raw))
    if unknown := [name for name in names if name not in EXCEPTABLE]:
        raise ValueError(f"{unknown[0]!r} cannot be excepted; give one of {', '.join(sorted(EXCEPTABLE))}")
    return names


_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?P<name>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?")


def _host_names(raw: Raw) -> Texts:
    """Exact host names or addresses, each with or without a port, in lower case."""
    names = tuple(text.strip().lower() for text in _paths(raw))
    for text, name in zip(_paths(raw), names, strict=True):
        found = _HOST.fullmatch(name)
        if found is None or not _is_host(found["name"]) or not 0 < int(found["port"] or 1) <= 65535:
            raise ValueError(
                f"{text!r} is not a host. Give NAME or NAME:PORT, as clients send it in the Host header, "
                "without a scheme or path. There are no wildcards: with one, a web page could reach this "
                "server under a name of its own (DNS rebinding)"
            )
    return names


def _is_host(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return "[" not in name and len(name) <= 253
    return not address.is_unspecified


def _allowed_domains(raw: Raw) -> Texts:
    return tuple(text for text in _paths(raw) if parse_allowed_host(text))


def _texts(raw: Raw) -> Texts:
    if not isinstance(raw, list):
        raise ValueError("it must be a list of texts")
    return _paths(raw)


def _hook(raw: Raw) -> HookSetting:
    given = {"matcher": "*", "timeout": 60, **raw} if isinstance(raw, dict) else {}
    match given:
        case {
            "event": ("PreToolUse" | "PostToolUse" | "PostToolUseFailure") as event,
            "command": [str() as program, *_] as command,
            "matcher": matcher,
            "timeout": (int() | float()) as timeout,
        } if len(given) == 4 and os.path.isabs(program) and 0 < timeout <= 600:
            return HookSetting(event=event, command=_texts(command), matcher=_paths(matcher), timeout=timeout)
        case _:
            raise ValueError(
                "each [[hooks]] has event (PreToolUse, PostToolUse or PostToolUseFailure), command (a list: "
                "the absolute path of a program, its arguments), perhaps matcher and timeout (up to 600 s)"
            )


def _yes_or_no(raw: Raw) -> bool:
    words: Mapping[Raw, bool] = {True: True, False: False, "true": True, "false": False}
    if not isinstance(raw, (bool, str)) or raw not in words:
        raise ValueError("it must be true or false")
    return words[raw]


def _decimal(what: str, is_valid: Callable[[float], bool]) -> Option:
    def read(raw: Raw) -> float:
        if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not is_valid(raw):
            raise ValueError(f"it must be a number of {what}")
        return float(raw)

    return Option(read)


def _one_of(metavar: str | None, *values: str | Permission) -> Option:
    by_text: Mapping[str, Value] = {
        value.flag if isinstance(value, Permission) else value: value for value in values
    }

    def read(raw: Raw) -> Value:
        if not isinstance(raw, str) or raw not in by_text:
            raise ValueError(f"{raw!r} is none of {', '.join(by_text)}")
        return by_text[raw]

    return Option(read, metavar, tuple(by_text))


def _number(low: int, high: int, metavar: str | None = None) -> Option:
    def read(raw: Raw) -> int:
        number = int(raw) if isinstance(raw, str) and raw.isascii() and raw.isdigit() else raw
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise ValueError(f"it must be a whole number from {low} to {high}")
        return number

    return Option(read, metavar)


_SWITCH = Option(_yes_or_no, switch=True)
_YES_OR_NO = Option(_yes_or_no)
_SECONDS = _decimal("seconds above 0, at most 3600", lambda number: 0 < number <= 3600)
_DOLLARS = _decimal("US dollars from 0 to 10000", lambda number: 0 <= number <= 10_000)
_TEXT = Option(_text)
_TEXTS = Option(_texts)
_RULES = Option(_texts, is_rule=True)
_WORDS = Option(_words, "A,B")
_FOLDER = Option(_text, "DIR", expand=expand_home)
_FOLDERS = Option(_paths, "DIR", repeatable=True, expand=expand_home)
_FILE = Option(_text, "FILE", expand=expand_home)
_KEY_FILE = Option(_text, expand=expand_home)
_FILES = Option(_texts, expand=expand_home)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Constant for the life of the process."""

    permission_mode: Permission = TOOLS(
        _one_of("MODE", *Permission), Permission.READ_ONLY, "highest permission of any tool"
    )
    root: Texts = TOOLS(
        _FOLDERS,
        (),
        "folder that the tools work in; DIR=read-only: nothing changes it in any mode; repeatable; serve and "
        "call need one",
    )
    skills: Texts = TOOLS(_FOLDERS, (), "folder with skills (NAME/SKILL.md) outside the roots; repeatable")
    transport: str = TRANSPORT(_one_of("TRANSPORT", "stdio", "http", "sse"), "stdio", "how clients connect")
    host: str = TRANSPORT(Option(_text, "ADDR"), "127.0.0.1", "address to listen on")
    port: int = TRANSPORT(_number(0, 65535, "N"), 8765, "port to listen on; 0 is any free one")
    allowed_host: Texts = TRANSPORT(
        Option(_host_names, "HOST", repeatable=True, separator=","),
        (),
        "additional name of this server in the HTTP Host header, NAME (any port) or NAME:PORT; repeatable",
    )
    token_file: str | None = TRANSPORT(
        _FILE, None, "file with the bearer token, mode 0600", "a new token, printed at start"
    )
    tokens: str | None = TRANSPORT(
        _FILE, None, "file with a token, mode, roots and limits for each of several users, mode 0600"
    )
    toolsets: Texts = TOOLS(_WORDS, (), "toolsets to serve: names, lean, default or all", "default")
    tools: Texts = TOOLS(_WORDS, (), "single tools, in addition to the toolsets")
    exclude_tools: Texts = TOOLS(_WORDS, (), "tools to leave out; overrides all other flags")
    sandbox: str = CONFINEMENT(_one_of("WHEN", "auto", "required", "off"), "auto", "confinement of commands")
    network: str = CONFINEMENT(
        _one_of("WHO", "none", "fetch", "hosts", "commands"),
        "fetch",
        "who may use the network: none, fetch (web tools), hosts (web tools, and commands to the hosts of "
        "--allow-domain), commands (web tools and commands)",
    )
    allow_domain: Texts = CONFINEMENT(
        Option(_allowed_domains, "NAME", repeatable=True, separator=","),
        (),
        "host that commands may reach with --network hosts: NAME or *.NAME on ports 80 and 443, or "
        "NAME:PORT; repeatable",
    )
    git: str = CONFINEMENT(
        _one_of("ACCESS", "protected", "writable"),
        "protected" if sys.platform == "darwin" else "writable",
        "whether confined commands may write the .git folder, but for hooks and configuration",
        "writable; protected on macOS",
    )
    writable_name: Texts = CONFINEMENT(
        Option(_writable_names, "NAME", repeatable=True, separator=","),
        (),
        "protected name (.vscode) that tools and confined commands may write; repeatable",
    )
    git_author: str = TOOLS(
        Option(lambda raw: str(parse_author(_text(raw))), "AUTHOR"),
        "",
        "author of git_commit, 'NAME <ADDRESS>'",
        "that of the user's git configuration",
    )
    client_sandbox: str = CONFINEMENT(
        _one_of("POLICY", "apply", "ignore"),
        "apply",
        "sandbox policy of the client (Codex): apply where it is stricter, or ignore",
    )
    client_roots: str = CONFINEMENT(
        _one_of("USE", "narrow", "ignore"),
        "narrow",
        "folders that the client declares (MCP roots): narrow the roots to them, or ignore them",
    )
    allow_degraded: bool = CONFINEMENT(
        _SWITCH, False, "in workspace-write, let commands run with Landlock alone, without bubblewrap"
    )
    allow_unconfined_server: bool = CONFINEMENT(
        _SWITCH, False, "serve although the kernel cannot confine the server's own process (no Landlock)"
    )
    structured: bool = OUTPUT(
        _SWITCH, False, "also send the results of lists and records as structured data, with a schema"
    )
    raw_output: bool = OUTPUT(_SWITCH, False, "send control and invisible characters to clients as they are")
    audit_values: bool = OUTPUT(
        _SWITCH, False, "write the arguments of calls into the audit log too, secrets blanked"
    )
    restrict_skills: bool = TOOLS(
        _SWITCH,
        False,
        "let allowed-tools of skills in the --skills folders take rights, as of those in roots",
    )
    desktop_private: bool = TOOLS(
        _SWITCH, False, "let tools read the clipboard and notes, and look at the screen"
    )
    upstreams: str | None = FILES(
        _FILE, None, "JSON file of other MCP servers, in the mcpServers format, whose tools are offered, too"
    )
    state_dir: str | None = FILES(
        _FOLDER,
        None,
        "folder for the audit log, saved outputs and other state",
        "mcp-toolserver in the user's state folder",
    )
    log_level: str = OUTPUT(
        _one_of("LEVEL", "debug", "info", "warning", "error"),
        "warning",
        "least severe messages on standard error",
    )
    log_format: str = OUTPUT(
        _one_of("FORMAT", "text", "json"), "text", "form of the messages on standard error"
    )
    granted: Permission | None = TOOLS(
        _one_of("MODE", *Permission),
        None,
        "level up to which calls run without asking the user",
        "the permission mode",
    )
    ask_seconds: float = TOOLS(_SECONDS, 45.0, "seconds that a question to the user waits for an answer")
    foreground_seconds: float | None = COMMANDS(
        _SECONDS,
        None,
        "seconds after which a command or an agent continues in the background",
        "what the client is known to wait, or else 45",
    )
    web_hosts: Texts = WEB(_TEXTS, (), "the only hosts that may be fetched from", "every public host")
    web_private: Texts = WEB(
        _TEXTS, (), "hosts and networks that may be fetched from although they are not public"
    )
    web_robots: bool = WEB(_YES_OR_NO, True, "whether to obey robots.txt")
    web_search: Texts = WEB(_TEXTS, (), "search engines, name or name=address")
    """Search engines, each as `name` or `name=address`; a session keeps to one of them."""
    web_search_keys: Texts = WEB(Option(_texts, expand=_path_of_key), (), "files with their keys, name=FILE")
    web_searches: int = WEB(_number(1, 1_000_000), 25, "searches of one session in a day")
    web_search_seconds: float = WEB(
        # Less than the deadline of a call.
        _decimal("seconds above 0, at most 50", lambda number: 0 < number <= 50),
        15.0,
        "seconds that one search may take",
    )
    agent_provider: Literal["anthropic", "openai"] | None = AGENT(
        _one_of(None, "anthropic", "openai"),
        None,
        "API that the model of agents has: anthropic, or openai (chat completions)",
        "no model",
    )
    agent_base_url: str | None = AGENT(
        _TEXT,
        None,
        "address of the API, up to what precedes /v1/messages or /chat/completions",
        "that of the provider",
    )
    agent_model: str | None = AGENT(_TEXT, None, "name of the model", "none; needed with provider")
    agent_models: Texts = AGENT(_TEXTS, (), "models of single types of agents, TYPE=MODEL")
    agent_context_tokens: int = AGENT(
        _number(1_000, 100_000_000), 200_000, "tokens of a request and its answer together, at most"
    )
    agent_output_tokens: int = AGENT(_number(1, 10_000_000), 8_192, "tokens of an answer, at most")
    agent_model_limits: Texts = AGENT(_TEXTS, (), "both for single models, MODEL=CONTEXT/OUTPUT")
    agent_key_file: str | None = AGENT(_KEY_FILE, None, "file with the key of the API, mode 0600")
    agent_key_variable: str | None = AGENT(
        _TEXT, None, "environment variable with the key of the API, in place of key-file"
    )
    agent_input_price: float | None = AGENT(
        _DOLLARS,
        None,
        "US dollars for a million tokens of input",
        "the published price of the model, if it is known",
    )
    agent_output_price: float | None = AGENT(
        _DOLLARS, None, "US dollars for a million tokens of output", "as for input-price"
    )
    agent_turn_seconds: float = AGENT(
        _SECONDS, 300.0, "seconds that one turn of the model may take, with repeated attempts"
    )
    agent_turns: int = AGENT(_number(1, 1_000), 50, "turns of the model in one run of an agent")
    agent_tokens: int = AGENT(
        _number(1_000, 1_000_000_000),
        2_000_000,
        "tokens in and out in one run of an agent, with those of the agents that it starts",
    )
    agent_seconds: float = AGENT(_SECONDS, 1_800.0, "seconds that one run of an agent may take")
    agent_cost: float | None = AGENT(
        _DOLLARS,
        None,
        "US dollars that one run of an agent may cost, with the agents that it starts",
        "no limit",
    )
    agent_running: int = AGENT(_number(1, 100), 8, "agents that run at the same time")
    policy: str | None = TOOLS(
        _FILE, None, "policy of another program: DeepAgents' AgentToolPolicy or Claude Code's settings.json"
    )
    tool_files: Texts = TOOLS(_FILES, (), "Python files with custom tools")
    tool_packages: Texts = TOOLS(_TEXTS, (), "installed packages to take tools from")
    containers: str = COMMANDS(
        _one_of(None, "off", "failover", "containerOnly"), "off", "whether commands run in containers"
    )
    """Where commands run: off is on this machine, and container_shell in containers; containerOnly leaves
    nothing but that; failover lets it run on this machine where no container can be started."""
    container_image: str = COMMANDS(
        _TEXT, "ghcr.io/astral-sh/uv:python3.13-alpine3.23", "image of the containers"
    )
    command_environment: Texts = COMMANDS(
        _TEXTS, (), "names or patterns (`CARGO_*`) of more environment variables that commands see"
    )
    command_processes: int = COMMANDS(_number(1, 100_000), 512, "processes of one command")
    command_memory: int = COMMANDS(
        _number(0, 2**24), 0, "MiB that one command may use", "0 = half of the machine's memory"
    )
    command_file_size: int = COMMANDS(_number(1, 2**24), 8 * 1024, "MiB of one file of a command")
    command_cpu_seconds: int = COMMANDS(
        _number(0, 10**7), 0, "seconds of processor time of one command", "0 = one hour per processor"
    )
    output_size: int = LIMITS(_number(1, 2**24), 1024, "MiB of all saved outputs together")
    output_hours: int = LIMITS(_number(1, 8760), 24, "hours that a saved output is kept")
    disk_reserve: int = LIMITS(
        _number(8, 2**24), 64, "MiB that saved outputs leave free on the disk of the state folder"
    )
    quarantine_size: int = LIMITS(
        _number(1, 2**24), 1024, "MiB in quarantine; a start deletes the oldest beyond that"
    )
    quarantine_days: int = LIMITS(_number(1, 3650), 30, "days in quarantine; a start deletes what is older")
    undo_size: int = LIMITS(_number(0, 2**24), 256, "MiB of replaced contents kept for undo; 0 keeps none")
    undo_days: int = LIMITS(
        _number(1, 3650),
        7,
        "days that replaced contents, git histories and unused caches are kept; a start deletes older ones",
    )
    history_size: int = LIMITS(
        _number(0, 2**24), 2048, "MiB of copied git histories of each user; 0 copies none"
    )
    cache_size: int = LIMITS(
        _number(0, 2**24), 4096, "MiB of package caches; a start deletes the longest unused beyond that"
    )
    max_body: int = TRANSPORT(_number(1024, 2**30), 4 * 1024 * 1024, "bytes of one HTTP request", "4 MiB")
    max_calls: int = LIMITS(_number(1, 10_000, "N"), 256, "requests in progress at once")
    max_calls_per_client: int = LIMITS(
        _number(1, 10_000, "N"), 128, "requests in progress of one client over HTTP"
    )
    calls_per_minute: int = LIMITS(
        _number(0, 1_000_000, "N"), 0, "calls of tools by one client in a minute", "0 = no limit"
    )
    max_sessions: int = LIMITS(_number(1, 10_000), 256, "HTTP sessions at the same time")
    deny: Texts = TOOLS(_RULES, (), "calls to reject")
    ask: Texts = TOOLS(_RULES, (), "calls that need the user's approval")
    allow: Texts = TOOLS(_RULES, (), "calls that need no approval")
    hooks: HookSettings = TOOLS(
        Option(lambda raw: HookSettings(tuple(map(_hook, raw if isinstance(raw, list) else [raw])))),
        HookSettings(),
        "commands that see calls before or after they run, each a table [[hooks]]",
        "none",
    )
    dry_run: bool = TOOLS(_SWITCH, False, "serve and call: decide on calls and record them, and run none")
    config: str | None = None
    """The config file that was read."""
    read_only_roots: Texts = ()
    """The roots, and folders in them, that were given a mode below the server's: absolute, links resolved."""
    agent_policy: str = ""
    """The `AgentToolPolicy` in `policy`, as JSON; empty for none."""


_DECLARED: Sequence[Option] = [
    replace(declared.metadata["option"], name=declared.name.replace("_", "-"))
    for declared in fields(Settings)
    if declared.metadata
]

OPTIONS = tuple(option for option in _DECLARED if not option.table)
"""Those at the top level of the config file."""

TABLES: Mapping[str, tuple[Option, ...]] = {
    table: tuple(option for option in _DECLARED if option.table == table) for table in ("rules", "agent")
}
"""Those in its tables."""

_PUBLIC = (
    *("transport", "toolsets", "tools", "exclude_tools", "sandbox", "network", "allow_domain", "git"),
    "writable_name",
    *(
        "allow_degraded",
        "allow_unconfined_server",
        "desktop_private",
        "structured",
        "raw_output",
        "audit_values",
    ),
    *("ask_seconds", "foreground_seconds", "web_robots", "web_searches", "web_search_seconds", "containers"),
    *(
        "command_processes",
        "command_memory",
        "command_file_size",
        "command_cpu_seconds",
        "output_size",
        "output_hours",
        "disk_reserve",
    ),
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
