"""What killed servers and supervisors leave behind is removed by the next start; what is in use never is."""

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.stores.disk import remove_tree
from mcp_toolserver.stores.running_servers import RunningServer, oldest_start, sweep
from tests.support.http_server import INITIALIZE
from tests.support.live import Setup, connected
from tests.support.processes import python, until

WRITER = """
import os, signal
from mcp_toolserver.runtime.files.transaction import temp_file
from mcp_toolserver.stores.running_servers import RunningServer
server = RunningServer(sys.argv[1])
folder = os.open(sys.argv[2], os.O_RDONLY)
with temp_file(folder, b"new", None, recording=server) as name:
    print(name, flush=True)
    signal.pause()
"""

SUPERVISOR = """
import signal
from mcp_toolserver.runtime.sandbox.broker.temp_folder import scratch
with scratch(sys.argv[1]) as path:
    print(path, flush=True)
    signal.pause()
"""


@contextmanager
def holding(script: str, *arguments: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A process that has said one line, and waits to be killed."""
    with subprocess.Popen(python(script, *arguments), stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "root/inner").mkdir(parents=True)
    return Setup(root=tmp_path / "root", home=tmp_path, mode="workspace-write")


def killed(setup: Setup, folder: Path) -> Path:
    """A temporary file in `folder` whose server was killed."""
    with holding(WRITER, str(setup.home / "state"), str(folder)) as (_, name):
        assert (folder / name).exists()
    assert (folder / name).exists()
    return folder / name


def unrecorded(folder: Path) -> Path:
    """A file of the user's that looks like one of ours."""
    path = folder / f".mcp-toolserver-{secrets.token_hex(16)}.tmp"
    path.write_text("mine", encoding="utf-8")
    os.utime(path, (0, 0))
    return path


KILLED_BEFORE_THE_RENAME = """
import os, signal, sys
rename = os.rename
def killed(source, *rest, **more):
    if str(source).startswith(".mcp-toolserver-"):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, *rest, **more)
os.rename = killed
from mcp_toolserver.__main__ import main
main()
"""


def killed_while_it_wrote(setup: Setup) -> Path:
    """The temporary file of a server that was killed before it replaced `f`."""
    (setup.root / "f").write_text("old", encoding="utf-8")
    params = {"name": "write_file", "arguments": {"path": "f", "content": "new", "overwrite": True}}
    messages = [
        INITIALIZE,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
    ]
    program, _, _, *flags = setup.command
    with subprocess.Popen(
        [program, "-c", KILLED_BEFORE_THE_RENAME, *flags],
        env=setup.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    ) as server:
        assert server.stdin is not None
        server.stdin.writelines(json.dumps(message) + "\n" for message in messages)
        # Open until the end: what writes is cancelled when its input ends.
        server.stdin.flush()
        assert server.wait(timeout=60) == -signal.SIGKILL
    (left,) = setup.root.glob(".mcp-toolserver-*.tmp")
    assert left.read_text(encoding="utf-8") == "new"
    return left


async def test_a_temporary_file_of_a_killed_server_is_removed_by_the_next(setup: Setup) -> None:
    """Neither a file of the user's, nor one of a server that runs, nor one outside the roots.

    A server in read-only removes scratch folders of the dead, and nothing from the workspace."""
    inner, elsewhere, state = setup.root / "inner", setup.home / "elsewhere", str(setup.home / "state")
    elsewhere.mkdir()
    left, away, mine = killed_while_it_wrote(setup), killed(setup, elsewhere), unrecorded(inner)
    with holding(WRITER, state, str(inner)) as (_, writing), holding(SUPERVISOR, state) as (_, living):
        with holding(SUPERVISOR, state) as (_, dead):
            (Path(dead) / "left").write_text("x", encoding="utf-8")
        async with connected(replace(setup, mode="read-only")):
            # What it does remove is removed after what it does not.
            await until(lambda: not Path(dead).exists())
            assert Path(living).exists()
            assert left.exists()
        async with connected(setup) as client:
            await until(lambda: not left.exists())
            assert (setup.root / "f").read_text(encoding="utf-8") == "old"
            await client.call_tool("write_file", {"path": "inner/a", "content": "x"})
        assert sorted(os.listdir(inner)) == sorted([mine.name, writing, "a"])
    assert away.exists()
    async with connected(replace(setup, mode="danger-full-access", flags=("--root", str(elsewhere)))):
        await until(lambda: not away.exists() and not (inner / writing).exists())
    assert os.listdir(setup.home / "state/running") == []


def test_a_folder_that_was_replaced_keeps_its_files(setup: Setup) -> None:
    left = killed(setup, setup.root / "inner")
    (setup.root / "inner").rename(setup.root / "moved")
    (setup.root / "inner").mkdir()
    (setup.root / "inner" / left.name).write_text("mine", encoding="utf-8")
    records = str(setup.home / "state/running")
    assert sweep(records, Workspace([str(setup.root)]).open_inside) == 0
    assert left.exists()
    assert os.listdir(records) == []


def test_a_folder_that_became_a_link_out_of_the_root_is_left_alone(setup: Setup) -> None:
    left = killed(setup, setup.root / "inner")
    (setup.root / "inner").rename(setup.home / "moved")
    (setup.root / "inner").symlink_to(setup.home / "moved")
    assert sweep(str(setup.home / "state/running"), Workspace([str(setup.root)]).open_inside) == 0
    assert left.exists()


def test_a_record_that_is_damaged_removes_nothing(setup: Setup) -> None:
    records = setup.home / "state/running"
    records.mkdir(parents=True, mode=0o700)
    mine = unrecorded(setup.root)
    for content in (b"", b"\0", b"a\0b\0c\0d", b"../x\0" + b"1\0" * 9, os.urandom(10_000)):
        (records / f"1-{secrets.token_hex(16)}").write_bytes(content)
    (records / "notes").touch()
    assert sweep(str(records), Workspace([str(setup.root)]).open_inside) == 0
    assert os.listdir(records) == ["notes"]
    assert mine.exists()


def test_writes_at_the_same_time_have_a_place_each_on_the_record(setup: Setup) -> None:
    server = RunningServer(str(setup.home / "state"))
    folder = os.open(setup.root, os.O_RDONLY)
    names = [f".mcp-toolserver-{secrets.token_hex(16)}.tmp" for _ in range(3)]
    with server.temporary(folder, names[0]), server.temporary(folder, names[1]):
        pass
    with server.temporary(folder, names[2]):
        (record,) = (setup.home / "state/running").iterdir()
        content = record.read_bytes()
        assert names[2].encode() in content
        assert oldest_start(server.folder) == int(server.started)
        server.close()
        assert record.exists()
    server.close()
    assert not record.exists()
    os.close(folder)


def quarantined(setup: Setup, days: float, size: int = 0) -> Path:
    """Something that was put into quarantine so many days ago."""
    folder = setup.home / "state/quarantine" / secrets.token_hex(4)
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/.envrc").write_bytes(bytes(size))
    moment = time.time() - days * 86400
    os.utime(folder, (moment, moment))
    return folder


@pytest.fixture
def unused_cache(setup: Setup) -> Generator[Path]:
    """A package cache, deeper than a path may be long, that nobody used for more than a week."""
    cache = setup.home / "state/caches" / secrets.token_hex(8)
    (cache / "files").mkdir(parents=True)
    folder = os.open(cache / "files", os.O_PATH)
    for _ in range(2_100):
        os.mkdir("d", dir_fd=folder)
        above, folder = folder, os.open("d", os.O_PATH, dir_fd=folder)
        os.close(above)
    os.close(folder)
    week = time.time() - 8 * 86400
    os.utime(cache, (week, week))
    yield cache
    # If the test failed: pytest removes no folder of that depth, and all later runs would fail.
    remove_tree(str(cache))


async def test_at_a_start_the_quarantine_is_bounded_and_a_cache_that_nobody_used_for_long_is_removed(
    setup: Setup, unused_cache: Path
) -> None:
    """But for what was quarantined since another server started that runs. A server in read-only changes no
    permissions, and removes what needs none."""
    config = setup.home / "config.toml"
    config.write_text("quarantine-size = 1\nquarantine-days = 10\n", encoding="utf-8")
    flagged = replace(setup, flags=("--config", str(config)))
    old, large, small = quarantined(setup, 11), quarantined(setup, 5, 900_000), quarantined(setup, 4, 900_000)
    async with connected(replace(flagged, mode="read-only")):
        await until(lambda: not any(map(Path.exists, (old, large, unused_cache))), 60)
    locked = quarantined(setup, 11)
    (locked / "sub").chmod(0)
    async with connected(flagged):
        await until(lambda: not locked.exists())
        assert small.exists()
        new = quarantined(setup, -0.001, 2_000_000)
        async with connected(flagged):
            await until(lambda: not small.exists())
            assert new.exists()
