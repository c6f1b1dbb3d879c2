"""The whole server as clients meet it: every transport, both eras, every mode."""

import shutil
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from mcp_toolserver.pipeline.registry import discover
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer
from tests.agents.test_run_task_packet import PACKET
from tests.notebook.notebooks import PIXEL
from tests.support.confinement import git
from tests.support.live import MODES, Setup, SharedServers, connected_to, text
from tests.support.snapshot import differences, snapshot
from tests.support.workbench import dispatcher, machine

NOTEBOOK = (
    '{"cells": [{"cell_type": "code", "execution_count": null, "id": "a", "metadata": {}, "outputs": [],'
    ' "source": ["1"]}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
)

CALLS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "src/a.py"},
    "glob_search": {"pattern": "**/*.py"},
    "grep_search": {"pattern": "hello"},
    "ls": {},
    "tree": {},
    "head": {"path": "src/a.py"},
    "tail": {"path": "src/a.py"},
    "diff": {"path": "src/a.py", "other_path": "src/n.ipynb"},
    "view_image": {"path": "src/pixel.png"},
    "git_status": {},
    "git_diff": {},
    "git_log": {},
    "git_show": {},
    "git_blame": {"path": "src/a.py"},
    "repo_overview": {},
    "repo_clone": {"source": ".", "path": "cloned"},
    "open": {"target": "src/a.py"},
    "write_file": {"path": "new/b.txt", "content": "b"},
    "edit_file": {"path": "src/a.py", "old_string": "hello", "new_string": "goodbye"},
    "NotebookEdit": {"notebook_path": "src/n.ipynb", "cell_id": "a", "new_source": "2"},
    "mkdir": {"path": "made"},
    "apply_patch": {"patch": "*** Begin Patch\n*** Add File: patched.txt\n+x\n*** End Patch\n"},
    "bash": {"command": "echo shell > made-by-shell; cat made-by-shell"},
    "TaskOutput": {"task_id": "bg_none"},
    "TaskStop": {"task_id": "bg_none"},
    "SendMessage": {"to": "bg_none", "message": "x"},
    "TaskCreate": {"command": "true"},
    "TaskGet": {"task_id": "task_none"},
    "TaskList": {},
    "TaskUpdate": {"task_id": "task_none", "message": "x"},
    "RunTaskPacket": PACKET,
    "TodoWrite": {"todos": [{"content": "look", "activeForm": "looking", "status": "in_progress"}]},
    "StructuredOutput": {"anything": ["at", "all"]},
    "Config": {"setting": "language", "value": "German"},
    "SendUserMessage": {"message": "hello", "attachments": ["src/a.py"]},
    "AskUserQuestion": {"questions": [{"question": "why?"}]},
    "pause_for_human": {"reason": "look at it"},
    "current_datetime": {},
    "calculator": {"expression": "6 * 7"},
    "Sleep": {"duration_ms": 1},
    "WebFetch": {"url": "http://127.0.0.1:1/"},
    "WebSearch": {"query": "x", "allowed_domains": ["a.example"], "blocked_domains": ["b.example"]},
    "download": {"url": "http://127.0.0.1:1/", "path": "fetched"},
    "curl": {"url": "http://127.0.0.1:1/"},
    "RemoteTrigger": {"url": "http://127.0.0.1:1/"},
    "ToolSearch": {"query": "git"},
    "CallTool": {"name": "read_file", "arguments": {"path": "src/a.py"}},
    "LSP": {"operation": "documentSymbol", "path": "src/n.ipynb"},
    "lsp_edit": {"operation": "rename", "path": "src/n.ipynb", "query": "x", "new_name": "y"},
    "REPL": {"language": "shell", "code": "echo 1"},
    "PowerShell": {"command": "echo 1"},
    "container_shell": {"command": "echo 1"},
    "CronCreate": {"schedule": "@yearly", "command": "true", "time_zone": "UTC"},
    "CronList": {},
    "CronDelete": {"cron_id": "cron_none"},
}
ASKS = {"AskUserQuestion", "pause_for_human"}
WEB = {"WebFetch", "WebSearch", "download", "curl", "RemoteTrigger"}
UNKNOWN_TASK = {"TaskGet", "TaskUpdate", "TaskOutput", "TaskStop", "SendMessage"}
MODEL = {entry.spec.name for entry in discover() if any(need.value.needs_model for need in entry.spec.needs)}
"""What needs a model, which is not configured."""
PROGRAMS = {"PowerShell": ("pwsh", "powershell"), "container_shell": ("docker", "podman", "container")}
ELSEWHERE = {name for name, programs in PROGRAMS.items() if not any(map(shutil.which, programs))}
"""What needs a program that this machine does not have."""
DESKTOP = {entry.spec.name for entry in discover() if entry.toolset == "desktop"}
"""Switched off: whoever runs the tests may have one."""
GATEWAY = {entry.spec.name for entry in discover() if entry.toolset == "gateway"}
"""What needs upstream servers, which are not configured."""
MISSING = ELSEWHERE | DESKTOP | MODEL
IN_FULL_MODE = {"RemoteTrigger", "container_shell", "curl"}
WRITES = {
    *("Config", "NotebookEdit", "PowerShell", "TodoWrite", "apply_patch", "download"),
    *("edit_file", "lsp_edit", "mkdir", "repo_clone", "write_file"),
}
LISTED = {
    "read-only": set(CALLS) - MISSING - IN_FULL_MODE - WRITES,
    "workspace-write": set(CALLS) - MISSING - IN_FULL_MODE,
    "danger-full-access": set(CALLS) - MISSING,
}

for _entry in discover():
    # A tool that the table of calls does not mention is offered as it declares.
    if _entry.spec.name not in CALLS.keys() | MODEL | DESKTOP | GATEWAY:
        for _mode in MODES[_entry.spec.own_permission :]:
            LISTED[_mode].add(_entry.spec.name)

WITHOUT_DESKTOP = ("--exclude-tools", ",".join(sorted(DESKTOP)))

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # Every server here is started once, if one process of the test runner has all these tests.
    pytest.mark.xdist_group("test_server"),
]


def fill(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    (root / "src").mkdir()
    (root / "src/a.py").write_text("print('hello')\n", encoding="utf-8")
    (root / "src/pixel.png").write_bytes(b64decode(PIXEL))
    (root / "src/n.ipynb").write_text(NOTEBOOK, encoding="utf-8")
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message=first")):
        git(root, *words)


Place = Callable[..., Setup]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """For a server that is kept: one for each mode and config, with its folder as new."""
    made: dict[tuple[str, str], Setup] = {}

    def fresh(mode: str = "read-only", config: str = "") -> Setup:
        if (mode, config) not in made:
            setup = Setup.below(tmp_path_factory.mktemp("place"))
            plain = replace(setup, mode=mode, flags=WITHOUT_DESKTOP)
            made[mode, config] = rules(setup, config) if config else plain
        fill(made[mode, config].root)
        return made[mode, config]

    return fresh


def why_not(name: str, mode: str) -> tuple[str, ...]:
    """What the refusal of a tool that is not listed must say."""
    if name in DESKTOP:
        return ("switched off",)
    if name in MODEL:
        return ("configure one in [agent]",)
    if name in ELSEWHERE:
        return ("was found on the PATH",)
    return ("requires", "--permission-mode")


PLACES = (
    ("read-only", "stdio", "legacy", False),
    ("workspace-write", "http", "auto", True),
    ("danger-full-access", "sse", "legacy", False),
)
"""True: every tool is called, else one of each kind and what the mode does not offer. `test_matrix.py` has
transports and eras."""

OF_EACH_KIND = (
    "read_file",
    "view_image",
    "git_status",
    "TodoWrite",
    "write_file",
    "bash",
    "repo_clone",
    "TaskOutput",
)


@pytest.mark.requirement("DC-01", "DC-02", "DC-05", "DC-16", "DC-17", "GR-63")
@pytest.mark.parametrize(
    ("mode", "transport", "era", "in_full"),
    # Modes share no server, so they can run in parallel.
    [
        pytest.param(*place, id="-".join(place[:3]), marks=pytest.mark.xdist_group(place[0]))
        for place in PLACES
    ],
)
async def test_every_tool_is_listed_and_called_as_the_mode_says(
    mode: str, transport: str, era: str, in_full: bool, place: Place, shared: SharedServers
) -> None:
    setup = place(mode)
    before = snapshot(setup.root)
    client = await shared.client(setup, transport, era)
    assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
    assert client.server_info is not None
    assert client.server_info.name == "mcp-toolserver"
    assert mode in (client.instructions or "")
    assert str(setup.root) in (client.instructions or "")
    listed = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == sorted(LISTED[mode])
    # Clients that get text and data show their model only one.
    assert not any(tool.output_schema for tool in listed)
    named = [name for name in CALLS if in_full or name in OF_EACH_KIND or name not in LISTED[mode]]
    calls = {name: CALLS[name] for name in named}
    for name, arguments in calls.items():
        result = await client.call_tool(name, arguments)
        assert result.structured_content is None, name
        if name not in LISTED[mode]:
            assert result.is_error
            assert all(words in text(result) for words in why_not(name, mode)), text(result)
        else:
            # No image is there that could be run, and no language server knows notebooks.
            fails = name in ASKS | WEB | UNKNOWN_TASK | {"container_shell", "lsp_edit", "CronDelete"}
            assert bool(result.is_error) == fails, (name, text(result))
        if name == "bash":
            assert ("Read-only file system" in text(result)) == (mode == "read-only")
        if name == "view_image":
            (image,) = [block for block in result.content if isinstance(block, mcp.ImageContent)]
            assert image.mime_type == "image/png"
    if mode == "read-only":
        assert differences(before, snapshot(setup.root)) == []
    else:
        assert (setup.root / "new/b.txt").read_text(encoding="utf-8") == "b"
    assert (setup.root / "made-by-shell").exists() == (mode != "read-only")


async def test_a_cursor_nobody_was_given_is_refused(place: Place, shared: SharedServers) -> None:
    client = await shared.client(place("workspace-write", ASK_WRITES), "http", "legacy")
    for ask in (client.list_tools, client.list_resources, client.list_resource_templates):
        with pytest.raises(MCPError, match="cursor"):
            await ask(cursor="x")


def rules(setup: Setup, content: str) -> Setup:
    config = setup.home / "config.toml"
    config.write_text(content, encoding="utf-8")
    return replace(setup, mode="workspace-write", flags=("--config", str(config)))


class Human:
    """The person behind a client, who gives prepared answers and counts the questions."""

    def __init__(self) -> None:
        self.answers: list[mcp.ElicitResult] = []
        self.asked: list[str] = []

    def will_say(self, *answers: mcp.ElicitResult) -> None:
        """Begin anew, with these answers."""
        self.answers, self.asked = list(answers), []

    async def __call__(self, _: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        self.asked.append(params.message)
        return self.answers.pop(0)


ALLOW = mcp.ElicitResult(action="accept", content={"decision": "allow"})
ASK_WRITES = '[rules]\nask = ["Write"]\ndeny = ["Read(secrets/**)"]'
WRITE: dict[str, Any] = {"path": "asked.txt", "content": "x"}
NOT_CLEARLY_YES: Mapping[str, mcp.ElicitResult] = {
    "decline": mcp.ElicitResult(action="decline"),
    "cancel": mcp.ElicitResult(action="cancel"),
    "deny": mcp.ElicitResult(action="accept", content={"decision": "deny"}),
    "empty": mcp.ElicitResult(action="accept"),
    "STATE09": mcp.ElicitResult(action="accept", content={"decision": "allow", "mode": "danger-full-access"}),
}


@pytest.mark.requirement("DA-47", "DA-60")
@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_clear_yes_from_the_human_lets_one_call_run_and_anything_else_is_no(
    era: str, place: Place, shared: SharedServers
) -> None:
    setup, human = place("workspace-write", ASK_WRITES), Human()
    url = shared.url(setup)
    async with connected_to(url, "http", mode=era, elicitation_callback=human) as client:
        for name, answer in NOT_CLEARLY_YES.items():
            human.will_say(answer)
            refused = await client.call_tool("write_file", WRITE)
            assert refused.is_error, name
            assert "approval" in text(refused), name
            assert len(human.asked) == 1
            assert not (setup.root / "asked.txt").exists(), name
        human.will_say(ALLOW, ALLOW)
        for _ in range(2):
            assert not (await client.call_tool("write_file", WRITE)).is_error
        assert len(human.asked) == 2
        assert "Allow write_file (workspace-write)?\nasked.txt\n" in human.asked[0]
        assert (setup.root / "asked.txt").read_text(encoding="utf-8") == "x"


@pytest.mark.requirement("DA-60", "GR-59", "GR-60")
async def test_a_client_that_cannot_ask_means_no(place: Place, shared: SharedServers) -> None:
    setup = place("workspace-write", ASK_WRITES)
    client = await shared.client(setup, "http", "legacy")
    assert (await client.call_tool("write_file", WRITE)).is_error
    assert not (setup.root / "asked.txt").exists()


async def test_a_human_who_does_not_answer_in_time_means_no(tmp_path: Path) -> None:
    async def silent(context: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    asking = Handlers(dispatcher=dispatcher(machine(tmp_path), ask=["Write"]), ask_seconds=0.2)
    async with Client(ToolServer(asking, ""), mode="legacy", elicitation_callback=silent) as client:
        with anyio.fail_after(10):
            assert "approval" in text(await client.call_tool("write_file", WRITE))


async def test_hidden_files_are_hidden_from_every_file_tool(place: Place, shared: SharedServers) -> None:
    setup = place("workspace-write", ASK_WRITES)
    (setup.root / "secrets").mkdir()
    (setup.root / "secrets/key.py").write_text("hello = 'key'\n", encoding="utf-8")
    client = await shared.client(setup, "http", "legacy")
    files = {entry.spec.name for entry in discover() if entry.toolset in ("files", "search", "git")}
    for name in files & CALLS.keys():
        spelt = {**CALLS[name], **({"path": "secrets/key.py"} if "path" in CALLS[name] else {})}
        result = await client.call_tool(name, spelt)
        assert "key.py" not in text(result) or result.is_error, name
        assert "'key'" not in text(result)
    assert "src/a.py" in text(await client.call_tool("glob_search", {"pattern": "*.py"}))
    assert (setup.root / "secrets/key.py").read_text(encoding="utf-8") == "hello = 'key'\n"
