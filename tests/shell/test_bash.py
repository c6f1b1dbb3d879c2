import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.policy.rules import RuleContext, parse
from mcp_toolserver.runtime.processes.commands import CommandLimits
from mcp_toolserver.runtime.processes.output_capture import CaptureLimits
from mcp_toolserver.text.shell.words import simple_parts
from tests.support.processes import call, served
from tests.support.workbench import Person


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Dispatcher]:
    async with served(tmp_path) as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


async def test_output_comes_as_it_was_printed(server: Dispatcher) -> None:
    result = await call(server, "bash", command="echo one; echo two >&2; echo three")
    assert (result.error, result.text, result.truncated) == (None, "one\ntwo\nthree\n", False)


async def test_no_output_is_said(server: Dispatcher) -> None:
    assert (await call(server, "bash", command="true")).text == "(no output)"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        pytest.param("echo no; exit 3", "no\n[exit status 3]", id="after a line"),
        pytest.param("printf no; exit 3", "no\n[exit status 3]", id="after half a line"),
        pytest.param("false", "(no output)\n[exit status 1]", id="without output"),
        pytest.param("kill -TERM $$", "(no output)\n[exit status 143]", id="signal"),
    ],
)
async def test_a_failed_command_is_a_result(server: Dispatcher, command: str, text: str) -> None:
    result = await call(server, "bash", command=command)
    assert (result.error, result.text) == (None, text)


async def test_a_timeout_is_a_result_with_what_was_printed(server: Dispatcher) -> None:
    result = await call(server, "bash", command="echo begun; sleep 100", timeout=300)
    assert result.error is None
    assert re.fullmatch(r"begun\n\[killed after \d+\.\d s: timeout \(\d+ ms; .*\)\]", result.text)


async def test_it_runs_in_the_root_or_a_folder_in_it(server: Dispatcher, root: Path) -> None:
    (root / "sub").mkdir()
    assert (await call(server, "bash", command="pwd -P")).text == f"{root}\n"
    assert (await call(server, "bash", command="pwd -P", cwd="sub")).text == f"{root}/sub\n"


@pytest.mark.parametrize("cwd", ["..", "/", "missing", "file", "out"])
async def test_it_does_not_start_outside_or_where_no_folder_is(
    server: Dispatcher, root: Path, cwd: str
) -> None:
    (root / "file").touch()
    (root / "out").symlink_to("/")
    result = await call(server, "bash", command="touch mark", cwd=cwd)
    assert result.error in ("denied", "not_found", "invalid_input")
    assert not (root / "mark").exists()
    assert (await call(server, "bash", command="touch mark")).error is None
    assert (root / "mark").exists()


async def test_long_output_shows_both_ends_and_where_the_whole_lies(server: Dispatcher) -> None:
    result = await call(server, "bash", command="for i in {1..60000}; do echo $i; done; exit 9")
    lines = result.text.splitlines()
    assert (lines[0], lines[-2], lines[-1]) == ("1", "60000", "[exit status 9]")
    found = re.search(r'\[(\d+) bytes left out; all of it: read_file, path "([^"]+)"\]', result.text)
    assert found is not None
    assert int(found[1]) == sum(len(f"{i}\n") for i in range(1, 60001)) - 29_000
    assert result.truncated
    assert result.saved_output is not None
    assert result.saved_output.path == found[2]
    assert Path(found[2]).read_text(encoding="utf-8").splitlines() == [str(i) for i in range(1, 60001)]


@pytest.mark.parametrize("byte", ["\\0", "\\33", "\\377"])
async def test_notes_survive_output_that_is_longer_when_it_is_escaped(server: Dispatcher, byte: str) -> None:
    script = f"head -c 28000 /dev/zero | tr '\\0' '{byte}'; exit 3"
    result = await call(server, "bash", command=script)
    assert result.text.endswith("[exit status 3]")
    assert result.truncated
    assert len(result.text.encode()) < 31_000


async def test_output_of_exactly_the_limit_is_whole(server: Dispatcher) -> None:
    result = await call(server, "bash", command="head -c 29000 /dev/zero | tr '\\0' x; exit 1")
    assert result.text == "x" * 29_000 + "\n[exit status 1]"
    assert not result.truncated
    assert (await call(server, "bash", command="head -c 29001 /dev/zero | tr '\\0' x")).truncated


async def test_a_file_that_does_not_hold_all_is_named_as_such(tmp_path: Path) -> None:
    limits = CommandLimits(capture=CaptureLimits(head=10, tail=10, file=100))
    async with served(tmp_path, limits) as server:
        result = await call(server, "bash", command="head -c 300 /dev/zero | tr '\\0' x")
    assert '[280 bytes left out; the first 100 bytes of it: read_file, path "' in result.text


async def test_a_background_command_says_how_to_go_on(server: Dispatcher) -> None:
    result = await call(server, "bash", command="sleep 100", run_in_background=True)
    assert result.error is None
    assert re.search(r"bg_[0-9a-f]{6}", result.text)
    assert "TaskOutput" in result.text
    assert "TaskStop" in result.text


async def test_a_long_call_moves_to_the_background_with_what_was_printed(tmp_path: Path) -> None:
    async with served(tmp_path, CommandLimits(foreground_seconds=0.3)) as server:
        result = await call(server, "bash", command="echo begun; sleep 100")
        assert result.text.startswith("begun\n[running for ")
        assert re.search(r"bg_[0-9a-f]{6}", result.text)
        assert "offset 6" in result.text


async def test_only_a_background_command_has_no_limit_of_time(server: Dispatcher) -> None:
    bounded = await call(server, "bash", command="sleep 100", run_in_background=True, timeout=200)
    free = await call(server, "bash", command="sleep 100", run_in_background=True)
    handles = [re.findall(r"bg_[0-9a-f]{6}", result.text)[0] for result in (bounded, free)]
    ended = await call(server, "TaskOutput", task_id=handles[0], wait_ms=10_000)
    assert "timeout" in ended.text
    assert "running" in (await call(server, "TaskOutput", task_id=handles[1], until="now")).text


async def test_progress_names_what_the_command_does(tmp_path: Path) -> None:
    person = Person()
    async with served(tmp_path, CommandLimits(progress_seconds=0.05)) as server:
        await call(server, "bash", person, command="sleep 0.5", description="Waiting for the build")
        await call(server, "bash", person, command="sleep 0.5")
    assert person.heard[0].startswith("Waiting for the build: running for ")
    assert person.heard[-1].startswith("running for ")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("Bash", {"timeout": 300}, id="Bash in milliseconds"),
        pytest.param("shell", {"timeout": 0.3}, id="shell in seconds"),
        pytest.param("shell", {"timeout": 1}, id="shell in whole seconds"),
    ],
)
async def test_other_names_keep_their_units(server: Dispatcher, name: str, arguments: dict[str, Any]) -> None:
    result = await call(server, name, command="sleep 100", **arguments)
    assert "timeout" in result.text
    assert (await call(server, name, command="echo hi", description="Say hi")).text == "hi\n"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({}, id="no command"),
        pytest.param({"command": ""}, id="empty command"),
        pytest.param({"command": "x" * 100_001}, id="endless command"),
        pytest.param({"command": "true", "timeout": -1}, id="no time"),
        pytest.param({"command": "true", "timeout": 600_001}, id="too much time"),
        pytest.param({"command": "true", "timeout": "soon"}, id="no number"),
        pytest.param({"command": "true", "dangerouslyDisableSandbox": True}, id="host configuration"),
        pytest.param({"command": "tr\0ue"}, id="NUL"),
    ],
)
@pytest.mark.parametrize("name", ["bash", "shell"])
async def test_what_makes_no_sense_is_refused(
    server: Dispatcher, name: str, arguments: dict[str, Any]
) -> None:
    arguments = (
        {**arguments, "timeout": 601}
        if arguments.get("timeout") == 600_001 and name == "shell"
        else arguments
    )
    assert (await call(server, name, **arguments)).error == "invalid_input"


@pytest.mark.parametrize("ceiling", [Permission.READ_ONLY, Permission.WORKSPACE_WRITE])
async def test_below_full_access_it_is_neither_offered_nor_run(
    server: Dispatcher, ceiling: Permission, root: Path
) -> None:
    low = replace(server, policy=replace(server.policy, ceiling=ceiling, granted=ceiling))
    result = await call(low, "bash", command="touch mark")
    assert result.error == "denied"
    assert "danger-full-access" in result.text
    assert "bash" not in [entry.spec.name for entry in low.listed()]
    assert not (root / "mark").exists()
    assert (await call(server, "bash", command="touch mark")).error is None


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        pytest.param("git status", ["git status"], id="one"),
        pytest.param("git status; rm -rf /", ["git status", "rm -rf /"], id="semicolon"),
        pytest.param("a && b || c", ["a", "b", "c"], id="and, or"),
        pytest.param("a & b\nc\r\nd", ["a", "b", "c", "d"], id="background and lines"),
        pytest.param("cat x|sh", ["cat x", "sh"], id="pipe"),
        pytest.param("echo $(rm x)", ["echo", "rm x"], id="substitution"),
        pytest.param("echo `rm x`", ["echo", "rm x"], id="backticks"),
        pytest.param("diff <(rm x) y", ["diff", "rm x", "y"], id="process substitution"),
        pytest.param("{ rm x; }", ["rm x"], id="group"),
        pytest.param("sh -c 'ls; rm x'", ["sh -c 'ls", "rm x'"], id="quoted script"),
        pytest.param("if true; then rm x; fi", ["if true", "true", "then rm x", "rm x", "fi"], id="keywords"),
        pytest.param("A=1 B='2 3' rm x", ["A=1 B='2 3' rm x", "rm x"], id="assignments"),
        pytest.param("! time rm x", ["! time rm x", "rm x"], id="words before"),
        pytest.param("echo hi>/etc/x", ["echo hi", "/etc/x"], id="redirection"),
    ],
)
def test_rules_see_every_part_of_a_command(command: str, parts: list[str]) -> None:
    assert list(simple_parts(command)) == list(dict.fromkeys([command, *parts]))


@given(
    st.lists(st.sampled_from(["rm x", "echo", ";", "|", "&&", "\n", "$(", ")", "`", "'", '"', " ", "A=1 "]))
)
def test_no_chaining_hides_a_command(pieces: list[str]) -> None:
    command = "".join(pieces)
    found = simple_parts(f"{command};rm -rf /;{command}")
    assert "rm -rf /" in found
    assert all(part == part.strip() and part for part in simple_parts(command))


async def test_a_deny_rule_sees_a_chained_command(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        words = RuleContext(canonical=lambda name: name, commands=frozenset({"bash"}))
        ruled = replace(server, policy=replace(server.policy, deny=(parse("bash(touch:*)", words),)))
        result = await call(ruled, "bash", command="echo ok && touch mark")
        assert result.error == "denied"
        assert not (tmp_path / "root" / "mark").exists()
        assert (await call(ruled, "bash", command="echo ok")).text == "ok\n"
