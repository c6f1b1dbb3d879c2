"""Paths that clients give are followed where a file system that does not answer stops nobody else."""

import ctypes
import os
import threading
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

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


@contextmanager
def hung_mount(folder: Path) -> Generator[None]:
    """A FUSE file system on `folder` that nobody serves: who looks into it waits until the context ends.

    Skips the test where this machine lets nobody mount one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error}")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other"
    try:
        if libc.mount(b"test", str(folder).encode(), b"fuse", 0, options.encode()):
            pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            libc.umount2(str(folder).encode(), _DETACH)
    finally:
        # Now everybody who waits gets an error.
        os.close(server)


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

    async def read(self, client: str) -> None:
        await self.lookups.read(client, 1, self.work)


async def test_hung_reads_of_one_client_on_one_file_system_leave_room_for_others() -> None:
    lookups = PathLookups()
    hung = Hung(lookups)
    try:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(THREADS_OF_ONE + 3):
                    tasks.start_soon(hung.read, "one")
                while hung.began < THREADS_OF_ONE:
                    await anyio.sleep(0.001)
                assert await lookups.read("one", 2, lambda: "found") == "found"
                assert await lookups.read("other", 1, lambda: "found") == "found"
                assert hung.began == THREADS_OF_ONE
                hung.go.set()
            assert hung.began == THREADS_OF_ONE + 3
    finally:
        hung.go.set()


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


async def test_a_path_on_a_file_system_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    host = replace(machine(tmp_path), lookups=PathLookups(seconds=0.2))
    place = tmp_path / "root/mount"
    place.mkdir()
    areas = ClientRestrictions(named="x", areas=({f"{place}/sub": True},))
    with hung_mount(place), anyio.fail_after(10):
        for path, person in (
            (f"{place}/f", Person()),
            ("f", Person(works_in=[f"{place}/sub"])),
            ("f", Person(confines_itself_to=areas)),
        ):
            result = await dispatcher(host).call("read_file", {"path": path}, person)
            assert result.error == "timed_out"
            assert "does not answer" in result.text


async def test_a_hung_mount_of_one_client_stops_no_other(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path)
    mount = setup.root / "mount"
    for folder in (mount, setup.root / "own"):
        folder.mkdir()
    (setup.root / "own/f").write_text("content\n", encoding="utf-8")
    stuck_calls = (
        *(("read_file", {"path": "mount/f"}) for _ in range(THREADS_OF_ONE + 4)),
        ("grep_search", {"pattern": "x", "path": "mount/f"}),
        ("grep_search", {"pattern": "x", "path": "mount"}),
        ("bash", {"command": "cat f", "cwd": "mount"}),
        ("git_status", {"path": "mount"}),
    )
    answers, answered = list[str](), anyio.Event()

    async def roots(_: object) -> mcp.ListRootsResult:
        return mcp.ListRootsResult(roots=[mcp.Root(uri=FileUrl(f"file://{mount}/sub"))])

    async with AsyncExitStack() as stack:
        url = stack.enter_context(serving(setup, "http"))
        stack.enter_context(hung_mount(mount))
        lost, stuck, other = [
            await stack.enter_async_context(
                connected_to(url, "http", mode="legacy", list_roots_callback=callback)
            )
            for callback in (roots, None, None)
        ]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    answers.append(text(await lost.call_tool("read_file", {"path": "own/f"})))
                    answered.set()

                tasks.start_soon(read)
                for name, arguments in stuck_calls:
                    tasks.start_soon(stuck.call_tool, name, arguments)
                for _ in range(3):
                    assert "content" in text(await other.call_tool("read_file", {"path": "own/f"}))
                    await lost.send_ping()
                    await stuck.list_tools()
                assert answers == []
                found = await other.call_tool("grep_search", {"pattern": "con", "path": "own"})
                assert "own/f" in text(found)
                await answered.wait()
                tasks.cancel_scope.cancel()
    assert "does not answer" in answers[0]


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
