"""MCP clients that setup configured list the server, and run a turn with a scripted model through it.

The clients are those of `client_programs/package.json`. They reach nothing but loopback: the model is there,
and everything else goes to it as a proxy, which refuses.
"""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from mcp_toolserver.commands.setup.clients import CLIENTS
from tests import ROOT
from tests.client_programs.programs import PROGRAMS, TOOLS, Program
from tests.client_programs.scripted_model import Call, Request, ScriptedModel, scripted_model
from tests.gateway.test_wrap import DOER
from tests.notebook.notebooks import PIXEL
from tests.setup.client_setup import OBSERVED, setup_line
from tests.support import official
from tests.support.extent import IN_FULL

pytestmark = [
    pytest.mark.skipif(
        not official.is_wanted(),
        reason=f"the clients come from npm, which is absent, or {official.WITHOUT} is set",
    ),
]

SECONDS = 120
"""For one run of a client on a busy machine."""

SERVER = str(Path(sys.executable).with_name("mcp-toolserver"))

IN_GATE = "claude-code"
"""The client that the gate runs; the others are for the step `long`."""

OPENING = {"initialize", "server/discover"}
"""How often a client sends these depends on how fast the server starts."""


class Home:
    """A user with a new home folder, and the project that the client is started in."""

    def __init__(self, folder: Path, program: Program, model: ScriptedModel) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.received, self.sent = folder / "received", folder / "sent"
        self.home.mkdir()
        self.project.mkdir()
        (self.project / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
        lines = "".join(f"line {number} of a long file\n" for number in range(4_000))
        (self.project / "long.txt").write_text(lines, encoding="utf-8")
        (self.project / "dot.png").write_bytes(base64.b64decode(PIXEL))
        if program.file is not None:
            file = self.home / program.file
            file.parent.mkdir(parents=True)
            file.write_text(program.content(model.url), encoding="utf-8")
        self._programs = official.client_program(program.package)
        self._node = official.node_modules() / "node" / "bin"
        self._program = program
        self._url = model.url

    def set_up(self, *arguments: str) -> None:
        flags = ("--permission-mode", "workspace-write", "--toolsets", "default", "--tools", "view_image")
        self.change(*arguments, *flags)

    def change(self, *arguments: str) -> None:
        """Run `setup` as the installed program, in a bare environment."""
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(self.home)}
        self._run([SERVER, "setup", *arguments, "--yes"], environ)

    def run(self, arguments: Sequence[str]) -> str:
        """Run the client to its end; what it prints."""
        return self._run([self._programs / self._program.command, *arguments], self._environment())

    def _run(self, command: Sequence[str | Path], environ: Mapping[str, str]) -> str:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            cwd=self.project,
            env=environ,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            raise AssertionError(f"{command} did not end: {printed}") from None
        assert process.returncode == 0, printed
        return printed

    def record(self) -> None:
        """Put a program around the configured server that writes down what the client sends and gets."""
        recorder = self.home / "recorder"
        script = f'#!/bin/sh\ntee -a "{self.received}" | "{SERVER}" "$@" | tee -a "{self.sent}"\n'
        recorder.write_text(script, encoding="utf-8")
        recorder.chmod(0o700)
        client = CLIENTS[self._program.client]
        config = client.user.format(config=self.home / ".config", application=self.home / ".config")
        file = Path(config.replace("~", str(self.home), 1))
        text = file.read_text(encoding="utf-8")
        assert text.count(SERVER) == 1
        file.write_text(text.replace(SERVER, str(recorder)), encoding="utf-8")

    def _environment(self) -> dict[str, str]:
        proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), self._url)
        direct = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
        path = f"{self._node}:/usr/bin:/bin"
        environ = {"PATH": path, "HOME": str(self.home), "TERM": "dumb", **proxies, **direct}
        return {**environ, **self._program.environment(self._url)}


def script(program: Program, outside: Path) -> list[Call]:
    arguments: Sequence[tuple[str, Mapping[str, object]]] = (
        ("ls", {}),
        ("read_file", {"path": "a.txt"}),
        ("edit_file", {"path": "a.txt", "old_string": "two", "new_string": "three"}),
        ("write_file", {"path": str(outside), "content": "x"}),
        ("write_file", {"path": ".vscode/tasks.json", "content": "{}"}),
        ("bash", {"command": "cat a.txt; echo made > b.txt; echo x > .mcp.json"}),
        ("view_image", {"path": "dot.png"}),
        ("read_file", {"path": "long.txt"}),
        ("bash", {"command": "seq 100000"}),
        ("grep_search", {"pattern": "7", "path": "long.txt", "output_mode": "content", "head_limit": 0}),
        ("glob_search", {"pattern": "*.txt"}),
        ("TodoWrite", {"todos": [{"content": "Build", "activeForm": "Building", "status": "pending"}]}),
    )
    assert {tool for tool, _ in arguments} == set(TOOLS)
    calls = [Call(tool=program.prefix + tool, arguments=given) for tool, given in arguments]
    return [*program.before, *calls, *program.own]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            program,
            id=program.client,
            marks=pytest.mark.rounds if program.client == IN_GATE else pytest.mark.long,
        )
        for program in PROGRAMS
    ],
)
def test_a_client_lists_the_server_and_its_turn_goes_through_it(
    program: Program, tmp_path: Path, update: bool
) -> None:
    outside = tmp_path / "outside"
    calls = script(program, outside)
    with scripted_model(calls) as model:
        user = Home(tmp_path, program, model)
        confine = ["--confine"] if CLIENTS[program.client].confine else []
        user.set_up(*setup_line(CLIENTS[program.client], str(user.project)), *confine)
        # It starts the client and the server once more.
        if program.listing and IN_FULL:
            printed = user.run(program.listing)
            assert any("toolserver" in line and program.connected in line for line in printed.splitlines()), (
                printed
            )
        user.record()
        try:
            printed = user.run(program.turn)
        finally:
            if program.end:
                user.run(program.end)
    assert model.requests, printed
    last = max(model.requests, key=lambda request: len(request.results))
    assert len(last.results) == len(calls), (printed, last.results)
    results = last.results[len(program.before) :]
    assert "a.txt" in results[0], results
    assert "two" in results[1]
    assert "outside the workspace" in results[3]
    assert ".vscode" in results[4]
    assert "three" in results[5]
    assert (user.project / "a.txt").read_text(encoding="utf-8") == "one\nthree\n"
    assert (user.project / "b.txt").read_text(encoding="utf-8") == "made\n"
    # What it writes for itself is in hidden folders.
    assert {path.name for path in user.project.glob("[!.]*")} == {"a.txt", "b.txt", "dot.png", "long.txt"}
    assert not outside.exists()
    assert not any((user.project / name).exists() for name in (".mcp.json", ".vscode/tasks.json"))
    assert not any(user.project.rglob("own-*"))
    assert program.hidden.isdisjoint(last.tools)
    assert cut(messages(user.received), messages(user.sent), results) == []
    found = {
        "version": json.loads(official.CLIENT_PACKAGES.read_text(encoding="utf-8"))["dependencies"][
            program.package
        ],
        **sent_to_the_server(messages(user.received)),
        **sent_to_the_model(program, model.requests[0], last),
    }
    known: dict[str, Any] = json.loads(OBSERVED.read_text(encoding="utf-8"))
    if update:
        known[program.client] = found
        OBSERVED.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    assert known[program.client] == found, "run python -m tests update clients"


@pytest.mark.long
def test_a_client_uses_its_servers_behind_wrap_and_gets_its_entries_back(tmp_path: Path) -> None:
    # Under /tmp, a confined server writes into a folder of its own.
    names, data, outside = ("one", "two", "three"), tmp_path / "data", ROOT / "no-server-writes-here"
    data.mkdir()
    (data / "kept").write_text("kept", encoding="utf-8")
    tools = [f"mcp__{name}__attempt" for name in names]
    codes = (f"open('{data}/kept').read()", f"open('{outside}', 'w')", "os.environ['API_KEY']")
    calls = [Call(tool=tool, arguments={"code": code}) for tool in tools for code in codes]
    search = {"query": f"select:{','.join(tools)}", "max_results": 3}
    turn = ("-p", "go", "--allowedTools", ",".join(f"mcp__{name}" for name in names))
    claude = replace(next(one for one in PROGRAMS if one.client == "claude-code"), turn=turn)
    with scripted_model([Call(tool="ToolSearch", arguments=search), *calls]) as model:
        user = Home(tmp_path, claude, model)
        file = user.home / ".claude.json"
        started = {"command": sys.executable, "args": ["-c", DOER, str(data)]}
        former = {name: {"type": "stdio", **started, "env": {"API_KEY": name}} for name in names}
        file.write_text(json.dumps({"mcpServers": former}), encoding="utf-8")
        user.change("claude-code", "--wrap-all", "--permission-mode", "workspace-write")
        written = file.read_text(encoding="utf-8")
        listed = user.run(claude.listing)
        assert all(re.search(rf"^{name}: .* wrap .* Connected", listed, re.MULTILINE) for name in names), (
            listed
        )
        printed = user.run(claude.turn)
    last = max(model.requests, key=lambda request: len(request.results))
    answers = [text for result in last.results[1:] for text in texts(result)]
    found = [text for text in answers if text in ("kept", "OSError", *names)]
    assert found == [text for name in names for text in ("kept", "OSError", name)], (printed, answers)
    assert not outside.exists()
    assert file.read_text(encoding="utf-8") != written
    user.change("claude-code", "--unwrap")
    assert json.loads(file.read_text(encoding="utf-8"))["mcpServers"] == former


Message = dict[str, Any]


def messages(recorded: Path) -> list[Message]:
    lines = recorded.read_text(encoding="utf-8").splitlines()
    return [cast("Message", json.loads(line)) for line in lines if line]


def cut(received: Sequence[Message], sent: Sequence[Message], results: Sequence[str]) -> list[str]:
    """The calls of which the model did not get the whole text that the server sent."""
    answers = {one["id"]: one["result"] for one in sent if "result" in one}
    calls = [one for one in received if one.get("method") == "tools/call"]
    found: list[str] = []
    for call, result in zip(calls, results[: len(calls)], strict=True):
        seen = "\n".join(texts(result))
        parts = [part["text"] for part in answers[call["id"]]["content"] if part["type"] == "text"]
        if not parts or any(part.strip() not in seen for part in parts):
            found.append(json.dumps([call["params"]["name"], call["params"]["arguments"]]))
    return found


def texts(value: object) -> list[str]:
    """The texts in a value, and in the JSON that they hold."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [text for one in cast("Iterable[object]", inner) for text in texts(one)]
    try:
        decoded: object = json.loads(str(value))
    except ValueError:
        return [str(value)]
    return [str(value), *(texts(decoded) if isinstance(decoded, dict | list | str) else ())]


def sent_to_the_server(received: Sequence[Message]) -> dict[str, Any]:
    """What the client said of itself, and requested."""
    requests = [message for message in received if "method" in message and "id" in message]
    params = next(one["params"] for one in requests if one["method"] in ("initialize", "server/discover"))
    meta: dict[str, Any] = params.get("_meta", {})
    prefix = "io.modelcontextprotocol/"
    declared = params.get("capabilities", meta.get(f"{prefix}clientCapabilities", {}))
    client = params.get("clientInfo", meta.get(f"{prefix}clientInfo", {}))
    called = [one for one in requests if one["method"] == "tools/call"]
    return {
        "name": client["name"],
        "protocol": params.get("protocolVersion", meta.get(f"{prefix}protocolVersion")),
        "capabilities": sorted(declared),
        "requests": sorted({one["method"] for one in requests} - {"tools/call", *OPENING}),
        "progress": all("progressToken" in one["params"].get("_meta", {}) for one in called),
    }


def sent_to_the_model(program: Program, first: Request, last: Request) -> dict[str, Any]:
    """What the client passed on of the server."""
    sent = json.dumps(last.body)
    return {
        "at_once": any(name.startswith(program.prefix) for name in first.tools),
        "instructions": "fixed when the server started" in sent,
        # In a result that is sent as text, a backslash comes before the quotation mark.
        "images": f'{PIXEL}"' in sent,
    }
