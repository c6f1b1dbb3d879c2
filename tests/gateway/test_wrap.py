"""The program `wrap` with the official client, in each mode: what a server can do, and what it is."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests import ROOT
from tests.support import official
from tests.support.live import ERAS, text
from tests.support.process_layer import server_command

DOER = """
import os, sys
from mcp.server import MCPServer

server = MCPServer("doer")

@server.tool()
def attempt(code: str) -> str:
    'Run code.'
    found = {}
    try:
        exec(code, found)
    except Exception as error:
        return type(error).__name__
    return str(found.get("result"))

server.run()
"""
"""A server on the official SDK, which knows both generations of the protocol."""
DOES = [sys.executable, "-c", DOER]

HOSTILE = (
    "open({root!r} + '/new', 'w')",
    "os.remove({root!r} + '/kept')",
    "os.chmod({root!r} + '/kept', 0)",
    "os.symlink('/', {root!r} + '/link')",
    "open({outside!r} + '/new', 'w')",
    "open({state!r} + '/x', 'w')",
    "open(os.path.expanduser('~root') + '/x-of-tests', 'w')",
    "__import__('socket').create_connection(('127.0.0.1', 9), 1)",
)


def tree(folder: Path) -> str:
    """A hash of all names, contents and modes."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        found.update(f"{path} {path.lstat().st_mode} {hashlib.sha256(content).hexdigest()}\n".encode())
    return found.hexdigest()


class Ground:
    """A root and what lies around it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.outside, self.state = (folder / name for name in ("root", "outside", "state"))
        for place in (self.root, self.outside):
            place.mkdir()
        (self.root / "kept").write_text("kept", encoding="utf-8")
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "x"]):
            subprocess.run(["git", "-C", str(self.root), *words], check=True)

    def printed(self, *words: str) -> str:
        """What the program prints about this state folder."""
        command = [*server_command(), *words, "--state-dir", str(self.state)]
        return subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout

    def wrapping(self, mode: str, command: Sequence[str], *flags: str) -> list[str]:
        own = ("--permission-mode", mode, "--root", str(self.root), "--state-dir", str(self.state))
        return [*server_command(), "wrap", *own, *flags, "--", *command]

    @asynccontextmanager
    async def client(
        self, mode: str, command: Sequence[str], *flags: str, era: str = "auto", **environ: str
    ) -> AsyncGenerator[Client]:
        program, *arguments = self.wrapping(mode, command, *flags)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
        started = StdioServerParameters(command=program, args=arguments, env=environment, cwd=str(self.root))
        async with Client(started, mode=era, read_timeout_seconds=60) as client:
            yield client


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


async def result_of(client: Client, code: str) -> str:
    return text(await client.call_tool("attempt", {"code": code}))


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
async def test_a_server_does_no_more_than_the_mode_allows(ground: Ground, mode: str, era: str) -> None:
    before = tree(ground.root), tree(ground.outside)
    async with ground.client(mode, DOES, era=era) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.annotations
        assert tool.annotations.read_only_hint == (mode == "read-only")
        assert await result_of(client, f"result = open({str(ground.root)!r} + '/kept').read()") == "kept"
        # It has a home and a temporary folder of its own.
        for place in ("os.environ['HOME']", "os.environ['TMPDIR']"):
            assert await result_of(client, f"import os; result = open({place} + '/x', 'w').write('x')") == "1"
        places = {name: str(getattr(ground, name)) for name in ("root", "outside", "state")}
        for code in HOSTILE[0 if mode == "read-only" else 4 :]:
            said = await result_of(client, f"import os; {code.format(**places)}")
            assert "Error" in said, code
        assert (tree(ground.root), tree(ground.outside)) == before
        if mode == "workspace-write":
            assert await result_of(client, HOSTILE[0].format(**places)) == "None"
            planted = await result_of(client, f"open({str(ground.root)!r} + '/.envrc', 'w').write('x')")
            assert "quarantine" in planted
            assert sorted(os.listdir(ground.root)) == [".git", "kept", "new"]
            assert "1 references" in ground.printed("history", "list")
    assert json.loads(ground.printed("log", "--json").splitlines()[0])["tool"].endswith("__attempt")


async def test_the_server_gets_the_variables_that_the_operator_names(ground: Ground) -> None:
    secret = {"API_KEY": "secret", "OTHER_KEY": "secret", "HOME": str(ground.outside)}
    async with ground.client("read-only", DOES, "--env", "API_KEY", **secret) as client:
        assert await result_of(client, "import os; result = os.environ['API_KEY']") == "secret"
        assert await result_of(client, "import os; result = os.environ['OTHER_KEY']") == "KeyError"
        assert await result_of(client, "import os; result = os.environ['HOME']") != str(ground.outside)
    async with ground.client("read-only", DOES, "--env", "HOME", **secret) as client:
        assert await result_of(client, "import os; result = os.environ['HOME']") == str(ground.outside)
    async with ground.client("danger-full-access", DOES, **secret) as client:
        assert await result_of(client, "import os; result = os.environ['HOME']") == str(ground.outside)
        assert await result_of(client, f"open({str(ground.outside)!r} + '/new', 'w')") == "None"


async def test_a_refused_connection_is_explained(ground: Ground) -> None:
    flags = ("--network", "hosts", "--allow-domain", "example.com")
    async with ground.client("read-only", DOES, *flags) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.annotations
        assert (tool.annotations.read_only_hint, tool.annotations.open_world_hint) == (False, True)
        said = await result_of(client, "__import__('urllib.request').request.urlopen('http://example.org/')")
        assert "--allow-domain example.org" in said
        assert await result_of(client, "result = 1") == "1"


def test_a_signal_ends_the_server_and_records_its_calls(ground: Ground) -> None:
    nap = f"import os, time; open({str(ground.root)!r} + '/pid', 'w').write('x'); time.sleep(600)"
    command = ground.wrapping("workspace-write", DOES, "--name", "doer")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdin
    assert process.stdout
    info: dict[str, Any] = {"capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    for number, (method, params) in enumerate(
        (
            ("initialize", {"protocolVersion": "2025-06-18", **info}),
            ("notifications/initialized", {}),
            ("tools/call", {"name": "attempt", "arguments": {"code": nap}}),
        )
    ):
        request = {"jsonrpc": "2.0", "method": method, "params": params}
        own = {} if "notifications" in method else {"id": number}
        process.stdin.write(json.dumps({**request, **own}).encode() + b"\n")
    process.stdin.flush()
    while not (ground.root / "pid").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert all("jsonrpc" in json.loads(line) for line in said.splitlines())
    entries = "".join(file.read_text(encoding="utf-8") for file in (ground.state / "audit").glob("*.jsonl"))
    assert '"outcome":"cancelled"' in entries


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "put the command of the server after --"),
        (["--name", "a__b", "--", "true"], "--name: 'a__b'"),
        (["--root", "/nowhere", "--", "true"], "/nowhere"),
        (["--", "/no/such/program"], "ended with exit status 127"),
    ],
)
def test_a_wrong_start_is_said_to_the_client(tmp_path: Path, flags: list[str], said: str) -> None:
    command = [*server_command(), "wrap", "--state-dir", str(tmp_path), *flags]
    request = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}\n'
    ended = subprocess.run(command, input=request, capture_output=True, check=False, timeout=60, cwd=ROOT)
    assert ended.returncode in (1, 2)
    assert said in json.loads(ended.stdout)["error"]["message"]


REAL: dict[str, tuple[str, str, dict[str, Any], str, dict[str, Any]]] = {
    "server-filesystem": (
        "{root}",
        *("read_text_file", {"path": "{root}/kept"}),
        *("write_file", {"path": "{root}/new", "content": "x"}),
    ),
    "server-memory": ("", "read_graph", {}, "delete_entities", {"entityNames": ["x"]}),
    "server-everything": ("", "echo", {"message": "kept"}, "get-sum", {"a": 1, "b": 2}),
    "server-sequential-thinking": (
        "",
        "sequentialthinking",
        {"thought": "x", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        "",
        {},
    ),
    "mcp-server-git": (
        "--repository {root}",
        *("git_status", {"repo_path": "{root}"}),
        *("git_create_branch", {"repo_path": "{root}", "branch_name": "new"}),
    ),
    "mcp-server-fetch": ("", "", {}, "fetch", {"url": "https://example.com/"}),
    "desktop-commander": (
        "",
        *("read_file", {"path": "{root}/kept"}),
        *("write_file", {"path": "{root}/new", "content": "x"}),
    ),
    "serena-agent": ("start-mcp-server --project {root}", "initial_instructions", {}, "", {}),
}
"""Arguments of real servers; a tool that reads and one that changes what it may, each with arguments."""


@pytest.mark.long
@pytest.mark.skipif(not official.is_wanted(), reason="needs packages of npm and PyPI")
@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
@pytest.mark.parametrize("name", REAL)
async def test_real_servers_work_and_change_only_the_roots(tmp_path: Path, name: str, mode: str) -> None:
    """Started in three folders, none has a definition that seems to change."""
    arguments, reading, read, changing, change = REAL[name]
    program, state = official.mcp_server(name), tmp_path / "state"
    for number in range(3):
        (folder := tmp_path / f"{number}-folder").mkdir()
        ground = Ground(folder)
        ground.state = state
        before, around = tree(ground.root), tree(ground.outside)
        filled = json.loads(json.dumps([arguments, read, change]).replace("{root}", str(ground.root)))
        async with ground.client(mode, [program, *filled[0].split()]) as client:
            assert (await client.list_tools()).tools
            if reading:
                assert not (await client.call_tool(reading, filled[1])).is_error
            if changing:
                await client.call_tool(changing, filled[2])
        assert tree(ground.outside) == around
        if mode == "read-only" or "{root}" in str(change):
            assert (tree(ground.root) == before) == (mode == "read-only")
        assert ground.printed("upstream", "list").endswith(" approved, 0 waiting\n")
