"""Long results: private, unguessable, and gone when the server is."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from mcp_toolserver.errors import NotFound
from mcp_toolserver.stores.saved_outputs import OutputStore


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
