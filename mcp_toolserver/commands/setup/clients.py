"""The clients that `setup` knows: where each keeps its servers, and in which form. A new client is an entry.

What is said of a client is `verified` (measured with the client itself) or from its documentation or source.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from mcp_toolserver.runtime.sandbox.protected.names import PROJECT_FILES

TOKEN = "TOOLSERVER_TOKEN"  # noqa: S105 – the name of a variable
"""The environment variable from which clients take the token of a server over HTTP."""

Scope = Literal["user", "project"]
Format = Literal["json", "toml", "yaml"]
Known = Literal["verified", "its documentation", "its source"]


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A server over HTTP."""

    url: str


@dataclass(frozen=True, kw_only=True)
class Local:
    """A server that the client starts."""

    command: tuple[str, ...]
    """The program by its absolute path, and its arguments."""


Entry = dict[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a client writes one server."""

    local: Callable[[Local, str], Entry]
    """A server and its name → its entry."""
    remote: Callable[[Remote, str], Entry] | None = None
    """None: setup does not configure a server over HTTP in this client."""


@dataclass(frozen=True, kw_only=True)
class Confine:
    """The setting with which a client turns its own tools off, in the scopes in which it has one."""

    user: str
    """The file, as `Client.user`."""
    project: str | None
    """None: there is no such setting for a project."""
    format: Format = "json"
    path: tuple[str, ...]
    value: JsonValue
    """The value at `path`; items to add to a list there if it is a list of texts."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """An MCP client."""

    name: str
    title: str
    user: str
    """Its file for this user. `~` is the home folder, `{config}` the folder for configuration
    (`$XDG_CONFIG_HOME` or `~/.config`), `{application}` that of graphical programs on this platform."""
    macos: str | None = None
    """Its file on macOS, where that is another one than `user`."""
    project: str | None = None
    """Its file in a project, relative to the project's folder: from `PROJECT_FILES`, which protects it."""
    home: tuple[str, str] | None = None
    """A variable that moves its files, and the folder that it replaces in `user`."""
    format: Format = "json"
    path: tuple[str, ...]
    """Where the servers are in the file."""
    shape: Shape
    root: str | None = None
    """What stands for the folder that is open in the client; None: there is nothing that does."""
    on_windows: bool = False
    """Whether setup can configure it on Windows, from WSL."""
    programs: tuple[str, ...] = ()
    """Its commands: the client is installed where one of them is."""
    known: Known
    confine: tuple[Confine, ...] = ()
    confine_known: Known | None = None
    confine_flags: tuple[str, str] | None = None
    """A flag of the server and its value, for modes that write: without it, `confine` restricts them too."""
    keeps: str
    """Its own tools that setup cannot turn off."""
    next: tuple[str, ...]
    """What the user does after setup."""
    notes: tuple[str, ...] = ()
    """What else is known of the client."""


# --- shapes ----------------------------------------------------------------------------------------------


def _split(server: Local) -> Entry:
    return {"command": server.command[0], "args": list(server.command[1:])}


def _headers(reference: str) -> Entry:
    return {"Authorization": f"Bearer {reference}"}


def _with_url(key: str, reference: str, **first: JsonValue) -> Callable[[Remote, str], Entry]:
    return lambda server, _: {**first, key: server.url, "headers": _headers(reference)}


_PLAIN = Shape(local=lambda server, _: _split(server))
_CLAUDE_CODE = Shape(
    local=lambda server, _: {"type": "stdio", **_split(server)},
    remote=_with_url("url", f"${{{TOKEN}}}", type="http"),
)
_VSCODE = Shape(
    local=lambda server, _: {"type": "stdio", **_split(server)},
    remote=_with_url("url", f"${{env:{TOKEN}}}", type="http"),
)
_CURSOR = Shape(local=_PLAIN.local, remote=_with_url("url", f"${{env:{TOKEN}}}"))
_WINDSURF = Shape(local=_PLAIN.local, remote=_with_url("serverUrl", f"${{env:{TOKEN}}}"))
_GEMINI = Shape(local=_PLAIN.local, remote=_with_url("httpUrl", f"${{{TOKEN}}}"))
# Without a timeout, Cline waits 3 s for the start of a server.
_CLINE = Shape(local=lambda server, _: {**_split(server), "timeout": 60})
_ZED = Shape(local=lambda server, _: {**_split(server), "env": {}})
_CODEX = Shape(
    local=lambda server, _: {**_split(server), "startup_timeout_sec": 30, "required": True},
    remote=lambda server, _: {"url": server.url, "bearer_token_env_var": TOKEN, "required": True},
)
_OPENCODE = Shape(
    local=lambda server, _: {"type": "local", "command": list(server.command), "enabled": True},
    remote=_with_url("url", f"{{env:{TOKEN}}}", type="remote"),
)
_KIRO = Shape(local=_PLAIN.local, remote=_with_url("url", f"${{{TOKEN}}}"))
_CRUSH = Shape(
    local=_CLAUDE_CODE.local,
    remote=lambda server, _: {
        "type": "http",
        "url": server.url,
        "headers": {"Authorization": f"$(echo Bearer ${TOKEN})"},
    },
)
_DROID = Shape(local=lambda server, _: {"type": "stdio", **_split(server), "disabled": False})
_COPILOT = Shape(local=lambda server, _: {"type": "local", **_split(server), "tools": ["*"]})
_GOOSE = Shape(
    local=lambda server, name: {
        "name": name,
        "type": "stdio",
        "cmd": server.command[0],
        "args": list(server.command[1:]),
        "enabled": True,
        "timeout": 300,
    }
)

OURS: frozenset[str] = frozenset(
    {
        *("type", "command", "args", "cmd", "transport"),
        *("url", "httpUrl", "serverUrl", "headers", "bearer_token_env_var"),
    }
)
"""The keys of an entry that say which server it is; the others may be the user's."""


def command_of(entry: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """The command of an entry in any of the shapes; empty for another kind of entry."""
    nested = entry.get("transport")
    if isinstance(nested, dict):
        return command_of(nested)
    program = entry.get("command", entry.get("cmd"))
    arguments = entry.get("args", [])
    words = program if isinstance(program, list) else [program]
    if isinstance(arguments, list):
        words = [*words, *arguments]
    return tuple(word for word in words if isinstance(word, str))


def url_of(entry: Mapping[str, JsonValue]) -> str | None:
    """The address in an entry for a server over HTTP."""
    found = (entry.get(key) for key in ("url", "httpUrl", "serverUrl"))
    return next((url for url in found if isinstance(url, str)), None)


# --- the table -------------------------------------------------------------------------------------------

_NONE = "it has no tools of its own that change files or run commands"
_OPEN_TRUSTED = (
    "Start {title} in a project and run /mcp. If the server is shown as disabled, trust the folder."
)

_ALIKE = (
    ("copilot", "GitHub Copilot CLI", "~/.copilot/mcp-config.json", "mcpServers", _COPILOT,
     ("copilot",), "Restart GitHub Copilot CLI; /mcp show lists the server."),
    ("droid", "Factory Droid", "~/.factory/mcp.json", "mcpServers", _DROID,
     ("droid",), "Start droid; /mcp shows the server."),
    ("kiro", "Kiro (formerly Amazon Q)", "~/.kiro/settings/mcp.json",
     "mcpServers", _KIRO, ("kiro", "kiro-cli"), "Open the MCP servers of Kiro; /mcp in its CLI."),
    ("crush", "Crush", "{config}/crush/crush.json", "mcp", _CRUSH,
     ("crush",), "Start Crush; its sidebar lists the server."),
    ("amp", "Amp", "~/.config/amp/settings.json", "amp.mcpServers", _PLAIN,
     ("amp",), "Start Amp; it asks once to approve a server of the project scope."),
    ("kilo", "Kilo Code", "{config}/kilo/kilo.jsonc", "mcp", Shape(local=_OPENCODE.local),
     ("kilo",), "Open Settings → Agent Behaviour → MCP Servers; the server is in the list."),
    ("roo", "Roo Code",
     "{application}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
     "mcpServers", _PLAIN, (), "Open the MCP settings of Roo Code."),
)  # fmt: skip
"""Name, title, file for the user, key of the servers, shape, commands and next step."""

_ALL = (
    Client(
        name="claude-code",
        title="Claude Code",
        user="~/.claude.json",
        project=PROJECT_FILES["claude-code"][0],
        home=("CLAUDE_CONFIG_DIR", "~"),
        path=("mcpServers",),
        shape=_CLAUDE_CODE,
        root=".",
        programs=("claude",),
        known="verified",
        confine=(
            Confine(
                user="~/.claude/settings.json",
                project=PROJECT_FILES["claude-code"][1],
                path=("permissions", "deny"),
                value=[
                    *("Bash", "Monitor", "PowerShell", "Edit", "Write", "NotebookEdit"),
                    *("EnterWorktree", "ExitWorktree", "CronCreate"),
                ],
            ),
        ),
        confine_known="verified",
        keeps="reading, searching and fetching (Read, Grep, Glob, WebFetch) stay active",
        next=(
            "Restart Claude Code. `claude mcp list` shows the server as connected, /mcp lists its tools.",
            "In the project scope Claude Code asks once for approval.",
        ),
        notes=(
            "`claude -p` does not wait for a server, unless `MCP_CONNECTION_NONBLOCKING=0` is set.",
            "With `--confine`, agents with `isolation: worktree` can still make a git worktree.",
        ),
    ),
    Client(
        name="claude-desktop",
        title="Claude Desktop",
        user="{application}/Claude/claude_desktop_config.json",
        on_windows=True,
        path=("mcpServers",),
        shape=_PLAIN,
        known="its source",
        keeps=_NONE,
        next=("Quit Claude Desktop and start it again; the tools are in the menu of the message field.",),
        notes=("Claude Desktop starts servers with a bare environment.",),
    ),
    *(
        Client(
            name=name,
            title=title,
            user=f"{{application}}/{folder}/User/mcp.json",
            project=PROJECT_FILES["vscode"][0],
            path=("servers",),
            shape=_VSCODE,
            root="${workspaceFolder}",
            on_windows=True,
            programs=(program,),
            known="its documentation",
            keeps="its terminal and edit tools stay active; deselect them in the tools picker of the chat",
            next=("Run the command MCP: List Servers in VS Code, start the server and trust it.",),
            notes=("The server starts when a folder is open, because it serves that folder.",),
        )
        for name, title, folder, program in (
            ("vscode", "VS Code", "Code", "code"),
            ("vscode-insiders", "VS Code Insiders", "Code - Insiders", "code-insiders"),
        )
    ),
    Client(
        name="cursor",
        title="Cursor",
        user="~/.cursor/mcp.json",
        project=PROJECT_FILES["cursor"][0],
        path=("mcpServers",),
        shape=_CURSOR,
        on_windows=True,
        programs=("cursor",),
        known="its documentation",
        keeps="its terminal and edit tools stay active; turn them off in a custom mode",
        next=("Restart Cursor and turn the server on in Settings → MCP.",),
    ),
    Client(
        name="windsurf",
        title="Windsurf",
        user="~/.codeium/windsurf/mcp_config.json",
        path=("mcpServers",),
        shape=_WINDSURF,
        programs=("windsurf",),
        known="its documentation",
        keeps="its terminal and edit tools stay active",
        next=("Press refresh in Settings → Cascade → MCP servers.",),
    ),
    Client(
        name="zed",
        title="Zed",
        user="{config}/zed/settings.json",
        macos="~/.config/zed/settings.json",
        project=PROJECT_FILES["zed"][0],
        path=("context_servers",),
        shape=_ZED,
        programs=("zed",),
        known="its documentation",
        keeps="its terminal and edit tools stay active; turn them off in a profile of the agent panel",
        next=("Zed starts the server at once; the settings of the agent panel show a green dot.",),
    ),
    Client(
        name="codex",
        title="Codex CLI",
        user="~/.codex/config.toml",
        home=("CODEX_HOME", "~/.codex"),
        format="toml",
        path=("mcp_servers",),
        shape=_CODEX,
        root=".",
        programs=("codex",),
        known="verified",
        confine=(
            Confine(
                user="~/.codex/config.toml",
                project=None,
                format="toml",
                path=("sandbox_mode",),
                value="read-only",
            ),
            Confine(
                user="~/.codex/config.toml",
                project=None,
                format="toml",
                path=("features", "shell_tool"),
                value=False,
            ),
        ),
        confine_known="verified",
        confine_flags=("client-sandbox", "ignore"),
        keeps="apply_patch stays listed; the read-only sandbox refuses its writes unless you approve",
        next=("Start Codex in a project; /mcp lists the tools.",),
        notes=(
            "`required = true` makes Codex wait for the server, and not start without it.",
            "Without `--confine`, Codex in a folder that it does not trust makes this server read-only.",
            "`codex exec` asks nobody, so it refuses tools that write.",
            'To allow them there, add `default_tools_approval_mode = "approve"` to the entry.',
        ),
    ),
    Client(
        name="gemini",
        title="Gemini CLI",
        user="~/.gemini/settings.json",
        project=PROJECT_FILES["gemini"][0],
        path=("mcpServers",),
        shape=_GEMINI,
        root=".",
        programs=("gemini",),
        known="verified",
        confine=(
            Confine(
                user="~/.gemini/policies/mcp-toolserver.toml",
                project=None,
                format="toml",
                path=("rule",),
                value=[
                    {"toolName": ["run_shell_command", "replace"], "decision": "deny", "priority": 999},
                    # Without a pattern, Gemini CLI hides every tool of this name, this server's too.
                    {
                        "toolName": "write_file",
                        "argsPattern": ".*",
                        "decision": "deny",
                        "priority": 999,
                    },
                ],
            ),
        ),
        confine_known="verified",
        keeps="write_file stays listed but is refused; reading, searching and fetching stay active",
        next=(_OPEN_TRUSTED.format(title="Gemini CLI"),),
        notes=("In a folder that is not trusted, Gemini CLI shows the server as disabled.",),
    ),
    Client(
        name="qwen",
        title="Qwen Code",
        user="~/.qwen/settings.json",
        project=PROJECT_FILES["qwen"][0],
        path=("mcpServers",),
        shape=_GEMINI,
        root=".",
        programs=("qwen",),
        known="verified",
        confine=(
            Confine(
                user="~/.qwen/settings.json",
                project=PROJECT_FILES["qwen"][0],
                path=("tools", "exclude"),
                value=["run_shell_command", "monitor", "write_file", "edit"],
            ),
        ),
        confine_known="verified",
        keeps="reading, searching, fetching and saving memories stay active",
        next=(_OPEN_TRUSTED.format(title="Qwen Code"),),
        notes=("In a folder that is not trusted, Qwen Code shows the server as disabled.",),
    ),
    Client(
        name="opencode",
        title="opencode",
        user="{config}/opencode/opencode.json",
        project=PROJECT_FILES["opencode"][0],
        path=("mcp",),
        shape=_OPENCODE,
        root=".",
        programs=("opencode",),
        known="verified",
        confine=tuple(
            Confine(
                user="{config}/opencode/opencode.json",
                project=PROJECT_FILES["opencode"][0],
                path=("permission", tool),
                value="deny",
            )
            for tool in ("bash", "edit")
        ),
        confine_known="verified",
        keeps="reading, searching and fetching stay active",
        next=("Start opencode in a project. `opencode mcp list` shows the server as connected.",),
    ),
    Client(
        name="cline",
        title="Cline CLI",
        user="~/.cline/data/settings/cline_mcp_settings.json",
        path=("mcpServers",),
        shape=_CLINE,
        programs=("cline",),
        known="verified",
        keeps="its terminal and edit tools stay active",
        next=("Restart the Cline daemon.",),
        notes=(
            "Its daemon stays in the first folder it was started in, so the root is a fixed folder.",
            "Without `timeout`, it waits 3 s for the start of a server.",
        ),
    ),
    Client(
        name="cline-vscode",
        title="Cline in VS Code",
        user="{application}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        path=("mcpServers",),
        shape=_PLAIN,
        known="its documentation",
        keeps="its terminal and edit tools stay active",
        next=("Open MCP Servers in Cline; the server is in the list of installed ones.",),
    ),
    Client(
        name="jetbrains",
        title="JetBrains (Junie)",
        user="~/.junie/mcp/mcp.json",
        project=PROJECT_FILES["jetbrains"][0],
        path=("mcpServers",),
        shape=_PLAIN,
        known="its documentation",
        keeps="its terminal and edit tools stay active",
        next=(
            "Open Settings → Tools → Junie → MCP Settings; the server is in the list.",
            "AI Assistant has its own list: paste the entry in Settings → Tools → AI Assistant → MCP.",
        ),
    ),
    Client(
        name="goose",
        title="goose",
        user="{config}/goose/config.yaml",
        format="yaml",
        path=("extensions",),
        shape=_GOOSE,
        programs=("goose",),
        known="its documentation",
        keeps="the developer extension stays active; turn it off with `goose configure`",
        next=("Start a new goose session.",),
    ),
    *(
        Client(
            name=name,
            title=title,
            user=user,
            project=PROJECT_FILES.get(name, (None,))[0],
            path=(key,),
            shape=shape,
            programs=programs,
            known="its documentation",
            keeps="its terminal and edit tools stay active",
            next=(step,),
        )
        for name, title, user, key, shape, programs, step in _ALIKE
    ),
)

ANY = Client(
    name="",
    title="A client",
    user="~/mcp.json",
    path=("mcpServers",),
    shape=Shape(local=_PLAIN.local, remote=_CLAUDE_CODE.remote),
    known="its documentation",
    keeps="",
    next=(),
)
"""Stands for a client that is not in the table: `setup --print-entry` prints what most take."""

CLIENTS: Mapping[str, Client] = {client.name: client for client in _ALL}


def quoted(command: Sequence[str]) -> str:
    """A command as a shell takes it."""
    return shlex.join(command)
