"""The command line as a person or a script meets it."""

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.command_line import ACTIONS
from mcp_toolserver.commands.setup.clients import CLIENTS
from mcp_toolserver.commands.tools import tools
from mcp_toolserver.invocation import load
from mcp_toolserver.pipeline.registry import discover
from mcp_toolserver.settings import OPTIONS, TABLES
from tests import ROOT
from tests.support.live import Setup, connected, text
from tests.support.process_layer import server_command
from tests.support.workbench import dispatcher, machine

README = (ROOT / "README.md").read_text(encoding="utf-8")

HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


STATE = ".local/state/mcp-toolserver"
"""Relative to a home folder."""


def run(*arguments: str, home: Path, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*server_command(), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "HOME": str(home), **environ},
        check=False,
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.txt").write_text("alpha\nbeta\n", encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("arguments", "environ", "says"),
    [
        pytest.param(["--permission-mode", "reed-only"], {}, "danger-full-access", id="mode"),
        pytest.param([], {"MCP_TOOLSERVER_PERMISSION_MODE": "reed-only"}, "workspace-write", id="variable"),
        pytest.param([], {}, "--root", id="no-root"),
        pytest.param(["--root", "/nonexistent-folder"], {}, "/nonexistent-folder", id="missing-root"),
        pytest.param(["--root", ".", "--toolsets", "leen"], {}, "lean", id="toolset"),
        pytest.param(["--root", ".", "--tools", "reed"], {}, "read_file", id="tool"),
        pytest.param(
            ["--root", ".", "--network", "none", "--permission-mode", "danger-full-access"],
            {},
            "read-only",
            id="network",
        ),
        pytest.param(
            ["--root", ".", "--transport", "http", "--host", "0.0.0.0"], {}, "--token-file", id="bind"
        ),
        pytest.param(
            ["--root", ".", "--transport", "http", "--token-file", "/nonexistent"],
            {},
            "/nonexistent",
            id="token",
        ),
        pytest.param(["frobnicate"], {}, "frobnicate", id="command"),
    ],
)
def test_a_wrong_start_ends_with_status_2_and_says_what_is_right(
    arguments: list[str], environ: dict[str, str], says: str, tmp_path: Path
) -> None:
    ended = run(*arguments, home=tmp_path, **environ)
    assert ended.returncode == 2
    assert ended.stderr.startswith("mcp-toolserver: ")
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


# --- tools -----------------------------------------------------------------------------------------------


def test_tools_lists_what_the_mode_offers(tmp_path: Path) -> None:
    printed = run("tools", "--format", "json", "--permission-mode", "read-only", home=tmp_path)
    shown = {tool["name"] for tool in json.loads(printed.stdout)}
    assert {"bash", "read_file"} <= shown
    assert "write_file" not in shown


def test_tools_is_a_table_for_people(tmp_path: Path) -> None:
    printed = run("tools", home=tmp_path)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert "read_file" in printed.stdout
    assert "characters in all" in printed.stdout


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ("mcp", {"name", "title", "description", "inputSchema", "annotations", "_meta"}),
        ("anthropic", {"name", "description", "input_schema"}),
        ("openai", {"type", "name", "description", "parameters"}),
        ("acp", {"name", "kind"}),
    ],
)
def test_tools_speaks_other_programs_languages(
    form: str, fields: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tools(dispatcher(machine(tmp_path), offered=["read_file"]), form) == 0
    data: Any = json.loads(capsys.readouterr().out)
    (one,) = data["tools"] if form == "mcp" else data
    assert one["name"] == "read_file"
    assert set(one) == fields


# --- call ------------------------------------------------------------------------------------------------


def test_call_prints_the_text_of_a_result(workspace: Path, tmp_path: Path) -> None:
    printed = run("call", "Read", '{"file_path": "a.txt"}', "--root", str(workspace), home=tmp_path)
    assert printed.returncode == 0
    assert "1\talpha" in printed.stdout


def test_call_prints_the_envelope_as_json(workspace: Path, tmp_path: Path) -> None:
    arguments = ["call", "glob_search", '{"pattern": "*.txt"}', "--json", "--root", str(workspace)]
    envelope = json.loads(run(*arguments, home=tmp_path).stdout)
    assert envelope["type"] == "output"
    assert envelope["data"] == "a.txt"
    assert envelope["metadata"]["duration_ms"] > 0


EMPTY = """
from mcp_toolserver.tool_spec import Args, Output, Record, Runtime, ToolSpec
from mcp_toolserver.tool import Permission

class Nothing(Record):
    pass

async def run(args: Args, rt: Runtime) -> Output:
    return Output("nothing was found", data=Nothing())

TOOL = ToolSpec(name="look", description="Find nothing.", permission=Permission.READ_ONLY, needs=frozenset(),
                args=Args, run=run, kind="read", subjects=lambda args: (), output=Nothing)
"""


def test_the_envelope_holds_structured_data_that_is_empty(workspace: Path, tmp_path: Path) -> None:
    tools, config = tmp_path / "own.py", tmp_path / "config.toml"
    tools.write_text(EMPTY, encoding="utf-8")
    config.write_text(f"tool-files = [{json.dumps(str(tools))}]", encoding="utf-8")
    chosen = ["--config", str(config), "--tools", "look", "--root", str(workspace)]
    printed = run("call", "look", "{}", "--json", *chosen, home=tmp_path)
    assert json.loads(printed.stdout)["data"] == {}, printed.stderr


def test_call_ends_with_1_on_a_tool_error_and_shows_it(workspace: Path, tmp_path: Path) -> None:
    failed = run("call", "read_file", '{"path": "b.txt"}', "--root", str(workspace), home=tmp_path)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "b.txt" in failed.stderr
    refused = run(
        "call",
        "write_file",
        '{"path": "c", "content": ""}',
        "--json",
        "--root",
        str(workspace),
        home=tmp_path,
    )
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["kind"] == "denied"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["nope"], "read_file"), (["read_file", "{"], "not JSON"), (["read_file", "[]"], "JSON object")],
    ids=["tool", "broken", "list"],
)
def test_call_ends_with_2_on_a_call_that_is_none(
    arguments: list[str], says: str, workspace: Path, tmp_path: Path
) -> None:
    ended = run("call", *arguments, "--root", str(workspace), home=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in ended.stderr


def test_call_runs_a_command_and_leaves_nothing_behind(workspace: Path, tmp_path: Path) -> None:
    arguments = ["call", "shell", '{"command": "seq 200000"}', "--permission-mode", "danger-full-access"]
    printed = run(*arguments, "--root", str(workspace), "--state-dir", str(tmp_path / "state"), home=tmp_path)
    assert printed.returncode == 0
    assert printed.stdout.startswith("1\n2\n")
    left = {path.name for path in (tmp_path / "state").rglob("*") if path.is_file()}
    # The record of calls is what the state folder is for.
    assert left == {"000001.jsonl", "head"}


# --- what client bundles and JSON files give --------------------------------------------------------


async def test_roots_with_a_tilde_and_several_after_one_flag_are_served(
    workspace: Path, tmp_path: Path
) -> None:
    for name in ("other", "third"):
        (tmp_path / name).mkdir()
    (tmp_path / "other/b.txt").write_text("gamma\n", encoding="utf-8")
    (tmp_path / "config.toml").write_text('exclude-tools = ["curl"]\n', encoding="utf-8")
    flags = ["--config", "~/config.toml", "--root", "~/work", str(tmp_path / "other")]
    async with connected(Setup(root=tmp_path / "third", home=tmp_path, flags=flags)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "read_file" in names
        assert "curl" not in names
        for file, content in ((workspace / "a.txt", "alpha"), (tmp_path / "other/b.txt", "gamma")):
            assert content in text(await client.call_tool("read_file", {"path": str(file)}))


# --- the help -----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["--help", "-h"])
def test_the_help_of_the_program_shows_every_flag_and_every_key(asked: str, tmp_path: Path) -> None:
    shown = run(asked, home=tmp_path)
    assert shown.returncode == 0
    words = set(re.findall(r"--[\w-]+|[\w-]+", shown.stdout))
    assert {f"--{option.name}" for option in OPTIONS if option.flag} | {"--config", "--version"} <= words
    assert {
        option.key for option in (*OPTIONS, *TABLES["agent"], *TABLES["rules"]) if not option.flag
    } <= words
    assert ACTIONS.keys() <= words


def test_the_readme_names_no_flag_that_the_help_does_not_have(tmp_path: Path) -> None:
    shown = run("--help", home=tmp_path).stdout
    shown += "".join(run(action, "--help", home=tmp_path).stdout for action in ACTIONS)
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", README))
    assert {"--root", "--permission-mode"} <= named
    assert named - set(re.findall(r"--[\w-]+", shown)) <= OF_OTHER_PROGRAMS


OF_OTHER_PROGRAMS = {"--scope"}
"""A flag of Claude Code."""


# --- demo, and the files that users copy ---------------------------------------------------------


def test_the_demo_shows_a_refused_write_on_an_unchanged_folder(workspace: Path, tmp_path: Path) -> None:
    """And it imports nothing of the folder, in which it is started."""
    trap = workspace / "mcp_toolserver"
    trap.mkdir()
    (trap / "__init__.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    (workspace / "a.txt").touch()  # the demo reads the newest file
    program = Path(sys.executable).with_name("mcp-toolserver")
    environ = {**os.environ, "HOME": str(tmp_path)}
    demo = subprocess.run(
        [program, "demo"], cwd=workspace, env=environ, capture_output=True, encoding="utf-8", check=False
    )
    assert demo.returncode == 0, demo.stderr
    assert "requires workspace-write permission" in " ".join(demo.stdout.split())
    assert "Read-only file system" in demo.stdout
    assert "every one is unchanged" in demo.stdout
    assert "alpha" in demo.stdout
    assert list(trap.iterdir()) == [trap / "__init__.py"]
    assert {path.name for path in workspace.iterdir()} == {"a.txt", "mcp_toolserver"}


def test_the_demo_of_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    ended = run("demo", "--root", str(tmp_path / "gone"), home=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"mcp-toolserver: --root {tmp_path}/gone: not a folder that can be opened.\n"


def test_the_demo_of_an_empty_folder_reads_no_file(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    printed = run("demo", "--root", str(tmp_path / "empty"), home=tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert "read_file(" not in printed.stdout
    assert "every one is unchanged" in printed.stdout


def test_output_that_nobody_reads_ends_the_command_quietly(tmp_path: Path) -> None:
    command = [*server_command(), "tools", "--root", str(tmp_path), "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_the_example_config_works_as_pasted(tmp_path: Path) -> None:
    config = json.loads((ROOT / "claude_desktop_config.example.json").read_text(encoding="utf-8"))
    (server,) = config["mcpServers"].values()
    clone = tmp_path / "mcp-toolserver"
    (clone / ".venv/bin").mkdir(parents=True)
    program = clone / ".venv/bin/mcp-toolserver"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mcp_toolserver "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    ended = subprocess.run(
        [server["command"], *server["args"]],
        input=json.dumps(HELLO) + "\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        cwd=ROOT,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert json.loads(ended.stdout)["result"]["serverInfo"]["name"] == "mcp-toolserver"
    assert ended.returncode == 0


def test_the_readme_shows_the_example_config() -> None:
    config = json.loads((ROOT / "claude_desktop_config.example.json").read_text(encoding="utf-8"))
    shown = README.split("```json\n")[1].split("```")[0]
    assert json.loads(shown) == config


def test_the_readme_adds_the_server_to_claude_code_where_the_client_works() -> None:
    (line,) = re.findall(r"^claude mcp add .* -- \S+ (.*)$", README, re.MULTILINE)
    settings = load(line.split(), {}).settings
    assert settings.root == (".",)
    assert settings.permission_mode.flag == "workspace-write"


def test_the_readme_names_every_client_whose_own_tools_setup_turns_off() -> None:
    sentence = README.partition("`setup CLIENT --confine`")[2].partition(".")[0]
    named = {client.name for client in CLIENTS.values() if client.title.removesuffix(" CLI") in sentence}
    assert named == {client.name for client in CLIENTS.values() if client.confine}


def test_ci_runs_the_gate_command_of_the_readme() -> None:
    gate = README.split("<!-- gate -->")[1].split("```sh\n")[1].split("\n```")[0]
    assert gate.startswith("python3 -m venv")
    assert gate.endswith("-m tests")
    assert "README.md" in (ROOT / ".ci/run").read_text(encoding="utf-8")


# --- standard streams ------------------------------------------------------------------------------------


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    """The message that calls a tool."""
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def test_standard_output_carries_json_rpc_and_nothing_else(workspace: Path, tmp_path: Path) -> None:
    lines = [
        HELLO,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call(2, "bash", command="echo loud; echo louder >&2"),
        call(3, "read_file", path="nope"),
    ]
    flags = ["--permission-mode", "danger-full-access", "--root", str(workspace)]
    said = "".join(json.dumps(line) + "\n" for line in lines) + "this is no JSON\n"
    ended = run(*flags, "--state-dir", str(tmp_path / "state"), home=tmp_path, stdin=said)
    assert ended.returncode == 0
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    assert 1 in {answer.get("id") for answer in answers}


@pytest.mark.parametrize(
    ("first", "last", "says"),
    [
        pytest.param("secret.txt", "a.txt", "alpha", id="JSON07-last-is-allowed"),
        pytest.param("a.txt", "secret.txt", "denied", id="JSON07-last-is-denied"),
    ],
)
def test_of_one_argument_sent_twice_rules_and_tool_see_the_same(
    first: str, last: str, says: str, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "secret.txt").write_text("the secret", encoding="utf-8")
    config = tmp_path / "config.toml"
    config.write_text('[rules]\ndeny = ["Read(secret.txt)"]', encoding="utf-8")
    call = (
        '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "read_file", '
        f'"arguments": {{"path": "{first}", "path": "{last}"}}}}}}\n'
    )
    flags = ["--root", str(workspace), "--config", str(config), "--log-level", "error"]
    process = subprocess.Popen(
        [*server_command(), *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(HELLO) + "\n")
    process.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n' + call)
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.communicate(timeout=20)
    shown = answers[1]["result"]["content"][0]["text"]
    assert says in shown
    assert "the secret" not in shown


def on_terminal(*arguments: str, home: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The program with a new terminal on standard input and output, and the other end of that terminal."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [*server_command(), *arguments],
        stdin=inner,
        stdout=inner,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "HOME": str(home)},
    )
    os.close(inner)
    return process, outer


def test_a_server_on_a_terminal_says_that_it_waits_for_a_client_and_how_to_add_it(
    workspace: Path, tmp_path: Path
) -> None:
    process, outer = on_terminal("--root", str(workspace), home=tmp_path)
    assert process.stderr is not None
    said = b"".join(process.stderr.readline() for _ in range(3)).decode()
    assert "waiting for an MCP client" in said
    assert "mcp-toolserver setup CLIENT" in said
    # It serves all the same.
    os.write(outer, json.dumps(HELLO).encode() + b"\n")
    with os.fdopen(outer, "rb") as terminal:
        answers = (json.loads(line) for line in terminal)
        assert next(answer for answer in answers if "result" in answer)["id"] == HELLO["id"]
        process.terminate()
        assert process.communicate(timeout=20)[1] == b""


def test_the_list_of_clients_ends_on_a_terminal_with_how_to_add_one(tmp_path: Path) -> None:
    process, outer = on_terminal("setup", "--list", home=tmp_path)
    shown = b""
    # Linux reports the end of a terminal as an error.
    with suppress(OSError):
        while read := os.read(outer, 1 << 16):
            shown += read
    os.close(outer)
    assert process.communicate(timeout=60)[1] == b""
    last = shown.decode().splitlines()[-1]
    assert last == "To add this server: mcp-toolserver setup CLIENT (its flags: setup --help)"


def test_without_arguments_a_terminal_gets_the_next_steps(tmp_path: Path) -> None:
    process, outer = on_terminal(home=tmp_path)
    said = process.communicate(timeout=60)[1].decode()
    os.close(outer)
    assert process.returncode == 2
    assert {"setup CLIENT", "doctor", "--help"} <= set(re.findall(r"mcp-toolserver (setup CLIENT|\S+)", said))
    assert len(said.splitlines()) < 10
    named = set(re.findall(r"mcp-toolserver ([a-z]+) ", said)) - {"gives"}
    assert named <= ACTIONS.keys()


def test_every_tool_is_in_the_readme_or_the_tools_page() -> None:
    page = (ROOT / "docs/tools.md").read_text(encoding="utf-8")
    assert all(f"## {entry.spec.name}\n" in page for entry in discover())


def test_the_servers_own_state_is_hidden_in_a_root_that_is_the_home_folder(tmp_path: Path) -> None:
    secret = tmp_path / STATE / "sessions/secret.txt"
    secret.parent.mkdir(parents=True)
    secret.write_text("secret", encoding="utf-8")
    (tmp_path / "mine.txt").write_text("secret", encoding="utf-8")
    lines = [
        HELLO,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call(2, "glob_search", pattern="*.txt", hidden=True),
        call(3, "grep_search", pattern="secret", include_ignored=True),
        call(4, "read_file", path=f"{STATE}/sessions/secret.txt"),
    ]
    said = "".join(json.dumps(line) + "\n" for line in lines)
    state = {"XDG_STATE_HOME": str(tmp_path / STATE.removesuffix("/mcp-toolserver"))}
    ended = run("--root", str(tmp_path), home=tmp_path, stdin=said, **state)
    results = {answer["id"]: answer["result"] for answer in map(json.loads, ended.stdout.splitlines())}
    assert [results[number]["content"][0]["text"].split()[0] for number in (2, 3)] == ["mine.txt"] * 2
    assert "secret.txt" not in results[2]["content"][0]["text"] + results[3]["content"][0]["text"]
    assert results[4]["isError"]


def test_a_root_that_holds_everything_holds_the_servers_state() -> None:
    """The root folder ends with the separator, which a comparison of beginnings gets wrong."""
    from mcp_toolserver.app.compose import _may_hide
    from mcp_toolserver.capabilities.permissions import Permission
    from mcp_toolserver.policy.rules import Policy

    free = Policy(ceiling=Permission.READ_ONLY, granted=Permission.READ_ONLY)
    assert _may_hide(free, "/var/state", ("/",))
    assert _may_hide(free, "/var/state", ("/srv", "/var"))
    assert not _may_hide(free, "/var/state", ("/srv", "/var/st"))
