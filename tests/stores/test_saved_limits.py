"""What is saved is bounded, and saving never makes a failure of a call or keeps calls from being recorded."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mcp_types import ResourceLink

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.errors import NotFound
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import candidates
from mcp_toolserver.stores.disk_space import MIB
from mcp_toolserver.stores.saved_outputs import OWNERS, OutputLimits, OutputStore
from tests.protocol.resource_clients import refusal
from tests.support.live import Setup, connected, text
from tests.support.processes import python


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "root").mkdir()
    return Setup(root=tmp_path / "root", home=tmp_path, mode="workspace-write")


def configured(setup: Setup, **settings: int) -> Setup:
    config = setup.home / "config.toml"
    lines = (f"{name.replace('_', '-')} = {value}\n" for name, value in settings.items())
    config.write_text("".join(lines), encoding="utf-8")
    return replace(setup, flags=("--config", str(config)))


def saved(setup: Setup) -> list[Path]:
    return sorted((setup.home / "state/sessions").glob("*/outputs/*/*.txt"))


# --- a call that succeeded, and what could not be saved of it --------------------------------------------


async def test_a_call_whose_long_answer_cannot_be_saved_has_succeeded(setup: Setup) -> None:
    (setup.root / "a").write_text("".join(f"{number}\n" for number in range(100_000)), encoding="utf-8")
    (setup.home / "state").mkdir(mode=0o700)
    (setup.home / "state/sessions").touch()
    async with connected(setup) as client:
        found = {"pattern": "[0-9]", "output_mode": "content", "head_limit": 0}
        cut = await client.call_tool("grep_search", found)
        ran = await client.call_tool("bash", {"command": "seq 100000"})
    assert not cut.is_error
    assert text(cut).startswith("a:1:0\n")
    assert "could not be saved, because the state folder" in text(cut)
    assert not ran.is_error
    assert text(ran).startswith("1\n2\n")
    assert "could not be saved, because the state folder" in text(ran)


async def test_nothing_is_saved_that_would_touch_the_reserve(setup: Setup) -> None:
    async with connected(configured(setup, disk_reserve=2**24)) as client:
        ran = await client.call_tool("bash", {"command": "seq 100000"})
    assert not ran.is_error
    assert "could not be saved, because less than 16777216 MiB would stay free" in text(ran)
    assert saved(setup) == []


# --- bounds ----------------------------------------------------------------------------------------------


async def test_the_oldest_outputs_make_room_for_new_ones(setup: Setup) -> None:
    async with connected(configured(setup, output_size=1)) as client:
        links: list[ResourceLink] = []
        for _ in range(3):
            cut = await client.call_tool("bash", {"command": "head -c 400000 /dev/zero | tr '\\0' x"})
            links += [block for block in cut.content if isinstance(block, ResourceLink)]
        files = saved(setup)
        assert {file.stem for file in files} == {link.uri.rpartition("/")[2] for link in links[1:]}
        assert sum(file.stat().st_size for file in files) <= MIB
        gone = await refusal(client, links[0].uri)
        assert "removed" in gone.error.message
        path = str(files[0]).replace(files[0].stem, links[0].uri.rpartition("/")[2])
        read = await client.call_tool("read_file", {"path": path})
        assert read.is_error
        assert "no longer there. Saved outputs are removed" in text(read)


async def test_one_command_that_prints_without_end_stays_within_the_bound(setup: Setup) -> None:
    async with connected(configured(setup, output_size=1)) as client:
        cut = await client.call_tool("bash", {"command": "head -c 20000000 /dev/zero | tr '\\0' x"})
        (file,) = saved(setup)
        assert MIB - 8192 <= file.stat().st_size <= MIB
    assert not cut.is_error
    assert "the rest could not be saved, because saved outputs take 1 MiB at most" in text(cut)


async def test_the_output_of_an_ended_job_may_make_room_too(setup: Setup) -> None:
    async with connected(configured(setup, output_size=1)) as client:
        started = text(
            await client.call_tool(
                "bash", {"command": "head -c 900000 /dev/zero | tr '\\0' x", "run_in_background": True}
            )
        )
        job = next(word.strip(",;.]") for word in started.split() if word.startswith("bg_"))
        offset = {"task_id": job, "offset": 900_000, "wait_ms": 20_000}
        assert "exit status 0" in text(await client.call_tool("TaskOutput", offset))
        await client.call_tool("bash", {"command": "head -c 900000 /dev/zero | tr '\\0' x"})
        result = await client.call_tool("TaskOutput", {"task_id": job})
    assert result.is_error
    assert "was removed. Saved outputs are removed" in text(result)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def stored(folder: Path, clock: Callable[[], float], **bounds: int) -> OutputStore:
    return OutputStore(str(folder / "state"), OutputLimits(**bounds), now=clock)


async def test_an_output_is_kept_for_so_long_after_it_was_written(tmp_path: Path, clock: Clock) -> None:
    outputs = stored(tmp_path, clock, seconds=60)
    open_one = outputs.create(LOCAL)
    first = await outputs.save("first", LOCAL)
    clock.seconds = 60
    assert await outputs.read(first.handle, LOCAL, 10) == b"first"
    clock.seconds = 61
    with pytest.raises(NotFound, match="removed"):
        await outputs.read(first.handle, LOCAL, 10)
    assert not Path(first.path).exists()
    assert Path(open_one.path).exists()
    open_one.close()
    outputs.close()


async def test_a_text_that_does_not_fit_leaves_nothing_behind(tmp_path: Path, clock: Clock) -> None:
    outputs = stored(tmp_path, clock, total=10_000)
    with pytest.raises(OSError, match="at most"):
        await outputs.save("x" * 10_001, LOCAL)
    folder = outputs.folder(LOCAL)
    assert folder is not None
    assert os.listdir(folder) == []
    assert (await outputs.save("x" * 5_000, LOCAL)).size == 5_000
    outputs.close()


async def test_only_so_many_owners_have_a_folder(tmp_path: Path, clock: Clock) -> None:
    outputs = stored(tmp_path, clock)
    first = await outputs.save("x", "owner 0")
    for number in range(1, OWNERS + 1):
        await outputs.save("x", f"owner {number}")
    assert outputs.folder("owner 0") is None
    assert not Path(first.path).parent.exists()
    outputs.close()


# --- the audit log ---------------------------------------------------------------------------------------

FULL = """
import anyio, json, os
from pathlib import Path
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.stores.audit_log import AuditLog
from mcp_toolserver.stores.audit_entry import AuditContext
from tests.support.workbench import Person, dispatcher, machine
from dataclasses import replace
folder = Path(sys.argv[1])
audit = AuditLog.open(str(folder / "state"), AuditContext(mode="x", layers={}))
at = replace(dispatcher(machine(folder), ceiling=Permission.WORKSPACE_WRITE), recorder=audit)
with open(folder / "state/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
results = [anyio.run(at.call, "write_file", {"path": "a", "content": "x"}, Person()) for _ in range(100)]
audit.close()
lines = sum(len(file.read_bytes().splitlines()) for file in (folder / "state/audit").glob("*.jsonl"))
print(json.dumps([[result.error for result in results], lines]))
"""


def test_calls_go_on_and_are_recorded_when_something_else_fills_the_disk(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    bwrap = next(path for path in candidates(os.environ.get("PATH", ""), ()) if Path(path).exists())
    sandbox = [bwrap, "--dev-bind", "/", "/", "--size", str(16 << 20), "--tmpfs", str(tmp_path / "state")]
    command = [*sandbox, *python(FULL, str(tmp_path))]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert json.loads(done.stdout) == [[None] * 100, 100]
