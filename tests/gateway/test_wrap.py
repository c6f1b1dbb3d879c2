"""A server behind the program, by `wrap` and by `--upstreams`, with the official client: what it can do in
each mode, and what it is."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from mcp_toolserver.runtime.sandbox.broker.resource_usage import children, descendants
from tests import ROOT
from tests.conformance.stdio_bridge import bridged
from tests.conformance.test_conformance import SCENARIOS, Run, suite
from tests.gateway.strangers import program
from tests.support import official
from tests.support.families import lines
from tests.support.live import text
from tests.support.process_layer import server_command
from tests.support.processes import state

DOER = """
import os, sys, time, urllib.request
from mcp.server import MCPServer
server = MCPServer("doer")
@server.tool()
def attempt(code: str) -> str:
    'Evaluate code.'
    try:
        return str(eval(code))
    except Exception as error:
        return type(error).__name__
server.run()
"""
"""A server on the official SDK, which knows both generations of the protocol."""

ATTEMPTING = """
TOOLS = [tool("attempt")]
def on_call(n, params):
    try:
        said = str(eval(params["arguments"]["code"]))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    send(id=n, result=text(said))
"""
"""The same without the SDK, whose import takes longer than all else."""
DOES = [sys.executable, "-c", program(ATTEMPTING)]

ATTEMPTS = (
    "open('{root}/new', 'w')",
    "os.remove('{root}/kept')",
    "os.chmod('{root}/kept', 0)",
    "os.symlink('/', '{root}/link')",
    "open('{outside}/new', 'w')",
    "open('{state}/x', 'w')",
    "__import__('urllib.request').request.urlopen('http://127.0.0.1:9')",
)


def tree(folder: Path) -> str:
    """A hash of all names, contents and modes."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(
            f"{path} {path.lstat().st_mode}".encode() + (path.read_bytes() if path.is_file() else b"")
        )
    return found.hexdigest()


class Ground:
    """A repository as root, and what lies around it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.outside, self.state = (folder / name for name in ("root", "outside", "state"))
        for place in (self.root, self.outside):
            place.mkdir(parents=True)
        (self.root / "kept").write_text("kept", encoding="utf-8")
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "x"]):
            subprocess.run(["git", "-C", str(self.root), *words], check=True)

    def filled(self, value: Any) -> Any:
        """`value` with the places of this ground in it."""
        said = json.dumps(value)
        for name in ("root", "outside", "state"):
            said = said.replace(f"{{{name}}}", str(vars(self)[name]))
        return json.loads(said)

    def printed(self, *words: str) -> str:
        """What the program prints about this state folder."""
        command = [*server_command(), *words, "--state-dir", str(self.state)]
        return subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout

    def own(self, mode: str) -> tuple[str, ...]:
        return "--permission-mode", mode, "--root", str(self.root), "--state-dir", str(self.state)

    def wrapping(self, mode: str, command: Sequence[str], *flags: str) -> list[str]:
        return [*server_command(), "wrap", *self.own(mode), *flags, "--", *command]

    def serving(self, mode: str, command: Sequence[str], *more: str) -> list[str]:
        """Serves the tools of `command` among its own, which are few; `more` names servers of the same."""
        entry = {"command": command[0], "args": command[1:], "mode": mode}
        file = self.outside.parent / "servers.json"
        file.write_text(json.dumps({"mcpServers": dict.fromkeys(("doer", *more), entry)}), encoding="utf-8")
        return [*server_command(), *self.own(mode), "--toolsets", "gateway", "--upstreams", str(file)]

    @asynccontextmanager
    async def client(
        self,
        mode: str,
        *flags: str,
        command: Sequence[str] = DOES,
        era: str = "auto",
        door: str = "wrap",
        **environ: str,
    ) -> AsyncGenerator[Client]:
        first, *arguments = (
            self.wrapping(mode, command, *flags) if door == "wrap" else self.serving(mode, command)
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
        started = StdioServerParameters(command=first, args=arguments, env=environment, cwd=str(self.root))
        async with Client(started, mode=era, read_timeout_seconds=60) as client:
            yield client


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


BEFORE = {"wrap": "", "upstreams": "mcp__doer__"}
"""What precedes the names of tools, by the door that leads to their server."""


async def attempted(client: Client, code: str, door: str = "wrap") -> str:
    return unframed(text(await client.call_tool(f"{BEFORE[door]}attempt", {"code": code})))


def unframed(said: str) -> str:
    """What a server said, without the lines around it that say so."""
    return re.sub(r"^\[untrusted content of the MCP server .*\n|\n\[untrusted content .* ends\]", "", said)


@pytest.mark.parametrize(
    ("mode", "door", "era"),
    [
        ("read-only", "upstreams", "auto"),
        ("workspace-write", "wrap", "legacy"),
        pytest.param("read-only", "wrap", "auto", marks=pytest.mark.long),
        pytest.param("workspace-write", "upstreams", "legacy", marks=pytest.mark.long),
    ],
)
async def test_a_server_does_no_more_than_the_mode_allows(
    ground: Ground, mode: str, door: str, era: str
) -> None:
    before = tree(ground.root), tree(ground.outside)
    # `wrap` passes on what the client speaks.
    command = [sys.executable, "-c", DOER] if (door, era) == ("wrap", "auto") else DOES
    async with ground.client(mode, command=command, era=era, door=door) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        annotations = tools[f"{BEFORE[door]}attempt"].annotations
        assert annotations
        assert annotations.read_only_hint == (mode == "read-only")
        attempt = partial(attempted, door=door)
        assert await attempt(client, ground.filled("open('{root}/kept').read()")) == "kept"
        # It has a home and a temporary folder of its own.
        for place in ("HOME", "TMPDIR"):
            assert await attempt(client, f"open(os.environ['{place}'] + '/x', 'w').write('x')") == "1"
        for code in ATTEMPTS[0 if mode == "read-only" else 4 :]:
            assert "Error" in await attempt(client, ground.filled(code)), code
        assert (tree(ground.root), tree(ground.outside)) == before
        if mode == "workspace-write":
            assert "TextIO" in await attempt(client, ground.filled(ATTEMPTS[0]))
            planted = ground.filled("open('{root}/.envrc', 'w').write('x')")
            assert "quarantine" in await attempt(client, planted)
            assert sorted(os.listdir(ground.root)) == [".git", "kept", "new"]
            assert "1 references" in ground.printed("history", "list")
    assert "__attempt" in lines(ground.state.parent)[0]["tool"]


async def test_the_server_gets_what_the_operator_hands_on_and_nothing_else(ground: Ground) -> None:
    home = str(ground.root)
    environ = {"API_KEY": "secret", "OTHER_KEY": "secret", "HOME": home}
    (ground.root / ".gitconfig").touch()
    hosts = ("--network", "hosts", "--allow-domain", "example.com")
    async with ground.client("read-only", "--env", "API_KEY", *hosts, **environ) as client:
        assert await attempted(client, "os.environ['API_KEY']") == "secret"
        assert (await attempted(client, "os.environ['OTHER_KEY']")).startswith("KeyError")
        assert await attempted(client, "os.environ['HOME']") != home
        assert await attempted(client, "os.environ['GIT_CONFIG_GLOBAL']") == f"{home}/.gitconfig"
        code = ATTEMPTS[-1].replace("127.0.0.1:9", "example.org")
        assert "--allow-domain example.org" in await attempted(client, code)
        assert await attempted(client, "1 + 1") == "2"
    async with ground.client("read-only", "--env", "HOME", **environ) as client:
        assert await attempted(client, "os.environ['HOME']") == home
    async with ground.client("danger-full-access", **environ) as client:
        assert await attempted(client, "os.environ['HOME']") == home
        assert "TextIO" in await attempted(client, ground.filled(ATTEMPTS[4]))


def test_a_signal_ends_the_server_and_records_its_calls(ground: Ground) -> None:
    nap = ground.filled("[open('{root}/pid', 'w').close(), time.sleep(600)]")
    command = ground.wrapping("workspace-write", DOES)
    info: dict[str, Any] = {"capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    said: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", **info}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "attempt", "arguments": {"code": nap}}},
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdin
    for message in said:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()
    while not (ground.root / "pid").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    heard, _ = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert all("jsonrpc" in json.loads(line) for line in heard.splitlines())
    assert lines(ground.state.parent)[-1]["outcome"] == "cancelled"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
async def test_one_process_forks_the_brokers_of_upstream_servers_and_all_end_with_the_server(
    ground: Ground, number: signal.Signals
) -> None:
    command = ground.serving("read-only", [sys.executable, "-Ic", program("")], "idle", "spare")
    async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
        assert process.stdin
        assert process.stdout
        heard = BufferedByteReceiveStream(process.stdout)

        async def ask(method: str, params: Any) -> None:
            assert process.stdin
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            await process.stdin.send(json.dumps(message).encode() + b"\n")
            await heard.receive_until(b"\n", 1 << 20)

        with anyio.fail_after(120):
            about = {"capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            await ask("initialize", {"protocolVersion": "2025-06-18", **about})
            # Its own broker, and what forks the others.
            assert len(children(process.pid)) == 2
            server = {"server": "doer", "uri": "x:y"}
            await ask("tools/call", {"name": "ReadMcpResource", "arguments": server})
            brokers = [one for own in children(process.pid) for one in children(own) if len(children(one))]
            every = descendants(process.pid)
            assert brokers
            process.send_signal(number)
            await process.wait()
            # A server that ends by itself waits for them, but no longer than a client waits for its end.
            while any(state(one) not in "XZ" for one in every):
                await anyio.sleep(0.05)


def test_a_wrong_start_is_said_to_the_client(tmp_path: Path) -> None:
    wrong = {
        "put the command of the server after --": [],
        "ended with exit status 127": ["--", "/no/such/program"],
    }
    request = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}\n'
    for said, flags in wrong.items():
        command = [*server_command(), "wrap", "--state-dir", str(tmp_path), *flags]
        ended = subprocess.run(command, input=request, capture_output=True, check=False, timeout=60, cwd=ROOT)
        assert ended.returncode in (1, 2)
        assert said in json.loads(ended.stdout)["error"]["message"]


REAL: dict[str, tuple[str, str, Any, str, Any]] = {
    "server-filesystem": (
        *("{root}", "read_text_file", {"path": "{root}/kept"}),
        *("write_file", {"path": "{root}/new", "content": "x"}),
    ),
    "server-memory": ("", "read_graph", {}, "delete_entities", {"entityNames": ["x"]}),
    "server-everything": ("", "echo", {"message": "kept"}, "get-sum", {"a": 1, "b": 2}),
    "server-sequential-thinking": (
        *("", "sequentialthinking"),
        *({"thought": "x", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}, "", {}),
    ),
    "mcp-server-git": (
        *("--repository {root}", "git_status", {"repo_path": "{root}"}),
        *("git_create_branch", {"repo_path": "{root}", "branch_name": "new"}),
    ),
    "mcp-server-fetch": ("", "", {}, "fetch", {"url": "https://example.com/"}),
    "desktop-commander": (
        *("", "read_file", {"path": "{root}/kept"}),
        *("write_file", {"path": "{root}/new", "content": "x"}),
    ),
    "serena-agent": ("start-mcp-server --project {root}", "initial_instructions", {}, "", {}),
}
"""Arguments of real servers; a tool that reads and one that changes what it may, each with arguments."""


@pytest.mark.long
@pytest.mark.skipif(not official.is_wanted(), reason="needs packages of npm and PyPI")
@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
@pytest.mark.parametrize("door", BEFORE)
@pytest.mark.parametrize("name", REAL)
async def test_real_servers_work_and_change_only_the_roots(
    tmp_path: Path, name: str, door: str, mode: str
) -> None:
    """Started in three folders, none has a definition that seems to change."""
    arguments, reading, _, changing, change = REAL[name]
    for number in range(3):
        ground = Ground(tmp_path / f"{number}-folder")
        ground.state = tmp_path / "state"
        before, around = tree(ground.root), tree(ground.outside)
        command = [official.mcp_server(name), *ground.filled(arguments).split()]
        async with ground.client(mode, command=command, era="legacy", door=door) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools
            for tool, given in ((reading, ground.filled(REAL[name][2])), (changing, ground.filled(change))):
                if not tool:
                    continue
                if (called := f"{BEFORE[door]}{tool}") in tools:
                    result = await client.call_tool(called, given)
                else:  # There are many.
                    wanted = {"server": "doer", "tool": tool, "arguments": given}
                    result = await client.call_tool("MCP", wanted)
                assert tool == changing or not result.is_error, text(result)
        assert tree(ground.outside) == around
        if mode == "read-only" or "{root}" in str(change):
            assert (tree(ground.root) == before) == (mode == "read-only")
        assert ground.printed("upstream", "list").endswith(" approved, 0 waiting\n")


SERVER = (
    "import sys; sys.path.insert(0, sys.argv[1]); from mcp_everything_server.server import mcp; mcp.run()"
)

LEAST_PASSED = {"2025-11-25": 75, "2026-07-28": 115}
"""Checks that the server passes behind the bridge, which lacks what HTTP adds in each version."""


def outcomes(run: Run) -> dict[str, list[tuple[str, str]]]:
    """By scenario the checks, each with how it ended."""
    return {
        name: sorted((check["id"], check["status"]) for check in checks)
        for name, checks in run.checks.items()
    }


@pytest.mark.long
@pytest.mark.skipif(not official.is_wanted(), reason="needs packages of npm and PyPI")
@pytest.mark.parametrize("version", SCENARIOS)
async def test_the_official_suite_finds_the_same_behind_wrap(
    version: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    server = [sys.executable, "-c", SERVER, str(official.everything_server())]
    wrap = [*server_command(), "wrap", "--name", "every", "--state-dir", str(tmp_path / "state"), "--"]
    found = dict[str, Run]()
    for name, command in (("alone", server), ("wrapped", [*wrap, *server])):
        async with bridged(command) as url:
            words = ("--suite", "all", "--spec-version", version)
            found[name] = await suite(url, tmp_path / name, *words, seconds=280)
    alone, wrapped = (outcomes(run) for run in found.values())
    passed = sum(status == "SUCCESS" for checks in alone.values() for _, status in checks)
    record_property(
        "summary", f"official suite behind wrap, {version}: {passed} checks pass with and without"
    )
    assert len(alone) == SCENARIOS[version]
    assert passed >= LEAST_PASSED[version]
    assert {name for name in alone if alone[name] != wrapped.get(name)} == set()
    assert wrapped.keys() == alone.keys()
