"""The clients that `setup` knows: where each keeps its servers, and in which form. A new client is an entry.

What is said of a client is `verified` (measured with the client itself) or from its documentation or source.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from pydantic import JsonValue

from mcp_toolserver.command_line import PROGRAM
from mcp_toolserver.runtime.sandbox.protected.names import PROJECT_FILES

TOKEN = "TOOLSERVER_TOKEN"  # noqa: S105 – the name of a variable
"""The environment variable from which clients take the token of a server over HTTP."""

_STAY = "its terminal and edit tools stay active"
_SHELL, _ENV = f"Bearer ${{{TOKEN}}}", f"Bearer ${{env:{TOKEN}}}"

Scope = Literal["user", "project"]
Entry = dict[str, JsonValue]


def _local(**more: JsonValue) -> Callable[[Sequence[str], str], Entry]:
    """A command apart from its arguments; `more` comes after them, and a type before."""
    first: Entry = {"type": more.pop("type")} if "type" in more else {}
    return lambda command, _: {**first, "command": command[0], "args": list(command[1:]), **more}


_PLAIN = _local()


def _remote(authorization: str, key: str = "url", **first: JsonValue) -> Callable[[str], Entry]:
    """An address with the token, in the client's form."""
    return lambda url: {**first, key: url, "headers": {"Authorization": authorization}}


@dataclass(frozen=True, kw_only=True)
class Client:
    name: str
    title: str
    user: str
    """Its file for this user, in the format of its ending. `~` is the home folder, `{config}` the folder for
    configuration (`$XDG_CONFIG_HOME` or `~/.config`), `{application}` that of graphical programs on this
    platform."""
    macos: str | None = None
    """Its file on macOS, where that is another one than `user`."""
    project: str | None = None
    """Its file in a project, relative to the project's folder: from `PROJECT_FILES`, which protects it."""
    home: tuple[str, str] = ("", "")
    """A variable that moves its files, and the folder that it replaces in `user`."""
    path: tuple[str, ...] = ("mcpServers",)
    """Where the servers are in the file."""
    local: Callable[[Sequence[str], str], Entry] = _PLAIN
    """The command of a server, with the absolute path of its program, and the server's name → its entry."""
    remote: Callable[[str], Entry] | None = None
    """The address of a server over HTTP → its entry. None: setup does not configure one in this client."""
    root: str | None = None
    """What stands for the folder that is open in the client; None: there is nothing that does."""
    on_windows: bool = False
    """Whether setup can configure it on Windows, from WSL."""
    programs: tuple[str, ...] = ()
    """Its commands: the client is installed where one of them is."""
    known: Literal["verified", "its documentation", "its source"] = "its documentation"
    confine: tuple[tuple[tuple[str, ...], JsonValue], ...] = ()
    """The settings that turn its own tools off: places and values, or items to add to a list of texts."""
    confine_user: str = ""
    """The file of these settings, where that is another one than `user`."""
    confine_project: str | None = None
    """Their file in a project; None: there is none."""
    confine_flags: tuple[str, str] | None = None
    """A flag of the server and its value, for modes that write: without it, `confine` restricts them too."""
    keeps: str = _STAY
    """Its own tools that setup cannot turn off."""
    next: tuple[str, ...]
    """What the user does after setup."""
    notes: tuple[str, ...] = ()
    """What else is known of the client."""


URLS = ("url", "httpUrl", "serverUrl")
"""Where an entry for a server over HTTP has its address."""
OURS: frozenset[str] = frozenset(
    ("type", "command", "args", "cmd", "transport", *URLS, "headers", "bearer_token_env_var")
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


def wrapped_command(command: Sequence[str]) -> tuple[str, ...]:
    """The command that `command` confines with `wrap`; empty if it is another one."""
    for at, (program, action) in enumerate(pairwise(command)):
        is_program = program.rpartition("/")[2].replace("_", "-") == PROGRAM
        if is_program and action == "wrap" and "--" in command[at:]:
            return tuple(command[command.index("--", at) + 1 :])
    return ()


def with_command(entry: Entry, command: Sequence[str]) -> Entry:
    """The entry with another command, in the shape that it has."""
    key = "cmd" if "cmd" in entry else "command"
    if isinstance(entry.get(key), list):
        return {**entry, key: list(command), **({"args": []} if "args" in entry else {})}
    return {**entry, key: command[0], "args": list(command[1:])}


def is_ours(entry: Entry) -> bool:
    """Whether an entry of a client's file starts this server, or connects to it."""
    if wrapped_command(command_of(entry)):
        return False
    return TOKEN in str(entry) or "mcp-toolserver" in " ".join(command_of(entry)).replace("_", "-")


# --- the table -------------------------------------------------------------------------------------------

_OPEN_TRUSTED = (
    "Start {title} in a project and run /mcp. If the server is shown as disabled, trust the folder."
)


def _opencode(command: Sequence[str], _: str) -> Entry:
    return {"type": "local", "command": list(command), "enabled": True}


_ALL = (
    Client(
        name="claude-code", title="Claude Code", user="~/.claude.json", home=("CLAUDE_CONFIG_DIR", "~"),
        local=_local(type="stdio"), remote=_remote(_SHELL, type="http"), root=".", programs=("claude",),
        known="verified",
        confine=((("permissions", "deny"), [
            *("Bash", "Monitor", "PowerShell", "Edit", "Write", "NotebookEdit"),
            *("EnterWorktree", "ExitWorktree", "CronCreate"),
        ]),),
        confine_user="~/.claude/settings.json", confine_project=PROJECT_FILES["claude-code"][1],
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
        name="claude-desktop", title="Claude Desktop", user="{application}/Claude/claude_desktop_config.json",
        on_windows=True, known="its source",
        keeps="it has no tools of its own that change files or run commands",
        next=("Quit Claude Desktop and start it again; the tools are in the menu of the message field.",),
        notes=("Claude Desktop starts servers with a bare environment.",),
    ),
    *(
        Client(
            name=name, title=title, user=f"{{application}}/{folder}/User/mcp.json",
            project=PROJECT_FILES["vscode"][0], path=("servers",), root="${workspaceFolder}",
            local=_local(type="stdio"), remote=_remote(_ENV, type="http"), on_windows=True,
            programs=(program,),
            keeps=f"{_STAY}; deselect them in the tools picker of the chat",
            next=("Run the command MCP: List Servers in VS Code, start the server and trust it.",),
            notes=("The server starts when a folder is open, because it serves that folder.",),
        )
        for name, title, folder, program in (
            ("vscode", "VS Code", "Code", "code"),
            ("vscode-insiders", "VS Code Insiders", "Code - Insiders", "code-insiders"),
        )
    ),
    Client(
        name="cursor", title="Cursor", user="~/.cursor/mcp.json", on_windows=True, programs=("cursor",),
        remote=_remote(_ENV), keeps=f"{_STAY}; turn them off in a custom mode",
        next=("Restart Cursor and turn the server on in Settings → MCP.",),
    ),
    Client(
        name="windsurf", title="Windsurf", user="~/.codeium/windsurf/mcp_config.json", programs=("windsurf",),
        remote=_remote(_ENV, "serverUrl"),
        next=("Press refresh in Settings → Cascade → MCP servers.",),
    ),
    Client(
        name="zed", title="Zed", user="{config}/zed/settings.json", macos="~/.config/zed/settings.json",
        path=("context_servers",), local=_local(env={}), programs=("zed",),
        keeps=f"{_STAY}; turn them off in a profile of the agent panel",
        next=("Zed starts the server at once; the settings of the agent panel show a green dot.",),
    ),
    Client(
        name="codex", title="Codex CLI", user="~/.codex/config.toml", home=("CODEX_HOME", "~/.codex"),
        path=("mcp_servers",), local=_local(startup_timeout_sec=30, required=True),
        remote=lambda url: {"url": url, "bearer_token_env_var": TOKEN, "required": True},
        root=".", programs=("codex",), known="verified",
        confine=((("sandbox_mode",), "read-only"), (("features", "shell_tool"), False)),
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
        name="gemini", title="Gemini CLI", user="~/.gemini/settings.json", root=".", programs=("gemini",),
        remote=_remote(_SHELL, "httpUrl"), known="verified",
        confine=((("rule",), [
            {"toolName": ["run_shell_command", "replace"], "decision": "deny", "priority": 999},
            # Without a pattern, Gemini CLI hides every tool of this name, this server's too.
            {"toolName": "write_file", "argsPattern": ".*", "decision": "deny", "priority": 999},
        ]),),
        confine_user="~/.gemini/policies/mcp-toolserver.toml",
        keeps="write_file stays listed but is refused; reading, searching and fetching stay active",
        next=(_OPEN_TRUSTED.format(title="Gemini CLI"),),
        notes=("In a folder that is not trusted, Gemini CLI shows the server as disabled.",),
    ),
    Client(
        name="qwen", title="Qwen Code", user="~/.qwen/settings.json", root=".", programs=("qwen",),
        remote=_remote(_SHELL, "httpUrl"), known="verified",
        confine=((("tools", "exclude"), ["run_shell_command", "monitor", "write_file", "edit"]),),
        confine_project=PROJECT_FILES["qwen"][0],
        keeps="reading, searching, fetching and saving memories stay active",
        next=(_OPEN_TRUSTED.format(title="Qwen Code"),),
        notes=("In a folder that is not trusted, Qwen Code shows the server as disabled.",),
    ),
    Client(
        name="opencode", title="opencode", user="{config}/opencode/opencode.json", path=("mcp",), root=".",
        local=_opencode, remote=_remote(f"Bearer {{env:{TOKEN}}}", type="remote"), programs=("opencode",),
        known="verified",
        confine=((("permission", "bash"), "deny"), (("permission", "edit"), "deny")),
        confine_project=PROJECT_FILES["opencode"][0],
        keeps="reading, searching and fetching stay active",
        next=("Start opencode in a project. `opencode mcp list` shows the server as connected.",),
    ),
    Client(
        name="cline", title="Cline CLI", user="~/.cline/data/settings/cline_mcp_settings.json",
        local=_local(timeout=60), programs=("cline",), known="verified",
        next=("Restart the Cline daemon.",),
        notes=(
            "Its daemon stays in the first folder it was started in, so the root is a fixed folder.",
            "Without `timeout`, it waits 3 s for the start of a server.",
        ),
    ),
    Client(
        name="cline-vscode", title="Cline in VS Code",
        user="{application}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        next=("Open MCP Servers in Cline; the server is in the list of installed ones.",),
    ),
    Client(
        name="jetbrains", title="JetBrains (Junie)", user="~/.junie/mcp/mcp.json",
        next=(
            "Open Settings → Tools → Junie → MCP Settings; the server is in the list.",
            "AI Assistant has its own list: paste the entry in Settings → Tools → AI Assistant → MCP.",
        ),
    ),
    Client(
        name="goose", title="goose", user="{config}/goose/config.yaml", path=("extensions",),
        local=lambda command, name: {
            "name": name, "type": "stdio", "cmd": command[0], "args": list(command[1:]), "enabled": True,
            "timeout": 300,
        },
        programs=("goose",),
        keeps="the developer extension stays active; turn it off with `goose configure`",
        next=("Start a new goose session.",),
    ),
    Client(
        name="copilot", title="GitHub Copilot CLI", user="~/.copilot/mcp-config.json", programs=("copilot",),
        local=_local(type="local", tools=["*"]),
        next=("Restart GitHub Copilot CLI; /mcp show lists the server.",),
    ),
    Client(
        name="droid", title="Factory Droid", user="~/.factory/mcp.json", programs=("droid",),
        local=_local(type="stdio", disabled=False),
        next=("Start droid; /mcp shows the server.",),
    ),
    Client(
        name="kiro", title="Kiro (formerly Amazon Q)", user="~/.kiro/settings/mcp.json",
        remote=_remote(_SHELL), programs=("kiro", "kiro-cli"),
        next=("Open the MCP servers of Kiro; /mcp in its CLI.",),
    ),
    Client(
        name="crush", title="Crush", user="{config}/crush/crush.json", path=("mcp",), programs=("crush",),
        local=_local(type="stdio"), remote=_remote(f"$(echo Bearer ${TOKEN})", type="http"),
        next=("Start Crush; its sidebar lists the server.",),
    ),
    Client(
        name="amp", title="Amp", user="~/.config/amp/settings.json", path=("amp.mcpServers",),
        programs=("amp",), next=("Start Amp; it asks once to approve a server of the project scope.",),
    ),
    Client(
        name="kilo", title="Kilo Code", user="{config}/kilo/kilo.jsonc", path=("mcp",), programs=("kilo",),
        local=_opencode,
        next=("Open Settings → Agent Behaviour → MCP Servers; the server is in the list.",),
    ),
    Client(
        name="roo", title="Roo Code", next=("Open the MCP settings of Roo Code.",),
        user="{application}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
    ),
)  # fmt: skip

ANY = Client(
    name="", title="A client", user="~/mcp.json", next=(), remote=_remote(_SHELL, type="http"),
)  # fmt: skip
"""Stands for a client that is not in the table: `setup --print-entry` prints what most take."""

CLIENTS: Mapping[str, Client] = {
    client.name: replace(client, project=client.project or PROJECT_FILES.get(client.name, (None,))[0])
    for client in _ALL
}
