"""`setup CLIENT --wrap` and `--unwrap`, with servers that a client has already."""

import asyncio
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from ruamel import yaml

from mcp_toolserver.commands.setup import server
from mcp_toolserver.commands.setup.clients import CLIENTS, command_of, wrapped_command
from mcp_toolserver.commands.setup.files import BACKUP
from tests.gateway.test_wrap import DOER
from tests.setup.client_setup import BY_FORM, setup, with_servers
from tests.setup.test_setup import config_of, files_in, parsed
from tests.support.extent import IN_FULL
from tests.support.live import text
from tests.support.process_layer import on_terminal
from tests.support.workshop import program


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder next to the project in which the command runs; the state folder is in it."""
    for name in ("project", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests start the servers."""
    monkeypatch.setattr(server, "count_tools", lambda *_: 1)


def wrapping(client: str, *arguments: str, home: Path, status: int = 0) -> str:
    done = setup(client, *arguments, "--yes", home=home)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout


def rewritten(file: Path, *, disabled: bool = False) -> None:
    """Write the file as a client does that keeps neither comments nor order."""
    content: dict[str, Any] = parsed(file)
    (key,) = (key for key, value in content.items() if isinstance(value, dict) and "other" in value)
    servers = {"new": {"command": "new"}, **dict(reversed(content[key].items()))}
    servers["other"] = dict(reversed(servers["other"].items())) | ({"disabled": True} if disabled else {})
    content[key] = servers
    if file.suffix == ".toml":
        file.write_text(tomlkit.dumps(content), encoding="utf-8")
    elif file.suffix == ".yaml":
        out = io.StringIO()
        yaml.YAML().dump(content, out)
        file.write_text(out.getvalue(), encoding="utf-8")
    else:
        file.write_text(json.dumps(content, indent=2), encoding="utf-8")


@pytest.mark.rounds
def test_an_entry_is_given_back_byte_for_byte_in_every_client_also_after_a_rewrite(
    home: Path, untried: None
) -> None:
    failed: list[str] = []
    for client in (CLIENTS if IN_FULL else BY_FORM).values():
        file = config_of(client, home)
        file.parent.mkdir(parents=True, exist_ok=True)
        (key,), original = client.path, with_servers(client, file)
        file.write_text(original, encoding="utf-8")
        former = parsed(file)[key]["other"]

        def entry(file: Path = file, key: str = key) -> Any:
            return parsed(file)[key]["other"]

        def expect(condition: object, what: str, file: Path = file, name: str = client.name) -> None:
            if not condition:
                failed.append(f"{name}: {what}: {file.read_text(encoding='utf-8')}")

        shown = wrapping(client.name, "--wrap-all", home=home)
        expect("key-of-mine" not in shown and "value-of-mine" not in shown, "shows a secret")
        expect(wrapped_command(command_of(entry())) == command_of(former), "is wrapped")
        expect({"--env", "A", "--root", "/usr"} <= set(command_of(entry())), "has its flags")
        expect("is wrapped already" in wrapping(client.name, "--wrap-all", home=home), "is wrapped once")
        wrapping(client.name, "--unwrap", home=home)
        expect(file.read_text(encoding="utf-8") == original, "is as before")
        expect(not file.with_name(file.name + BACKUP).exists(), "has no backup")
        wrapping(client.name, "--wrap", "other", home=home)
        rewritten(file)
        wrapping(client.name, "--unwrap", "other", home=home)
        expect(entry() == former, "has the former value after a rewrite")
        wrapping(client.name, "--wrap", "other", home=home)
        rewritten(file, disabled=True)
        wrapping(client.name, "--unwrap", home=home)
        expect(entry() == {**former, "disabled": True}, "keeps what the client changed")
        wrapping(client.name, "--wrap", "other", home=home)
        file.with_name(file.name + BACKUP).unlink(missing_ok=True)
        wrapping(client.name, "--unwrap", home=home)
        expect(command_of(entry()) == command_of(former), "has its command without a backup")
        file.unlink()
    assert failed == []


REFUSED: dict[str, Any] = {
    "there is no such server": None,
    "it is a remote server": {"type": "http", "url": "http://a"},
    "it is this server": {"command": "mcp-toolserver"},
    "has no command of a form": {"command": {"path": "a"}},
    "no command of a form": {"command": "a", "args": ["--port", 80]},
    "envFile": {"command": "a", "envFile": ".env"},
    **{
        f"its variable {name} acts": {"command": "a", "env": {"B": "", name: ""}}
        for name in ("PYTHONPATH", "LD_PRELOAD", "MCP_TOOLSERVER_NETWORK")
    },
}
"""By reason, an entry that is not wrapped."""


def test_an_entry_that_cannot_be_confined_stays_and_is_named(home: Path, untried: None) -> None:
    file, project = home / ".claude.json", home.parent / "project"
    for reason, entry in REFUSED.items():
        before = json.dumps({"mcpServers": {"a": entry} if entry else {}, "x": 1})
        file.write_text(before, encoding="utf-8")
        assert reason in wrapping("claude-code", "--wrap", "a", home=home, status=1)
        assert reason in wrapping("claude-code", "--wrap-all", home=home) or not entry
        assert file.read_text(encoding="utf-8") == before
    # The file of a project may be another's: it chooses no programs, other folders or patterns of variables.
    (project / "link").symlink_to("/usr")
    env = {"PATH": "/a"}
    for name, variables in (("a", env), ("b", {"*": "", "OWN": ""})):
        entry = {"command": "a", "args": ["/usr", str(project / "link")], "env": variables}
        (project / ".mcp.json").write_text(json.dumps({"mcpServers": {name: entry}}), encoding="utf-8")
        shown = wrapping("claude-code", "--scope", "project", "--wrap-all", home=home)
        assert ("its variable PATH acts" in shown) == (variables == env)
    (entry,) = parsed(project / ".mcp.json")["mcpServers"].values()
    words = command_of(entry)
    assert words[words.index("--root") : -2] == ("--root", ".", "--env", "OWN", "--", "a")
    assert "zero is not wrapped." in wrapping("claude-code", "--unwrap", "zero", home=home, status=1)
    assert "has no wrapped server" in wrapping("claude-code", "--unwrap", home=home)


def test_a_wrapped_server_is_not_taken_for_this_one(home: Path, untried: None) -> None:
    file = home / ".claude.json"
    file.write_text('{"mcpServers": {"a": {"command": "a"}}}', encoding="utf-8")
    wrapping("claude-code", "--wrap", "a", home=home)
    for more in ((), ("--remove",)):
        assert "another server" in setup("claude-code", *more, "--name", "a", "--yes", home=home).stderr
    assert command_of(parsed(file)["mcpServers"]["a"])[-1] == "a"


def test_roots_are_those_that_setup_accepts(home: Path, untried: None) -> None:
    inner = home / "inner"
    inner.mkdir()
    entry = {"command": "a", "args": [str(home), f"--dir={inner}", "/absent"]}
    file = config_of(CLIENTS["cursor"], home)
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": {"a": entry}}), encoding="utf-8")
    shown = wrapping("cursor", "--wrap-all", "--permission-mode", "workspace-write", "--print", home=home)
    assert "contains your home folder" in shown
    assert f"--permission-mode workspace-write --root {inner} -- a" in shown
    hosts = ("--network", "hosts", "--allow-domain", "example.com")
    shown = wrapping("cursor", "--wrap-all", "--root", ".", *hosts, "--env", "KEY", "--print", home=home)
    assert f"--root {home.parent / 'project'} {' '.join(hosts)} --env KEY -- a" in shown
    wrong = (("--root", str(home)), ("--name", "b"), ("--unwrap",), ("--remove",))
    assert [setup("cursor", "--wrap", "a", *one, home=home).returncode for one in wrong] == [2] * 4
    assert files_in(home) == {".cursor/mcp.json"}


def test_packages_of_runners_are_prepared(home: Path, untried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = home.parent / "calls"
    script = program(
        home.parent / "bin", "mcp-toolserver", f'echo "$@" >> {calls}; echo no index >&2; exit 3'
    )
    monkeypatch.setattr(server, "server_command", lambda *_: (script,))
    servers = {"a": {"command": "npx", "args": ["-y", "p"]}, "b__c": {"command": "/x/uvx", "args": ["q"]}}
    entries = {"mcpServers": {**servers, "d": {"command": "node"}}}
    (home / ".claude.json").write_text(json.dumps(entries), encoding="utf-8")
    shown = wrapping("claude-code", "--wrap-all", home=home)
    assert "a: its package was not prepared: no index" in shown
    prepare = "upstream prepare"
    assert calls.read_text(encoding="utf-8") == f"{prepare} a -- npx -y p\n{prepare} b--c -- /x/uvx q\n"


def test_what_the_client_replaces_in_an_entry_is_replaced_in_the_trial(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(server, "count_tools", lambda *given: tried.append(given) or 1)
    args = ["${workspaceFolder}", "${env:HOME}", "${input:key}", "${NONE:-x}"]
    entry = {"command": "a", "args": args, "env": {"B": "${env:HOME}"}, "cwd": "${workspaceFolder}"}
    project = home.parent / "project"
    (project / ".vscode").mkdir()
    (project / ".vscode/mcp.json").write_text(json.dumps({"servers": {"a": entry}}), encoding="utf-8")
    wrapping("vscode", "--scope", "project", "--wrap", "a", home=home)
    ((command, cwd, environ),) = tried
    flags = ["--root", str(project), "--env", "B", "--"]
    assert command[-10:] == [*flags, "a", str(project), str(home), "${input:key}", "x"]
    assert (cwd, environ["B"]) == (str(project), str(home))


def test_an_entry_that_the_client_changes_meanwhile_is_not_overwritten(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / ".claude.json"
    changed = {"b": {"command": "c"}, "a": {"command": "a"}}

    def trial(*_: object) -> int:
        file.write_text(json.dumps({"n": 2, "mcpServers": changed}), encoding="utf-8")
        return 1

    monkeypatch.setattr(server, "count_tools", trial)
    file.write_text('{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}', encoding="utf-8")
    assert "b is left as it is" in wrapping("claude-code", "--wrap-all", home=home, status=1)
    content = parsed(file)
    assert (content["n"], content["mcpServers"]["b"]) == (2, {"command": "c"})
    assert command_of(content["mcpServers"]["a"])[-2:] == ("--", "a")


@pytest.mark.long
async def test_real_servers_are_tried_and_a_client_uses_them_confined(home: Path) -> None:
    """One that does not start when confined keeps its entry."""
    data = home.parent / "data"
    data.mkdir()

    def entry(code: str, **more: object) -> dict[str, Any]:
        return {"command": sys.executable, "args": ["-c", code, str(data), "--token=token-of-mine"], **more}

    writes = f"import sys; open({str(data / 'new')!r}, 'w')"
    servers = {
        "keyed one": entry(DOER, env={"API_KEY": "key-of-mine"}),
        "writes": entry(writes),
        "silent": entry(DOER.replace("server.run()", "print('no', file=sys.stderr); sys.exit(3)")),
    }
    file, original = home / ".claude.json", json.dumps({"mcpServers": servers, "n": 1}, indent=2)
    file.write_text(original, encoding="utf-8")
    shown = await asyncio.to_thread(wrapping, "claude-code", "--wrap-all", home=home, status=1)
    assert "token-of-mine" not in shown
    assert "key-of-mine" not in shown
    for said in (
        "keyed one lists 1 tools",
        "writes is left as it is, because it does not list its tools when confined: ",
        "it printed: OSError: [Errno 30]",
        "exit status 3; it printed: no",
    ):
        assert said in shown
    found = parsed(file)["mcpServers"]
    assert (found["writes"], found["silent"]) == (servers["writes"], servers["silent"])
    program, *arguments = command_of(found["keyed one"])
    started = StdioServerParameters(command=program, args=arguments, env=found["keyed one"]["env"])
    async with Client(started, read_timeout_seconds=60) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["attempt"]
        for code, answer in {
            "os.environ['API_KEY']": "key-of-mine",
            f"open('{data}/x', 'w')": "OSError",
        }.items():
            assert text(await client.call_tool("attempt", {"code": code})) == answer
    assert os.listdir(data) == []
    wrapping("claude-code", "--unwrap", home=home)
    assert file.read_text(encoding="utf-8") == original


def test_on_a_terminal_roots_hosts_and_variables_are_asked_for(home: Path) -> None:
    file = home / ".claude.json"
    file.write_text('{"mcpServers": {"a": {"command": "true", "env": {"A": ""}}}}', encoding="utf-8")
    process, outer = on_terminal("setup", "claude-code", "--wrap", "a", home=home, errors_apart=False)
    shown = b""
    answers = {b"roots [.]: ": b"/usr", b"reach [none]: ": b"a.example", b"[A]: ": b"none"}
    for question, answer in answers.items():
        while question not in shown:
            shown += os.read(outer, 4096)
        os.write(outer, answer + b"\n")
    while b"[y/N]" not in shown:
        shown += os.read(outer, 4096)
    os.write(outer, b"n\n")
    with contextlib.suppress(OSError):
        while os.read(outer, 4096):
            pass
    assert process.wait(timeout=60) == 1
    os.close(outer)
    assert b"--root /usr --network hosts --allow-domain a.example -- true" in shown
    assert parsed(file)["mcpServers"]["a"]["command"] == "true"
