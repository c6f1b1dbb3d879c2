"""The MCP clients that the tests run: how each is pointed at the scripted model, and how it is asked."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.client_programs.scripted_model import MODEL, Call


@dataclass(frozen=True, kw_only=True)
class Program:
    """A client. Its functions take the address of the model."""

    client: str
    """Its name in `setup`."""
    package: str
    """In `package.json`."""
    command: str
    environment: Callable[[str], Mapping[str, str]] = lambda url: {}
    file: str | None = None
    """A file in the home folder that the user has before setup."""
    content: Callable[[str], str] = lambda url: ""
    listing: tuple[str, ...] = ("mcp", "list")
    """Arguments with which it lists its servers; empty if it has no such command."""
    connected: str = "Connected"
    """What it prints for a server that it is connected to."""
    turn: tuple[str, ...]
    """Arguments with which it runs one turn without a terminal."""
    end: tuple[str, ...] = ()
    """Arguments with which it stops what it leaves running."""
    prefix: str
    """What it puts before the names of the server's tools."""
    before: tuple[Call, ...] = ()
    """Calls that its model makes before those of the server's tools."""
    own: tuple[Call, ...] = ()
    """Calls of its own tools that would write the files `own-1` and `own-2` in the project."""
    hidden: frozenset[str] = frozenset()
    """Its own tools that `--confine` removes from what the model sees."""


TOOLS = (
    *("ls", "read_file", "edit_file", "write_file", "bash", "view_image"),
    *("grep_search", "glob_search", "TodoWrite"),
)
"""The server's tools that the turn calls."""

_PATCH = "*** Begin Patch\n*** Add File: own-2\n+x\n*** End Patch\n"
_LOOPBACK = "Loopback"


def _json(content: object) -> str:
    return json.dumps(content, indent=2) + "\n"


def _codex(url: str) -> str:
    return f"""\
model = "gpt-5.5"
model_provider = "loopback"
check_for_update_on_startup = false
analytics.enabled = false

[model_providers.loopback]
name = "{_LOOPBACK}"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""


def _opencode(url: str) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": _LOOPBACK,
        "options": {"baseURL": f"{url}/v1", "apiKey": "x"},
        "models": {
            MODEL: {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
        },
    }
    model = f"loopback/{MODEL}"
    return _json(
        {"autoupdate": False, "model": model, "small_model": model, "provider": {"loopback": provider}}
    )


def _cline(url: str) -> str:
    name = "openai-compatible"
    settings = {"provider": name, "apiKey": "x", "model": MODEL, "baseUrl": f"{url}/v1"}
    entry = {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    return _json({"version": 1, "lastUsedProvider": name, "modes": {}, "providers": {name: entry}})


def _shell(tool: str, argument: str = "command", **more: object) -> Call:
    return Call(tool=tool, arguments={argument: "echo x > own-1", **more})


PROGRAMS: Sequence[Program] = (
    Program(
        client="claude-code",
        package="@anthropic-ai/claude-code",
        command="claude",
        environment=lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "x",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # Otherwise a turn without a terminal does not wait for servers.
            "MCP_CONNECTION_NONBLOCKING": "0",
        },
        turn=("-p", "go", "--allowedTools", "mcp__toolserver"),
        prefix="mcp__toolserver__",
        before=(
            Call(
                tool="ToolSearch",
                arguments={
                    # Those of its own that wait for a search, too: they come only if they are active.
                    "query": "select:EnterWorktree,CronCreate,"
                    + ",".join(f"mcp__toolserver__{tool}" for tool in TOOLS),
                    "max_results": len(TOOLS) + 2,
                },
            ),
        ),
        own=(
            _shell("Bash", description="x"),
            Call(tool="Write", arguments={"file_path": "own-2", "content": "x"}),
            Call(tool="EnterWorktree", arguments={"name": "own-2"}),
        ),
        hidden=frozenset({"Bash", "Monitor", "Edit", "Write", "NotebookEdit", "EnterWorktree", "CronCreate"}),
    ),
    Program(
        client="codex",
        package="@openai/codex",
        command="codex",
        environment=lambda url: {"OPENAI_API_KEY": "x"},
        file=".codex/config.toml",
        content=_codex,
        connected="enabled",
        turn=(
            *("-c", 'mcp_servers.toolserver.default_tools_approval_mode="approve"'),
            *("exec", "--skip-git-repo-check", "go"),
        ),
        prefix="mcp__toolserver/",
        own=(
            _shell("exec_command", "cmd"),
            Call(tool="apply_patch", arguments={"input": _PATCH}),
        ),
        hidden=frozenset({"shell", "shell_command", "exec_command", "write_stdin"}),
    ),
    Program(
        client="gemini",
        package="@google/gemini-cli",
        command="gemini",
        environment=lambda url: {
            "GEMINI_API_KEY": "x",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_TELEMETRY_ENABLED": "false",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        file=".gemini/settings.json",
        content=lambda url: _json(
            {
                "security": {"auth": {"selectedType": "gemini-api-key"}},
                "general": {"enableAutoUpdate": False},
                "privacy": {"usageStatisticsEnabled": False},
            }
        ),
        turn=("--yolo", "-m", "gemini-2.5-flash", "-p", "go"),
        prefix="mcp_toolserver_",
        own=(
            _shell("run_shell_command"),
            Call(tool="write_file", arguments={"file_path": "own-2", "content": "x"}),
        ),
        hidden=frozenset({"run_shell_command", "replace"}),
    ),
    Program(
        client="qwen",
        package="@qwen-code/qwen-code",
        command="qwen",
        environment=lambda url: {
            "OPENAI_API_KEY": "x",
            "OPENAI_BASE_URL": f"{url}/v1",
            # One that Qwen Code knows to see images.
            "OPENAI_MODEL": "qwen3-vl-plus",
            "QWEN_TELEMETRY_ENABLED": "false",
        },
        file=".qwen/settings.json",
        content=lambda url: _json(
            {"general": {"enableAutoUpdate": False}, "privacy": {"usageStatisticsEnabled": False}}
        ),
        turn=("--yolo", "--auth-type", "openai", "-p", "go"),
        prefix="mcp__toolserver__",
        own=(
            _shell("run_shell_command", is_background=False),
            Call(tool="write_file", arguments={"file_path": "own-2", "content": "x"}),
        ),
        hidden=frozenset({"run_shell_command", "monitor", "write_file", "edit"}),
    ),
    Program(
        client="opencode",
        package="opencode-ai",
        command="opencode",
        environment=lambda url: {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        },
        file=".config/opencode/opencode.json",
        content=_opencode,
        connected="connected",
        turn=("run", "go"),
        prefix="toolserver_",
        own=(
            _shell("bash", description="x"),
            Call(tool="write", arguments={"filePath": "own-2", "content": "x"}),
        ),
        hidden=frozenset({"bash", "edit", "write", "patch", "apply_patch"}),
    ),
    Program(
        client="cline",
        package="cline",
        command="cline",
        environment=lambda url: {"CLINE_TELEMETRY_DISABLED": "1", "CLINE_NO_AUTO_UPDATE": "1"},
        file=".cline/data/settings/providers.json",
        content=_cline,
        listing=(),
        turn=("-t", "60", "play the script"),
        end=("hub", "stop"),
        prefix="toolserver__",
    ),
)
