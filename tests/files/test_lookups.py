"""Paths that clients give are followed where a file system that does not answer stops nobody else."""

import ctypes
import errno
import os
import stat
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from select import select

import anyio
import mcp_types as mcp
import pytest
from pydantic import FileUrl

from mcp_toolserver.errors import TimedOut
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.runtime.files.lookups import THREADS_OF_ONE, PathLookups
from tests.support.live import Setup, connected_to, serving, text
from tests.support.workbench import Person, dispatcher, machine
from tests.support.workshop import granted

_DETACH = 2

_FOLDER, _FILE = 1, 2
"""The folder that is mounted, and the file `f` in it."""

_SECONDS = 60
"""How long the kernel may keep an answer."""


class _Operation:
    """Numbers of linux/fuse.h."""

    LOOKUP, FORGET, GETATTR, OPEN, INIT, INTERRUPT, FORGET_MANY = 1, 2, 3, 14, 26, 36, 42
    OPENDIR, READDIR, RELEASEDIR = 27, 28, 29


_UNANSWERED = (
    _Operation.OPEN,
    # The kernel wants no answer to these.
    *(_Operation.FORGET, _Operation.INTERRUPT, _Operation.FORGET_MANY),
)


@contextmanager
def hung_mount(folder: Path, *, answers_look_ups: bool = False) -> Generator[None]:
    """A FUSE file system on `folder` that nobody serves: who looks into it waits until the context ends.

    With `answers_look_ups` it has the file `f`, which no list of the folder names, and only who opens that
    waits.

    Skips the test where this machine lets nobody mount one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error}")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other"
    end, ended = os.pipe()
    thread = threading.Thread(target=_answer_look_ups, args=(server, end))
    try:
        if libc.mount(b"test", str(folder).encode(), b"fuse", 0, options.encode()):
            pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
        if answers_look_ups:
            thread.start()
        try:
            yield
        finally:
            libc.umount2(str(folder).encode(), _DETACH)
    finally:
        os.close(ended)
        if answers_look_ups:
            thread.join()
        os.close(end)
        # Now everybody who waits gets an error.
        os.close(server)


def _answer_look_ups(server: int, end: int) -> None:
    while server in select([server, end], [], [])[0]:
        try:
            request = os.read(server, 1 << 18)
        except OSError:
            # It is no longer mounted.
            return
        operation, unique, node = struct.unpack_from("=4xIQQ", request)
        if operation in _UNANSWERED:
            continue
        error, body = _answer(operation, node, request[40:].rstrip(b"\0"))
        # Who asked may have given up.
        with suppress(OSError):
            os.write(server, struct.pack("=IiQ", 16 + len(body), -error, unique) + body)


def _answer(operation: int, node: int, name: bytes) -> tuple[int, bytes]:
    match operation:
        case _Operation.LOOKUP if name != b"f":
            return errno.ENOENT, b""
        case _Operation.LOOKUP:
            return 0, struct.pack("=QQQQII", _FILE, 0, _SECONDS, _SECONDS, 0, 0) + _attributes(_FILE)
        case _Operation.GETATTR:
            return 0, struct.pack("=QII", _SECONDS, 0, 0) + _attributes(node)
        case _Operation.INIT:
            return 0, struct.pack("=IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 16, 12, 1 << 16, 1, 1, 0, 0)
        case _Operation.OPENDIR:
            return 0, struct.pack("=QII", 0, 0, 0)
        case _Operation.READDIR | _Operation.RELEASEDIR:
            return 0, b""
        case _:
            return errno.ENOSYS, b""


def _attributes(node: int) -> bytes:
    mode = stat.S_IFDIR | 0o755 if node == _FOLDER else stat.S_IFREG | 0o644
    return struct.pack("=6Q10I", node, 8, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


class Hung:
    """Look-ups that do not end until they are let go."""

    def __init__(self, lookups: PathLookups) -> None:
        self.lookups = lookups
        self.go = threading.Event()
        self.began = 0
        self.refused = 0

    def work(self) -> str:
        self.began += 1
        assert self.go.wait(10)
        return "found"

    async def run(self, client: str) -> None:
        try:
            await self.lookups.run(client, self.work)
        except TimedOut:
            self.refused += 1


async def test_hung_look_ups_of_one_client_leave_room_for_others_and_count_until_they_end() -> None:
    lookups = PathLookups(seconds=0.2)
    hung = Hung(lookups)
    try:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(THREADS_OF_ONE + 3):
                    tasks.start_soon(hung.run, "one")
            assert hung.began == THREADS_OF_ONE
            assert hung.refused == THREADS_OF_ONE + 3
            assert await lookups.run("other", lambda: "found") == "found"
            with pytest.raises(TimedOut):
                await lookups.run("one", lambda: "found")
            assert lookups._semaphore.clients == 1
            hung.go.set()
            while lookups._semaphore.clients:
                await anyio.sleep(0.01)
            assert await lookups.run("one", lambda: "found") == "found"
    finally:
        hung.go.set()


async def test_a_look_up_that_is_cancelled_before_it_begins_gives_its_place_back() -> None:
    lookups = PathLookups()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await lookups.run("one", lambda: "found")
    assert scope.cancelled_caught
    assert lookups._semaphore.clients == 0


async def test_an_error_of_a_look_up_is_the_callers() -> None:
    def fail() -> str:
        raise OSError("no such place")

    lookups = PathLookups()
    with pytest.raises(OSError, match="no such place"):
        await lookups.run("one", fail)
    with anyio.fail_after(5):
        while lookups._semaphore.clients:
            await anyio.sleep(0.001)


@pytest.mark.parametrize("given", ["path", "roots", "policy"])
async def test_a_path_on_a_file_system_that_does_not_answer_is_an_error(given: str, tmp_path: Path) -> None:
    host = replace(machine(tmp_path), lookups=PathLookups(seconds=0.2))
    place = tmp_path / "root/mount"
    place.mkdir()
    person = Person()
    if given == "roots":
        person.works_in = [f"{place}/sub"]
    elif given == "policy":
        person.confines_itself_to = ClientRestrictions(named="x", areas=({f"{place}/sub": True},))
    path = f"{place}/f" if given == "path" else "f"
    with hung_mount(place), anyio.fail_after(10):
        result = await dispatcher(host).call("read_file", {"path": path}, person)
    assert result.error == "timed_out"
    assert "does not answer" in result.text


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Path, str]]:
    """The root of a server that tests share, and its address."""
    setup = Setup.below(tmp_path_factory.mktemp("served"))
    (setup.root / "f").write_text("content\n", encoding="utf-8")
    with serving(setup, "http") as url:
        yield setup.root, url


@pytest.mark.xdist_group("served")
async def test_a_hung_mount_of_one_client_stops_no_other(served: tuple[Path, str], tmp_path: Path) -> None:
    _, url = served
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    answers: list[str] = []

    async def roots(_: object) -> mcp.ListRootsResult:
        return mcp.ListRootsResult(roots=[mcp.Root(uri=FileUrl(f"file://{elsewhere}/sub"))])

    with hung_mount(elsewhere):
        with anyio.fail_after(30):
            async with (
                connected_to(url, "http", mode="legacy", list_roots_callback=roots) as stuck,
                connected_to(url, "http", mode="legacy") as other,
                anyio.create_task_group() as tasks,
            ):

                async def read() -> None:
                    answers.append(text(await stuck.call_tool("read_file", {"path": "f"})))

                tasks.start_soon(read)
                for _ in range(3):
                    assert "content" in text(await other.call_tool("read_file", {"path": "f"}))
                    await stuck.send_ping()
                assert answers == []
    assert "does not answer" in answers[0]


@pytest.mark.xdist_group("served")
async def test_opening_and_reading_what_does_not_answer_stops_no_other(served: tuple[Path, str]) -> None:
    root, url = served
    mount = root / "mount"
    mount.mkdir()
    (root / "own").mkdir()
    (root / "own/f").write_text("content\n", encoding="utf-8")
    stuck_calls = (
        *(("read_file", {"path": "mount/f"}) for _ in range(THREADS_OF_ONE + 4)),
        ("grep_search", {"pattern": "x", "path": "mount/f"}),
        ("grep_search", {"pattern": "x", "path": "mount"}),
        ("bash", {"command": "cat f", "cwd": "mount"}),
        ("git_status", {"path": "mount"}),
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(hung_mount(mount, answers_look_ups=True))
        stuck, other = [await stack.enter_async_context(connected_to(url, "http")) for _ in "12"]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for name, arguments in stuck_calls:
                    tasks.start_soon(stuck.call_tool, name, arguments)
                for _ in range(3):
                    assert "content" in text(await other.call_tool("read_file", {"path": "own/f"}))
                    found = await other.call_tool("grep_search", {"pattern": "con", "path": "own"})
                    assert "own/f" in text(found)
                    await stuck.list_tools()
                tasks.cancel_scope.cancel()


async def test_a_client_computes_one_thing_at_a_time_and_leaves_others_room(tmp_path: Path) -> None:
    """Heavy documents of one client, for all of which Python runs one thread at a time."""
    host = machine(tmp_path)

    async def compute(owner: str, work: Callable[[], str]) -> str:
        return await granted(dispatcher(host.owned_by(owner))).compute(work)

    hung = Hung(host.lookups)
    try:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(compute, "one", hung.work)
                while not hung.began:
                    await anyio.sleep(0.001)
                assert await compute("other", lambda: "found") == "found"
                assert hung.began == 1
                hung.go.set()
            assert hung.began == 3
    finally:
        hung.go.set()
