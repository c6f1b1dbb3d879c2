"""The command line as a person or a script meets it."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.app.compose import _may_hide, build_application
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.command_line import ACTIONS
from mcp_toolserver.commands.setup.clients import CLIENTS
from mcp_toolserver.commands.tools import call as call_command
from mcp_toolserver.commands.tools import tools
from mcp_toolserver.invocation import load
from mcp_toolserver.policy.rules import Policy
from mcp_toolserver.runtime.executables import HostExecutables
from tests import ROOT
from tests.protocol.lines import opening
from tests.support.http_server import INITIALIZE
from tests.support.http_server import call as call_of
from tests.support.process_layer import on_terminal, ran, server_command
from tests.support.workbench import dispatcher, machine

README = (ROOT / "README.md").read_text(encoding="utf-8")

# The tests about one run share it.
pytestmark = pytest.mark.xdist_group("test_cli")

OPENING = "".join(json.dumps(message) + "\n" for message in opening("legacy"))

STATE = ".local/state/mcp-toolserver"
"""Relative to a home folder."""


def run(*arguments: str, home: Path, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    command = [*server_command(), *arguments]
    return ran(command, env={**os.environ, "HOME": str(home), **environ}, stdin=stdin)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.txt").write_text("alpha\nbeta\n", encoding="utf-8")
    return root


FIELDS = {
    "json": {*("name", "toolset", "permission", "kind", "annotations", "aliases", "characters"), "requires"},
    "mcp": {"name", "title", "description", "inputSchema", "annotations", "_meta"},
    "anthropic": {"name", "description", "input_schema"},
    "openai": {"type", "name", "description", "parameters"},
    "acp": {"name", "kind", "requires"},
}


@pytest.mark.requirement("GR-65", "GR-01..GR-04", "CL-47")
def test_tools_speaks_to_people_and_other_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_tool = dispatcher(machine(tmp_path), offered=["read_file"])
    for form, fields in FIELDS.items():
        assert tools(one_tool, form) == 0
        data: Any = json.loads(capsys.readouterr().out)
        (one,) = data["tools"] if form == "mcp" else data
        assert (one["name"], set(one)) == ("read_file", fields)
        requires = one.get("requires", one.get("_meta", {}).get("mcp-toolserver/requires"))
        assert (requires == ["fs_read"]) == (form in ("json", "mcp", "acp")), form
    assert tools(one_tool, "table") == 0
    table = capsys.readouterr().out
    assert "read_file" in table
    assert "characters in all" in table
    assert "callable" not in table
    tools(replace(one_tool, unlisted=one_tool.offered), "table")
    assert "callable (ToolSearch finds them): read_file" in capsys.readouterr().out


CALLS: tuple[tuple[tuple[str, ...], int, str, str], ...] = (
    (("Read", '{"file_path": "a.txt"}'), 0, "1\talpha", ""),
    (("read_file", '{"path": "b.txt"}'), 1, "", "b.txt"),
    (("nope",), 2, "", "read_file"),
    (("read_file", "{"), 2, "", "not JSON"),
    (("read_file", "[]"), 2, "", "JSON object"),
)
"""A call on the command line: its exit status, and what it prints on standard output or standard error."""


def called(root: Path, *words: str) -> int:
    state = root.parent / "state"
    invocation = load(["call", *words, "--root", str(root), "--state-dir", str(state)], {})
    app = build_application(invocation.settings, None, HostExecutables(), held_by=None)
    return call_command(app, invocation)


def test_call_prints_a_result_or_an_error_and_ends_with_its_status(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, status, shown, complained in CALLS:
        assert called(workspace, *words) == status
        printed = capsys.readouterr()
        for expected, there in ((shown, printed.out), (complained, printed.err)):
            assert expected in there if expected else there == "", words


@pytest.mark.requirement("GR-44")
def test_call_prints_the_envelope_as_json(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(workspace, "read_file", '{"path": "a.txt"}', "--json") == 0
    envelope = json.loads(capsys.readouterr().out)
    assert envelope["type"] == "output"
    assert "alpha" in json.dumps(envelope["data"])
    assert envelope["metadata"]["duration_ms"] > 0
    assert called(workspace, "write_file", '{"path": "c", "content": ""}', "--json") == 1
    assert json.loads(capsys.readouterr().out)["kind"] == "denied"


def test_call_runs_a_command_and_leaves_nothing_behind(workspace: Path, tmp_path: Path) -> None:
    arguments = [
        "call",
        "shell",
        '{"command": "seq 200000; exit 3"}',
        "--permission-mode",
        "danger-full-access",
    ]
    places = ["--root", str(workspace), "--state-dir", str(tmp_path / "state")]
    printed = run(*arguments, *places, home=tmp_path)
    assert printed.returncode == 3
    assert printed.stdout.startswith("1\n2\n")
    assert printed.stdout.endswith("\n[exit status 3]\n")
    left = {path.name for path in (tmp_path / "state").rglob("*") if path.is_file()}
    # The record of calls is what the state folder is for.
    assert left == {"000001.jsonl", "head"}


def test_the_demo_shows_a_refused_write_on_an_unchanged_folder(workspace: Path, tmp_path: Path) -> None:
    """And it imports nothing of the folder, in which it is started."""
    trap = workspace / "mcp_toolserver"
    trap.mkdir()
    (trap / "__init__.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    (workspace / "a.txt").touch()  # the demo reads the newest file
    program = str(Path(sys.executable).with_name("mcp-toolserver"))
    ended = ran([program, "demo"], cwd=workspace, env={**os.environ, "HOME": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    assert "requires workspace-write permission" in " ".join(ended.stdout.split())
    assert "Read-only file system" in ended.stdout
    assert "every one is unchanged" in ended.stdout
    assert "alpha" in ended.stdout
    assert list(trap.iterdir()) == [trap / "__init__.py"]
    assert {path.name for path in workspace.iterdir()} == {"a.txt", "mcp_toolserver"}


def test_output_that_nobody_reads_ends_the_command_quietly() -> None:
    with subprocess.Popen(
        [*server_command(), "completion", "bash"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.requirement("DC-15")
def test_the_readme_shows_the_example_config_which_a_server_accepts() -> None:
    config = json.loads((ROOT / "claude_desktop_config.example.json").read_text(encoding="utf-8"))
    shown = README.split("```json\n")[1].split("```")[0]
    assert json.loads(shown) == config
    (server,) = config["mcpServers"].values()
    assert (server["command"], server["args"][0]) == ("sh", "-c")
    _, program, *arguments = shlex.split(server["args"][1])
    assert program == "~/mcp-toolserver/.venv/bin/mcp-toolserver"
    assert load(arguments, {"HOME": "/home"}).settings.root == ("/home/mcp-toolserver",)


def test_the_readme_adds_the_server_to_claude_code_where_the_client_works() -> None:
    (line,) = re.findall(r"^claude mcp add .* -- \S+ (.*)$", README, re.MULTILINE)
    settings = load(line.split(), {}).settings
    assert settings.root == (".",)
    assert settings.permission_mode.flag == "workspace-write"


def test_the_readme_names_every_client_whose_own_tools_setup_turns_off() -> None:
    sentence = README.partition("`setup CLIENT --confine`")[2].partition(".")[0]
    named = {client.name for client in CLIENTS.values() if client.title.removesuffix(" CLI") in sentence}
    assert named == {client.name for client in CLIENTS.values() if client.confine}


def request(number: int, name: str, **arguments: Any) -> str:
    return json.dumps(call_of(name, number, **arguments)) + "\n"


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One run of a server on a root that is the home folder, of which several tests speak."""
    home, elsewhere = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("elsewhere")
    secret = home / STATE / "sessions/secret.txt"
    secret.parent.mkdir(parents=True)
    for path, content in {
        secret: "secret",
        home / "mine.txt": "secret",
        home / "a.txt": "alpha",
        home / "hidden.txt": "the hidden text",
    }.items():
        path.write_text(content, encoding="utf-8")
    config = elsewhere / "config.toml"
    config.write_text('[rules]\ndeny = ["Read(hidden.txt)"]', encoding="utf-8")
    said = (
        OPENING
        + request(2, "glob_search", pattern="*.txt", hidden=True)
        + request(3, "grep_search", pattern="secret", include_ignored=True)
        + request(4, "read_file", path=f"{STATE}/sessions/secret.txt")
        + request(5, "bash", command="echo loud; echo louder >&2")
        + request(6, "read_file", path="nope")
        + "this is no JSON\n"
    )
    for number, (first, last) in enumerate((("hidden.txt", "a.txt"), ("a.txt", "hidden.txt")), 7):
        said += request(number, "read_file", path=last).replace('"path"', f'"path": "{first}", "path"')
    state = {"XDG_STATE_HOME": str(home / STATE.removesuffix("/mcp-toolserver"))}
    return run("--root", str(home), "--config", str(config), home=home, stdin=said, **state)


def test_standard_output_carries_json_rpc_and_nothing_else(
    spoken: subprocess.CompletedProcess[str],
) -> None:
    assert spoken.returncode == 0
    answers = [json.loads(line) for line in spoken.stdout.splitlines()]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    assert INITIALIZE["id"] in {answer.get("id") for answer in answers}


def test_of_one_argument_sent_twice_rules_and_tool_see_the_same(
    spoken: subprocess.CompletedProcess[str],
) -> None:
    """JSON07."""
    results = results_of(spoken)
    assert "alpha" in results[7]
    assert "denied" in results[8]
    assert "the hidden text" not in spoken.stdout


def results_of(ended: subprocess.CompletedProcess[str]) -> dict[int, str]:
    """By request, the text of its result, with `!` before that of an error."""
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    return {
        answer["id"]: "!" * answer["result"].get("isError", False) + answer["result"]["content"][0]["text"]
        for answer in answers
        if "content" in answer.get("result", {})
    }


def test_without_arguments_a_terminal_gets_the_next_steps(tmp_path: Path) -> None:
    process, outer = on_terminal(home=tmp_path)
    said = process.communicate(timeout=60)[1].decode()
    os.close(outer)
    assert process.returncode == 2
    assert {"setup CLIENT", "doctor", "--help"} <= set(re.findall(r"mcp-toolserver (setup CLIENT|\S+)", said))
    assert len(said.splitlines()) < 10
    named = set(re.findall(r"mcp-toolserver ([a-z]+) ", said)) - {"gives"}
    assert named <= ACTIONS.keys()


def test_the_servers_own_state_is_hidden_in_a_root_that_is_the_home_folder(
    spoken: subprocess.CompletedProcess[str],
) -> None:
    results = results_of(spoken)
    assert all("mine.txt" in results[number] for number in (2, 3))
    assert "secret.txt" not in results[2] + results[3]
    assert results[4].startswith("!")


def test_a_root_that_holds_everything_holds_the_servers_state() -> None:
    """The root folder ends with the separator, which a comparison of beginnings gets wrong."""
    free = Policy(ceiling=Permission.READ_ONLY, granted=Permission.READ_ONLY)
    assert _may_hide(free, "/var/state", ("/",))
    assert _may_hide(free, "/var/state", ("/srv", "/var"))
    assert not _may_hide(free, "/var/state", ("/srv", "/var/st"))


# --- the scripts of `completion`, in the shells that they are for ----------------------------------------


COMPLETIONS = {
    "--permission-mode": "mcp-toolserver --permission-m",
    "doctor": "mcp-toolserver doc",
    "workspace-write": "mcp-toolserver --permission-mode w",
    "danger-full-access": "mcp-toolserver tools --permission-mode d",
    "opencode": "mcp-toolserver setup openc",
    "desktop": "mcp-toolserver --toolsets des",
    "glob_search": "mcp-toolserver call glo",
}
"""A unique completion, and what is typed before it."""


def script(shell: str, folder: Path) -> Path:
    with (folder / shell).open("wb") as file:
        command = [sys.executable, "-m", "mcp_toolserver", "completion", shell]
        subprocess.run(command, env={**os.environ, "HOME": str(folder)}, stdout=file, check=True)
    return folder / shell


def program(shell: str) -> str:
    """The path of a shell; the test is skipped where there is none."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def completed(shell: list[str], setup: str, home: Path) -> None:
    """Type each line of `COMPLETIONS` and Tab into an interactive shell, and wait for the completion."""
    ours, theirs = pty.openpty()
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        shell, stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, env=environ, start_new_session=True
    )
    os.close(theirs)
    try:
        # The quotes keep the echo of this line from being taken for its output.
        os.write(ours, f"{setup}; echo rea''dy\n".encode())
        wait_for(ours, "ready")
        for answer, line in COMPLETIONS.items():
            os.write(ours, f"{line}\t".encode())
            wait_for(ours, f" {answer} ")
            # Ctrl-U empties the line.
            os.write(ours, b"\x15")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def wait_for(terminal: int, text: str) -> None:
    shown, deadline = b"", time.monotonic() + 60
    while text.encode() not in shown:
        ready = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]
        assert ready, f"{text!r} is not in {shown.decode()!r}"
        shown += os.read(terminal, 1 << 16)


def test_bash_completes_commands_flags_and_values(tmp_path: Path) -> None:
    completed([program("bash"), "--norc", "-i"], f"source {script('bash', tmp_path)}", tmp_path)


def test_zsh_completes_commands_flags_and_values(tmp_path: Path) -> None:
    shell = program("zsh")
    script("zsh", tmp_path).rename(tmp_path / "_mcp-toolserver")
    completed(
        [shell, "-f", "-i"], f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D", tmp_path
    )


def test_fish_completes_commands_flags_and_values(tmp_path: Path) -> None:
    shell = program("fish")
    command = "; ".join(
        (f"source {script('fish', tmp_path)}", *(f"complete -C '{line}'" for line in COMPLETIONS.values()))
    )
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    found = ran([shell, "--no-config", "-c", command], env=environ)
    assert [line.split("\t")[0] for line in found.stdout.splitlines()] == list(COMPLETIONS)
