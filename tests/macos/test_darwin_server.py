"""The server on the simulated Darwin: what is proven is offered and works, and nothing else is offered."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.darwin.build import build, reason_to_skip
from tests.darwin.served import COMMANDS, OF_PROGRAMS, Mac, mac

pytestmark = pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))


@pytest.fixture
def machine(tmp_path: Path) -> Generator[Mac]:
    with mac(build(tmp_path / "stand-in")) as made:
        yield made


def test_a_server_that_reads_runs_commands_that_write_nothing(machine: Mac) -> None:
    with machine.client("read-only") as client:
        names = {tool["name"] for tool in client.request("tools/list", {}).result["tools"]}
        assert names >= OF_PROGRAMS
        assert "write_file" not in names
        assert "needle" in client.call("bash", {"command": "cat file.txt; cat ../outside/kept | wc -l"}).text
        for command in ("echo x >new", "echo x >>file.txt", "echo x >../outside/new", "rm -rf sub",
                        "cat ../state/*", "curl -s http://127.0.0.1:9/", "kill -9 $PPID"):  # fmt: skip
            answer = client.request(
                "tools/call", {"name": "bash", "arguments": {"command": f"{command} && echo ran"}}
            )
            text = "".join(part.get("text", "") for part in answer.result["content"])
            assert "ran" not in text, command
        assert client.call("bash", {"command": "f=$(mktemp) && echo x >$f && cat $f"}).text.strip() == "x"
        assert "file.txt" in client.call("grep_search", {"pattern": "needle"}).text
        assert "file.txt" in client.call("glob_search", {"pattern": "*.txt"}).text
        assert "file.txt" in client.call("git_status", {}).text
        code = "print(open('file.txt').read())\nopen('new', 'w')"
        assert "needle" in client.request(
            "tools/call", {"name": "REPL", "arguments": {"language": "python", "code": code}}
        ).result["content"][0]["text"]  # fmt: skip
    assert sorted(path.name for path in machine.root.iterdir()) == [".git", "file.txt", "sub"]
    assert sorted(path.name for path in (machine.base / "outside").iterdir()) == ["kept"]


def test_a_server_that_writes_runs_commands_that_write_in_the_root(machine: Mac) -> None:
    with machine.client("workspace-write") as client:
        names = {tool["name"] for tool in client.request("tools/list", {}).result["tools"]}
        assert names >= OF_PROGRAMS | {"write_file", "git_commit"}
        text = client.call("bash", {"command": "echo made >new && cat new; git add new || echo refused"}).text
        assert text.startswith("made\n")
        assert "refused" in text
        for command in ("echo x >.git/config", "mkdir sub/.vscode", "echo x >../outside/new", "mv .git git",
                        "cat ../state/*"):  # fmt: skip
            answer = client.request(
                "tools/call", {"name": "bash", "arguments": {"command": f"{command} && echo ran"}}
            )
            assert "ran\n" not in "".join(part.get("text", "") for part in answer.result["content"]), command
        repl = {"language": "python", "code": "print(open('from-repl', 'w').write('x'))"}
        assert client.call("REPL", repl).text.startswith("1")
        assert client.call("write_file", {"path": "written", "content": "x\n"}).text
    made = {path.name for path in machine.root.iterdir()}
    assert made == {".git", "file.txt", "sub", "new", "from-repl", "written"}
    assert "x" not in (machine.root / ".git/config").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("mutation", "mode", "missing"),
    [
        ("everything is allowed", "read-only", OF_PROGRAMS),
        ("an operation is misspelt", "workspace-write", OF_PROGRAMS),
        ("protected names are written", "workspace-write", COMMANDS),
    ],
)
def test_with_a_wrong_profile_what_it_does_not_hold_is_not_offered(
    tmp_path: Path, mutation: str, mode: str, missing: frozenset[str]
) -> None:
    stand_in = build(tmp_path / "stand-in", mutation)
    with mac(build(tmp_path / "right"), stand_in.program) as machine:
        assert machine.tools(mode) & OF_PROGRAMS == OF_PROGRAMS - missing
        done = machine.run(mode, "call", "bash", '{"command": "echo ran"}')
        assert (done.returncode, "ran" in done.stdout.split()) == (1, False)
    assert stand_in.has_mutated


SCRIPTS = {
    "ignores its profile": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    "always fails": "exit 1",
    "fails after it ran the program": 'while [ "$1" != -- ]; do shift; done; shift; "$@"; exit 71',
    "prints what the self-test expects": "echo root; echo end reached",
    "kills": "kill -9 $$",
    "hangs": "exec sleep 600",
    "is empty": "",
}


@pytest.mark.parametrize("kind", [*SCRIPTS, "is missing", "is not executable"])
def test_with_a_sandbox_exec_that_does_not_confine_nothing_is_offered(tmp_path: Path, kind: str) -> None:
    program = tmp_path / "sandbox-exec"
    if kind != "is missing":
        program.write_text(f"#!/bin/sh\n{SCRIPTS.get(kind, 'exit 0')}\n", encoding="utf-8")
        program.chmod(0o755 if kind != "is not executable" else 0o644)
    seconds = 2 if kind == "hangs" else 20
    with mac(build(tmp_path / "right"), str(program), probe_seconds=seconds) as machine:
        names = machine.tools("read-only")
    assert not names & OF_PROGRAMS
    assert "read_file" in names


def findings(machine: Mac, mode: str) -> dict[str, tuple[str, str]]:
    """What `doctor` says of each thing: how it stands, and the details."""
    said = json.loads(machine.run(mode, "doctor", "--json").stdout)
    return {each["what"]: (each["standing"], each["detail"]) for each in said["findings"]}


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
def test_doctor_says_what_is_enforced_and_by_what(machine: Mac, mode: str) -> None:
    said = findings(machine, mode)
    assert said["commands"][0] == "holds"
    assert "Seatbelt" in said["commands"][1]
    assert said["the server's own process"][0] == "holds"


def test_doctor_names_the_probe_that_failed_and_what_it_saw(tmp_path: Path) -> None:
    wrong = build(tmp_path / "stand-in", "the network is used")
    with mac(build(tmp_path / "right"), wrong.program) as machine:
        standing, detail = findings(machine, "workspace-write")["commands"]
    assert standing == "missing"
    assert "a socket that listens on this machine cannot be reached" in detail
    assert "a connection came" in detail


@pytest.mark.parametrize(
    ("mutation", "why"),
    [
        ("everything is allowed", "cannot be confined here"),
        ("files are written everywhere", "cannot be confined here"),
        ("an operation is misspelt", "unbound variable"),
    ],
)
def test_a_server_that_cannot_confine_itself_does_not_start(tmp_path: Path, mutation: str, why: str) -> None:
    right, wrong = build(tmp_path / "right"), build(tmp_path / "wrong", mutation)
    with mac(right, compiler=wrong.program) as machine:
        done = machine.run("read-only", "call", "read_file", '{"path": "file.txt"}')
        assert (done.returncode, why in done.stderr, done.stdout) == (2, True, "")
        assert wrong.has_mutated


def test_a_server_without_libsandbox_does_not_start(tmp_path: Path) -> None:
    with mac(build(tmp_path / "right"), library="") as machine:
        done = machine.run("read-only", "call", "read_file", '{"path": "file.txt"}')
    assert (done.returncode, "sandbox_init" in done.stderr, done.stdout) == (2, True, "")
