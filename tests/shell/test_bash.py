import json
import re
from collections.abc import AsyncGenerator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.validation import about
from mcp_toolserver.runtime.processes.commands import CommandLimits
from mcp_toolserver.text.shell.words import CommandPattern
from mcp_toolserver.tools.shell.bash import TOOL as BASH
from tests.support.cases import table
from tests.support.processes import call, served

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bash") / "root"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(root: Path) -> AsyncGenerator[Dispatcher]:
    async with served(root.parent) as made:
        yield made


@pytest.fixture
def mark(root: Path) -> Path:
    """What `touch mark` leaves in the root."""
    (root / "mark").unlink(missing_ok=True)
    return root / "mark"


async def test_the_end_of_a_command_is_said(server: Dispatcher) -> None:
    texts = {
        "true": "(no output)",
        "echo no; exit 3": "no\n[exit status 3]",
        "printf no; exit 3": "no\n[exit status 3]",
        "false": "(no output)\n[exit status 1]",
        "kill -TERM $$": "(no output)\n[exit status 143]",
    }
    for command, text in texts.items():
        result = await call(server, "bash", command=command)
        assert (result.error, result.text) == (None, text)


async def test_a_timeout_is_a_result_with_what_was_printed(server: Dispatcher) -> None:
    result = await call(server, "bash", command="echo begun; sleep 100", timeout=300)
    assert result.error is None
    assert re.fullmatch(r"begun\n\[killed after \d+\.\d s: timeout \(\d+ ms; .*\)\]", result.text)


@pytest.mark.requirement("GR-25")
async def test_it_runs_in_the_root_or_a_folder_in_it(server: Dispatcher, root: Path) -> None:
    (root / "sub").mkdir()
    assert (await call(server, "bash", command="cd sub; x=1")).error is None
    assert (await call(server, "bash", command="pwd -P; echo $x")).text == f"{root}\n\n"
    assert (await call(server, "bash", command="pwd -P", cwd="sub")).text == f"{root}/sub\n"


async def test_it_does_not_start_outside_or_where_no_folder_is(
    server: Dispatcher, root: Path, mark: Path
) -> None:
    (root / "file").touch()
    (root / "out").symlink_to("/")
    for cwd in ("..", "/", "missing", "file", "out"):
        result = await call(server, "bash", command=f"touch {mark}", cwd=cwd)
        assert result.error in ("denied", "not_found", "invalid_input"), cwd
        assert not mark.exists()
    assert (await call(server, "bash", command="touch mark")).error is None
    assert mark.exists()


@pytest.mark.requirement("SW-62", "GR-53")
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


async def test_notes_survive_output_that_is_longer_when_it_is_escaped(server: Dispatcher) -> None:
    for byte in ("\\0", "\\33", "\\377"):
        script = f"head -c 28000 /dev/zero | tr '\\0' '{byte}'; exit 3"
        result = await call(server, "bash", command=script)
        assert result.text.endswith("[exit status 3]")
        assert result.truncated
        assert len(result.text.encode()) < 31_000


@pytest.mark.requirement("SW-61")
async def test_a_long_call_moves_to_the_background_and_goes_on_within_its_time(tmp_path: Path) -> None:
    async with served(tmp_path, CommandLimits(foreground_seconds=0.3)) as server:

        async def ended(moved: str, offset: int) -> str:
            (task,) = set(re.findall(r"bg_[0-9a-f]{6}", moved))
            # One call waits no longer than the 0.3 s.
            while "[running for" in (
                text := (await call(server, "TaskOutput", task_id=task, offset=offset)).text
            ):
                pass
            return text

        waits = "echo begun; until [ -e go ]; do sleep 0.01; done; echo done"
        moved = (await call(server, "bash", command=waits)).text
        assert moved.startswith("begun\n[running for ")
        assert "offset 6" in moved
        (tmp_path / "root/go").touch()
        assert (await ended(moved, 6)).startswith("done\n[exit status 0")
        moved = (await call(server, "bash", command="sleep 100", timeout=600)).text
        assert "timeout" in await ended(moved, 0)


@pytest.mark.requirement("SW-63")
async def test_only_a_background_command_has_no_limit_of_time(server: Dispatcher) -> None:
    bounded = await call(server, "bash", command="sleep 100", run_in_background=True, timeout=200)
    free = await call(server, "bash", command="sleep 100", run_in_background=True)
    handles = [re.findall(r"bg_[0-9a-f]{6}", result.text)[0] for result in (bounded, free)]
    ended = await call(server, "TaskOutput", task_id=handles[0], wait_ms=10_000)
    assert "timeout" in ended.text
    assert "running" in (await call(server, "TaskOutput", task_id=handles[1], until="now")).text
    # Each says how to go on.
    assert all("TaskOutput" in result.text and "TaskStop" in result.text for result in (bounded, free))


async def test_other_names_keep_their_units(server: Dispatcher) -> None:
    for name, timeout in (("Bash", 300), ("shell", 0.3)):
        result = await call(server, name, command="sleep 100", timeout=timeout)
        assert "timeout" in result.text, name
    assert (await call(server, "Bash", command="echo hi", description="Say hi")).text == "hi\n"


@pytest.mark.requirement("SW-60")
async def test_no_argument_chooses_the_sandbox_and_the_answer_says_so(server: Dispatcher) -> None:
    for name in ("dangerouslyDisableSandbox", "dangerously_disable_sandbox", "isolateNetwork"):
        sent: dict[str, Any] = {name: True}
        result = await call(server, "bash", command="echo hi", **sent)
        assert result.text == f"hi\n[{name} was ignored: only the operator of the server chooses the sandbox]"
    assert (await call(server, "bash", command="echo hi", dangerouslyDisableSandbox=False)).text == "hi\n"


async def test_a_command_reads_what_comes_with_the_call(server: Dispatcher) -> None:
    for text in ("ä\n" * 40_000, "'$x' no line end"):
        result = await call(server, "shell", command="sha256sum", stdin=text)
        assert result.text == f"{sha256(text.encode()).hexdigest()}  -\n"
    both = await call(server, "bash", command="cat", stdin="x", run_in_background=True, open_stdin=True)
    assert both.error == "invalid_input"
    # A shell would run it, so rules see it as they see a command.
    seen = about(BASH, BASH.args.model_validate({"command": "sh", "stdin": "ls; rm x"}))
    assert any(map(CommandPattern("rm x").matches, seen))


@pytest.mark.requirement("SW-59", "SW-61")
async def test_what_makes_no_sense_is_refused(server: Dispatcher) -> None:
    no_sense: list[dict[str, Any]] = [
        {},
        {"command": ""},
        {"command": "x" * 100_001},
        {"command": "true", "timeout": -1},
        {"command": "true", "timeout": "soon"},
        {"command": "true", "sandbox": "off"},
        {"command": "tr\0ue"},
    ]
    for name, too_much in (("bash", 600_001), ("shell", 601)):
        for arguments in no_sense:
            assert (await call(server, name, **arguments)).error == "invalid_input", arguments
        longest = await call(server, name, command="true", timeout=too_much)
        assert "[a timeout of 600000 ms is the longest" in longest.text


async def test_a_command_is_shown_as_on_a_terminal_with_what_its_end_undoes(server: Dispatcher) -> None:
    for name, printed, escaped in table(Path(__file__).with_name("command_output.txt"), "printed"):
        shown = json.loads(f'"{escaped}"')
        result = await call(server, "bash", command=f"printf '{printed}'")
        assert result.text.rstrip("\n") == shown.rstrip("\n"), name
        started = await call(server, "bash", command=f"printf '{printed}'", run_in_background=True)
        (task,) = set(re.findall(r"bg_[0-9a-f]{6}", started.text))
        followed = await call(server, "TaskOutput", task_id=task, offset=0, until="end")
        assert followed.text.startswith(shown.rstrip("\n")), name
    # Collapsing a progress bar takes time in proportion to its length.
    megabyte = "head -c 1000000 /dev/zero | tr '\\0' '\\r'; echo; head -c 9000 /dev/zero | tr '\\0' x"
    assert (await call(server, "bash", command=megabyte)).text.endswith("x" * 9_000)
    undone = await call(server, "bash", command="sleep 100 & cd /tmp")
    assert "`sleep 100` was stopped" in undone.text
    assert "`cwd`" in undone.text
