"""Long results: private, unguessable, bounded, and gone when the server is. No call fails for them."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp_types import ResourceLink

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.errors import NotFound
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import candidates
from mcp_toolserver.stores.disk import MIB
from mcp_toolserver.stores.saved_outputs import OWNERS, OutputLimits, OutputStore
from tests.protocol.resource_clients import refusal
from tests.stores.test_audit import RECORDED
from tests.support.live import Setup, connected, text
from tests.support.processes import call, python
from tests.support.workshop import workshop


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "made/when/needed"


@pytest.fixture
def outputs(state: Path) -> Iterator[OutputStore]:
    outputs = OutputStore(str(state))
    yield outputs
    outputs.close()


def sessions(state: Path) -> set[str]:
    return set(os.listdir(state / "sessions"))


async def test_nothing_is_created_before_the_first_use(outputs: OutputStore, tmp_path: Path) -> None:
    assert outputs.folder("me") is None
    with pytest.raises(NotFound):
        await outputs.read("0" * 32, "me", 10)
    outputs.close()
    assert os.listdir(tmp_path) == []


async def test_a_text_is_kept_whole_and_read_back_by_its_handle_only(
    outputs: OutputStore, tmp_path: Path
) -> None:
    saved = await outputs.save("é\nlast", "me")
    assert saved.size == 7
    assert Path(saved.path).read_text(encoding="utf-8") == "é\nlast"
    wrong = ("", "0" * 32, "../lock", "0" * 31 + "G", "0" * 33, f"../outputs/{'0' * 32}")
    for handle, limit in ((saved.handle, 6), *((one, 100) for one in wrong)):
        with pytest.raises(NotFound):
            await outputs.read(handle, "me", limit)
    assert await outputs.read(saved.handle, "me", 7) == "é\nlast".encode()
    # A link in its place is not followed.
    (tmp_path / "secret").write_bytes(b"secret")
    Path(saved.path).unlink()
    Path(saved.path).symlink_to(tmp_path / "secret")
    with pytest.raises(NotFound):
        await outputs.read(saved.handle, "me", 100)


async def test_everything_is_private_and_every_name_unguessable(outputs: OutputStore, state: Path) -> None:
    umask = os.umask(0)
    try:
        first, second = await outputs.save("one", "me"), await outputs.save("two", "me")
    finally:
        os.umask(umask)
    assert first.handle != second.handle
    assert len(bytes.fromhex(first.handle)) == 16
    folder = Path(first.path).parent
    assert outputs.folder("me") == str(folder)
    assert len(bytes.fromhex(folder.name)) == 16
    assert len(bytes.fromhex(folder.parent.parent.name)) == 16
    for path in (folder, folder.parent, folder.parent.parent, state / "sessions"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (Path(first.path), folder.parent.parent / "lock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_stream_can_be_read_while_it_is_written(outputs: OutputStore) -> None:
    saved = outputs.create("me")
    saved.append(b"first ")
    assert await outputs.read(saved.handle, "me", 100) == b"first "
    saved.append(b"second")
    assert saved.read(6, 100) == b"second"
    saved.close()
    assert Path(saved.path).read_bytes() == b"first second"


@pytest.mark.requirement("GR-49")
async def test_closing_removes_everything_of_this_session_only(state: Path, outputs: OutputStore) -> None:
    other = OutputStore(str(state))
    mine, theirs = await outputs.save("mine", "me"), await other.save("theirs", "me")
    outputs.close()
    assert not Path(mine.path).exists()
    assert await other.read(theirs.handle, "me", 100) == b"theirs"
    assert outputs.folder("me") is None
    with pytest.raises(NotFound):
        await outputs.read(mine.handle, "me", 100)
    with pytest.raises(OSError, match="closed"):
        await outputs.save("more", "me")
    outputs.close()
    other.close()
    assert sessions(state) == set()


SERVER = """
import anyio, sys, time
from mcp_toolserver.stores.saved_outputs import OutputStore

outputs = OutputStore(sys.argv[1])
print(anyio.run(outputs.save, "text", "me").path, flush=True)
time.sleep(60)
"""


async def test_what_a_killed_server_left_is_removed_by_the_next_one(
    state: Path, outputs: OutputStore
) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER, str(state)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        left = Path(server.stdout.readline().decode().strip())
        living = OutputStore(str(state))
        await living.save("a server that starts meanwhile", "me")
        assert left.exists()
        server.send_signal(signal.SIGKILL)
    assert left.exists()
    await outputs.save("the next server", "me")
    assert not left.exists()
    assert len(sessions(state)) == 2
    living.close()


async def test_sweeping_removes_only_abandoned_sessions(
    state: Path, outputs: OutputStore, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "lock").touch()
    folder = state / "sessions"
    folder.mkdir(parents=True, mode=0o755)
    (folder / ("1" * 32)).symlink_to(outside)
    for name in ("2" * 32, "notes", f".new-{'3' * 32}", f".new-{'4' * 32}"):
        (folder / name).mkdir()
    (folder / ("2" * 32) / "link").symlink_to(outside)
    (folder / "file").touch()
    os.utime(folder / f".new-{'3' * 32}", (0, 0))
    await outputs.save("text", "me")
    assert sessions(state) >= {"1" * 32, "notes", f".new-{'4' * 32}", "file"}
    assert not sessions(state) & {"2" * 32, f".new-{'3' * 32}"}
    assert (outside / "lock").exists()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("place", ["", "sessions"])
async def test_a_state_folder_that_is_a_link_or_of_somebody_else_is_refused(
    state: Path, outputs: OutputStore, tmp_path: Path, place: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (state / place).parent.mkdir(parents=True, exist_ok=True)
    (state / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="link"):
        await outputs.save("text", "me")
    assert os.listdir(tmp_path / "elsewhere") == []
    (state / place).unlink()
    (state / "sessions").mkdir(parents=True)
    mine, other = os.geteuid(), 65534
    if mine == 0:
        os.chown(state / place, other, other)
    refused = outputs if mine == 0 else OutputStore("/usr")  # only root can give a folder away
    with pytest.raises(PermissionError, match="another user"):
        await refused.save("text", "me")
    os.chown(state / place, mine, -1)
    assert (await outputs.save("text", "me")).size == 4


async def test_parallel_first_uses_share_one_session(state: Path, outputs: OutputStore) -> None:
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(outputs.save, str(number), "me")
    assert len(sessions(state)) == 1
    folder = outputs.folder("me")
    assert folder is not None
    assert len(os.listdir(folder)) == 10


def saved(state: Path) -> list[Path]:
    return sorted((state / "sessions").glob("*/outputs/*/*.txt"))


async def test_a_call_whose_long_answer_cannot_be_saved_has_succeeded(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a").write_text("".join(f"{number}\n" for number in range(100_000)), encoding="utf-8")
    (tmp_path / "state").mkdir(mode=0o700)
    sessions = tmp_path / "state/sessions"
    sessions.touch()
    async with workshop(tmp_path, disk_reserve=2**24) as server:
        cut = await call(server, "grep_search", pattern="[0-9]", output_mode="content", head_limit=0)
        ran = await call(server, "bash", command="seq 100000")
        sessions.unlink()
        reserved = await call(server, "bash", command="seq 100000")
    for result, starts, why in (
        (cut, "a:1:0\n", "the state folder"),
        (ran, "1\n2\n", "the state folder"),
        (reserved, "1\n2\n", "less than 16777216 MiB would stay free"),
    ):
        assert result.error is None
        assert result.text.startswith(starts)
        assert f"could not be saved, because {why}" in result.text
    assert saved(tmp_path / "state") == []


def printing(size: int) -> str:
    return f"head -c {size} /dev/zero | tr '\\0' x"


async def test_the_oldest_outputs_make_room_for_new_ones(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("output-size = 1\n", encoding="utf-8")
    setup = Setup.below(tmp_path, "danger-full-access", "--config", str(config))
    state = setup.home / "state"
    async with connected(setup) as client:
        background = {"command": printing(900_000), "run_in_background": True}
        started = text(await client.call_tool("bash", background))
        job = next(word.strip(",;.]") for word in started.split() if word.startswith("bg_"))
        offset = {"task_id": job, "offset": 900_000, "wait_ms": 20_000}
        assert "exit status 0" in text(await client.call_tool("TaskOutput", offset))
        links: list[ResourceLink] = []
        for _ in range(3):
            cut = await client.call_tool("bash", {"command": printing(400_000)})
            links += [block for block in cut.content if isinstance(block, ResourceLink)]
        files = saved(state)
        assert {file.stem for file in files} == {link.uri.rpartition("/")[2] for link in links[1:]}
        assert sum(file.stat().st_size for file in files) <= MIB
        gone = await refusal(client, links[0].uri)
        assert "removed" in gone.error.message
        path = str(files[0]).replace(files[0].stem, links[0].uri.rpartition("/")[2])
        for tool, arguments, says in (
            ("read_file", {"path": path}, "no longer there. Saved outputs are removed"),
            # The output of an ended job made room too.
            ("TaskOutput", {"task_id": job, "offset": 0}, "was removed. Saved outputs are removed"),
        ):
            result = await client.call_tool(tool, arguments)
            assert (result.is_error, says in text(result)) == (True, True), text(result)
        # One command that prints without end stays within the bound.
        cut = await client.call_tool("bash", {"command": printing(20_000_000)})
        (file,) = saved(state)
        assert MIB - 8192 <= file.stat().st_size <= MIB
    assert not cut.is_error
    assert "the rest could not be saved, because saved outputs take 1 MiB at most" in text(cut)


async def test_an_output_that_fits_is_kept_for_so_long_after_it_was_written(tmp_path: Path) -> None:
    clock = [0.0]
    limits = OutputLimits(seconds=60, total=10_000)
    outputs = OutputStore(str(tmp_path / "state"), limits, now=lambda: clock[-1])
    with pytest.raises(OSError, match="at most"):
        await outputs.save("x" * 10_001, LOCAL)
    folder = outputs.folder(LOCAL)
    assert folder is not None
    assert os.listdir(folder) == [], "nothing is left behind"
    open_one = outputs.create(LOCAL)
    first = await outputs.save("first", LOCAL)
    clock.append(60)
    assert await outputs.read(first.handle, LOCAL, 10) == b"first"
    clock.append(61)
    with pytest.raises(NotFound, match="removed"):
        await outputs.read(first.handle, LOCAL, 10)
    assert not Path(first.path).exists()
    assert Path(open_one.path).exists()
    open_one.close()
    outputs.close()


async def test_only_so_many_owners_have_a_folder(tmp_path: Path) -> None:
    outputs = OutputStore(str(tmp_path / "state"))
    first = await outputs.save("x", "owner 0")
    for number in range(1, OWNERS + 1):
        await outputs.save("x", f"owner {number}")
    assert outputs.folder("owner 0") is None
    assert not Path(first.path).parent.exists()
    outputs.close()


CALLS = f"""
for place in sys.argv[1:]:
    sys.argv[1] = place
    exec({RECORDED!r})
    with open(folder / "state/filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass
    calls = [("write_file", {{"path": "a", "content": "x"}}, Person())] * 100
    results = [anyio.run(at.call, *one) for one in calls]
    audit.close()
    lines = sum(len(file.read_bytes().splitlines()) for file in (folder / "state/audit").glob("*.jsonl"))
    print(json.dumps([[result.error for result in results], lines, results[0].text]))
"""


def test_calls_go_on_and_are_recorded_when_something_else_fills_the_disk(tmp_path: Path) -> None:
    """The state folder is of a size that something else fills after the start of the server. Nothing runs
    where not even the log has room."""
    rows = ((16 << 20, None, 100, ""), (1 << 19, "unavailable", 0, "disk is full"))
    folders = [tmp_path / str(size) for size, *_ in rows]
    bwrap = next(path for path in candidates(os.environ.get("PATH", ""), ()) if Path(path).exists())
    sandbox = [bwrap, "--dev-bind", "/", "/"]
    for folder in folders:
        (folder / "state").mkdir(parents=True)
        sandbox += ["--size", folder.name, "--tmpfs", str(folder / "state")]
    command = [*sandbox, *python(CALLS, *map(str, folders))]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=True)
    for folder, (_, error, recorded, says), line in zip(folders, rows, done.stdout.splitlines(), strict=True):
        errors, lines, answer = json.loads(line)
        assert (errors, lines, says in answer) == ([error] * 100, recorded, True)
        assert (folder / "root/a").exists() == (error is None)
