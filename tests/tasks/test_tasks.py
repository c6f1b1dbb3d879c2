"""Background commands: their output by offset, how they are stopped, and MCP tasks of a later client."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.processes.commands import CommandLimits
from mcp_toolserver.runtime.processes.output_capture import CaptureLimits
from mcp_toolserver.stores.tasks import SHUT_DOWN
from tests.support.following import Follower, options, said
from tests.support.live import Setup, connected
from tests.support.processes import Daemons, call, served, until
from tests.support.workbench import Person
from tests.support.workshop import workshop


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Dispatcher]:
    async with served(tmp_path) as made:
        yield made


async def started(server: Dispatcher, command: str, **more: Any) -> str:
    """The id of a background command."""
    result = await call(server, "bash", command=command, run_in_background=True, **more)
    return re.findall(r"bg_[0-9a-f]{6}", result.text)[0]


async def finished(server: Dispatcher, task: str) -> None:
    """Returns when the command has ended."""
    offset = "0"
    while True:
        text = (await call(server, "TaskOutput", task_id=task, offset=int(offset), wait_ms=5000)).text
        if "[running" not in text:
            return
        offset = re.findall(r"next offset (\d+)", text)[0]


async def test_output_is_read_on_from_the_next_offset_by_any_name_and_without_waiting(
    server: Dispatcher, tmp_path: Path
) -> None:
    task = await started(server, "echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 3")
    first = await call(server, "TaskOutput", task_id=task, offset=0, until="output", wait_ms=10_000)
    assert re.fullmatch(r"one\n\[running for \d+\.\d s; next offset 4\]", first.text)
    (tmp_path / "root" / "go").touch()
    await finished(server, task)
    assert (
        await call(server, "TaskOutput", task_id=task, offset=4)
    ).text == "two\n[exit status 3; next offset 8]"
    assert (await call(server, "TaskOutput", task_id=task, offset=99)).text.startswith("[exit status 3;")
    task = await started(server, "sleep 100")
    for waiting in NOT_WAITING:
        assert "[running" in (await call(server, "TaskOutput", task_id=task, **waiting)).text
    for name, arguments in OTHER_NAMES.items():
        for argument in arguments:
            given: dict[str, Any] = {argument: task, **({"wait_ms": 0} if "Output" in name else {})}
            assert (await call(server, name, **given)).error is None, (name, argument)


async def test_one_call_waits_for_the_end_and_what_makes_no_sense_is_refused(server: Dispatcher) -> None:
    task = await started(server, "for i in {1..10}; do echo $i; sleep 0.05; done")
    said = await call(server, "TaskOutput", task_id=task)
    assert said.text.endswith("10\n[exit status 0; next offset 21]")
    await started(server, "sleep 100")
    for name in ("TaskOutput", "TaskStop"):
        for handle in ("bg_", "bg_" + "0" * 32, "../../etc/passwd"):
            assert (await call(server, name, task_id=handle)).error == "not_found", handle
    for wrong in ({}, {"task_id": "x", "offset": -1}, {"task_id": "x", "wait_ms": 600_001}):
        assert (await call(server, "TaskOutput", **wrong)).error == "invalid_input"
    task = await started(server, "echo bye; exit 3")
    await finished(server, task)
    stopped = await call(server, "TaskStop", task_id=task)
    assert (stopped.error, stopped.text) == (None, f"{task}: exit status 3; 4 bytes of output.")
    assert (await call(server, "TaskOutput", task_id=task, offset=0)).text.startswith("bye\n[exit status 3")


NOT_WAITING: tuple[dict[str, Any], ...] = (
    {"until": "now"}, {"block": False}, {"block": "false"}, {"wait_ms": 0}, {"timeout": 0},
)  # fmt: skip
OTHER_NAMES = {
    "TaskOutput": ("task_id", "id", "handle"),
    "BashOutput": ("bash_id",),
    "TaskStop": ("task_id", "shell_id"),
    "KillShell": ("shell_id",),
    "KillBash": ("shell_id",),
}


async def test_waiting_ends_in_time_for_the_client(tmp_path: Path) -> None:
    async with served(tmp_path, CommandLimits(foreground_seconds=0.1)) as server:
        task = await started(server, "sleep 100")
        for until in ("end", "output"):
            said = await call(server, "TaskOutput", task_id=task, until=until, wait_ms=600_000)
            assert said.text.startswith("[running")


async def test_new_output_and_then_silence_of_the_first_of_several_jobs_end_the_wait(
    server: Dispatcher, tmp_path: Path
) -> None:
    task = await started(server, "until [ -e go ]; do sleep 0.01; done; echo one; echo two; sleep 100")
    (tmp_path / "root" / "go").touch()
    said = await call(server, "TaskOutput", task_id=task, wait_ms=600_000)
    assert re.fullmatch(r"one\ntwo\n\[running for \d+\.\d s; next offset 8\]", said.text)
    assert (await call(server, "BashOutput", bash_id=task, wait_ms=600_000)).text.startswith("[running")
    assert (await call(server, "TaskOutput", task_id=task, offset=4)).text.startswith("two\n[running")
    silent, speaking, brief = [
        await started(server, one) for one in ("sleep 100", "echo x; sleep 100", "sleep 0.1")
    ]
    said = await call(server, "TaskOutput", task_id=f"{silent}, {speaking}", offset=0, wait_ms=600_000)
    assert re.fullmatch(rf"{silent}:\n\[running.*\]\n\n{speaking}:\nx\n\[running.*\]", said.text)
    ended = await call(server, "TaskOutput", task_id=[brief, brief], until="end", wait_ms=600_000)
    assert ended.text == "[exit status 0; next offset 0]"
    for wrong, error in ((f"{brief},bg_000000", "not_found"), (",", "invalid_input")):
        assert (await call(server, "TaskOutput", task_id=wrong)).error == error


async def test_a_message_is_a_line_of_the_input_and_does_not_wait_for_long(server: Dispatcher) -> None:
    script = 'read -r a; read -r b; echo "<$a><$b>"; cat; exit 3'
    task = await started(server, script, open_stdin=True)
    for message in ("one two", "\n", "rest"):
        assert (await call(server, "SendMessage", to=task, message=message)).text == f"Sent to {task}."
    assert (await call(server, "TaskOutput", task_id=task, wait_ms=600_000)).text.startswith(
        "<one two><>\nrest\n[r"
    )
    assert (
        await call(server, "SendMessage", to=task, message="x", person=Person(owner="b"))
    ).error == "not_found"
    await call(server, "SendMessage", to=task, message="\x04")
    assert "[exit status 3" in (await call(server, "TaskOutput", task_id=task, until="end")).text
    for other in (task, await started(server, "sleep 100")):
        assert (await call(server, "SendMessage", to=other, message="x")).error == "conflict"
    assert (await call(server, "bash", command="cat", open_stdin=True)).error == "invalid_input"
    task = await started(server, "sleep 100", open_stdin=True)
    errors = [(await call(server, "SendMessage", to=task, message="x" * 19_999)).error for _ in range(4)]
    assert errors == [None, None, None, "timed_out"]


async def test_hints_come_in_the_background_too_and_stopping_kills_all_that_was_started(
    server: Dispatcher,
) -> None:
    hint = "[no-such-program is not on the PATH of commands here"
    script = "no-such-program 2>&1 | cat"
    foreground = await call(server, "bash", command=script)
    task = await started(server, f"{script}; echo ended")
    await finished(server, task)
    background = await call(server, "TaskOutput", task_id=task, offset=0)
    after = await call(server, "TaskOutput", task_id=task, offset=background.text.index("ended"))
    assert foreground.text.count(hint) == background.text.count(hint) == 1
    assert hint not in after.text
    daemons = Daemons()
    task = await started(server, f"{daemons.script}sleep 100")
    await until(lambda: len(daemons.alive()) == 4)
    result = await call(server, "TaskStop", task_id=task)
    assert result.error is None
    assert re.fullmatch(rf"{task}: stopped after \d+\.\d s; 6 bytes of output\.", result.text)
    assert daemons.alive() == []
    assert (await call(server, "TaskOutput", task_id=task)).text.startswith("ready\n[stopped after ")


async def test_a_long_output_comes_in_pages_and_a_binary_one_fits_in_an_answer(server: Dispatcher) -> None:
    task = await started(server, "for i in {1..20000}; do echo $i; done")
    await finished(server, task)
    text, offset, cut = "", 0, True
    while cut:
        page = await call(server, "TaskOutput", task_id=task, offset=offset)
        body, _, last = page.text.rpartition("[")
        text, cut = text + (body if not page.truncated else body.removesuffix("\n")), page.truncated
        offset = int(re.findall(r"next offset (\d+)", last)[0])
        assert ("bytes follow" in last) is cut
    assert offset == len("".join(f"{i}\n" for i in range(1, 20001)))
    for byte in ("\\0", "\\377"):
        task = await started(server, f"head -c 100000 /dev/zero | tr '\\0' '{byte}'")
        await finished(server, task)
        result = await call(server, "TaskOutput", task_id=task, offset=0)
        assert result.text.endswith("next offset 4833; 95167 bytes follow]")
        assert len(result.text) < 30_000


async def test_a_gap_in_what_was_kept_is_named(tmp_path: Path) -> None:
    limits = CommandLimits(capture=CaptureLimits(head=10, tail=10, file=100))
    async with served(tmp_path, limits) as server:
        task = await started(server, "head -c 300 /dev/zero | tr '\\0' x")
        await finished(server, task)
        result = await call(server, "TaskOutput", task_id=task, offset=100)
    assert (
        result.text
        == f"[190 bytes from offset 100 were not kept]\n{'x' * 10}\n[exit status 0; next offset 300]"
    )


LONG = "echo begun; sleep 1.5; echo at the end"


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "root").mkdir()
    return Setup(root=tmp_path / "root", home=tmp_path, mode="danger-full-access")


async def test_the_next_server_on_stdio_knows_what_came_of_tasks(setup: Setup) -> None:
    daemons = Daemons()
    async with connected(setup, **options()) as connection:
        client = Follower(connection)
        done = await client.begun("bash", command=LONG)
        endless = await client.begun("bash", command=f"sleep {daemons.mark}")
        await client.ended(done)
    assert not daemons.alive()
    async with connected(setup, **options()) as connection:
        client = Follower(connection)
        assert "begun\nat the end" in said((await client.get(done))["result"])
        state = await client.get(endless)
        assert (state["status"], state["statusMessage"]) == ("cancelled", SHUT_DOWN)


async def test_what_rules_forbid_in_a_command_is_not_written_to_one(tmp_path: Path) -> None:
    async with workshop(tmp_path, deny=("bash(rm *)",)) as server:
        (tmp_path / "root/kept").touch()
        task = await started(server, "bash", open_stdin=True)
        refused = await call(server, "SendMessage", to=task, message="true; rm kept")
        assert (refused.error, "bash(rm *)" in refused.text) == ("denied", True)
        assert (await call(server, "SendMessage", to=task, message="ls")).error is None
        assert "kept" in (await call(server, "TaskOutput", task_id=task)).text
