"""A flood by one client does not starve another."""

from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolserver.pipeline.dispatcher import PARALLEL_READS, READS_OF_ONE
from mcp_toolserver.pipeline.fair_semaphore import FairSemaphore
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.tool_spec import Limits
from tests.support.workbench import Args, Output, Person, Runtime, dispatcher, machine, tool

FLOOD = 101


async def test_places_go_round_by_client_and_not_by_call() -> None:
    turns = FairSemaphore(slots=1, per_client=1)
    holders: list[str] = []
    ends = [anyio.Event() for _ in range(8)]

    async def work(client: str) -> None:
        async with turns.slot(client):
            holders.append(client)
            await ends[len(holders) - 1].wait()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for client in "aaaaabbc":
                tasks.start_soon(work, client)
                await anyio.wait_all_tasks_blocked()
            for end in ends:
                end.set()
                await anyio.wait_all_tasks_blocked()
    assert "".join(holders) == "aabcabaa"
    assert turns.clients == 0


async def test_who_leaves_just_when_it_is_their_turn_lets_the_next_one_in() -> None:
    turns = FairSemaphore(slots=1, per_client=1)
    await turns.acquire("a")
    scope = anyio.CancelScope()

    async def leave() -> None:
        with scope:
            async with turns.slot("b"):
                raise AssertionError

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            turns.release("a")
        async with turns.slot("c"):
            assert turns.clients == 1


@settings(max_examples=50)
@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(("ask", "end", "leave")))))
def test_no_place_is_lost_or_given_twice(steps: list[tuple[str, str]]) -> None:
    anyio.run(_through, steps)


async def _through(steps: list[tuple[str, str]]) -> None:
    turns = FairSemaphore(slots=2, per_client=1)
    held: list[str] = []
    most = 0

    async def work(client: str, scope: anyio.CancelScope, end: anyio.Event) -> None:
        nonlocal most
        with scope:
            async with turns.slot(client):
                held.append(client)
                most = max(most, len(held))
                assert len(set(held)) == len(held)
                try:
                    await end.wait()
                finally:
                    held.remove(client)

    calls: dict[str, list[tuple[anyio.CancelScope, anyio.Event]]] = {"a": [], "b": [], "c": []}
    async with anyio.create_task_group() as tasks:
        for client, step in steps:
            if step == "ask":
                calls[client].append((anyio.CancelScope(), anyio.Event()))
                tasks.start_soon(work, client, *calls[client][-1])
            elif calls[client]:
                # The first may hold a place; the last one waits, if there are two.
                scope, end = calls[client].pop(0 if step == "end" else -1)
                end.set() if step == "end" else scope.cancel()
            # Not until all is settled: what happens at once is where a place could be lost.
            await anyio.lowlevel.checkpoint()
        for _, end in (call for found in calls.values() for call in found):
            end.set()
    assert most <= 2
    assert turns.clients == 0
    with anyio.fail_after(5):
        async with turns.slot("a"), turns.slot("b"):
            pass


class Work:
    """A tool whose calls run until they are let go."""

    def __init__(self) -> None:
        self.running = 0
        self.end = anyio.Event()

    async def run(self, _: Args, __: Runtime) -> Output:
        self.running += 1
        await self.end.wait()
        return Output("done")


async def quick(_: Args, __: Runtime) -> Output:
    return Output("quick")


def serial(entry: Entry) -> Entry:
    return Entry(replace(entry.spec, serial=True), toolset="tests")


@pytest.mark.requirement("SW-41")
async def test_a_read_overtakes_a_flood_of_calls_that_do_not_end(tmp_path: Path) -> None:
    work = Work()
    at = dispatcher(machine(tmp_path), tool(work.run, name="slow"), tool(quick))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(FLOOD):
                tasks.start_soon(at.call, "slow", {}, Person(name="flood"))
            await anyio.wait_all_tasks_blocked()
            assert work.running == READS_OF_ONE < PARALLEL_READS
            assert (await at.call("probe", {}, Person(name="other"))).text == "quick"
            tasks.cancel_scope.cancel()


async def test_the_deadline_of_a_call_starts_when_it_runs(tmp_path: Path) -> None:
    work = Work()
    at = dispatcher(machine(tmp_path), tool(work.run, name="slow"), tool(quick, limits=Limits(deadline=0.05)))
    answers: list[str] = []

    async def probe() -> None:
        answers.append((await at.call("probe", {}, Person())).text)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(READS_OF_ONE):
                tasks.start_soon(at.call, "slow", {}, Person())
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(probe)
            await anyio.sleep(0.2)
            assert answers == []
            work.end.set()
    assert answers == ["quick"]


@pytest.mark.parametrize("places", [1, READS_OF_ONE])
async def test_a_call_whose_turn_does_not_come_says_that_the_server_is_busy(
    tmp_path: Path, places: int
) -> None:
    work = Work()
    entry = serial(tool(work.run)) if places == 1 else tool(work.run)
    at = replace(dispatcher(machine(tmp_path), entry), queue_seconds=0.01)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(places):
                tasks.start_soon(at.call, "probe", {}, Person())
            await anyio.wait_all_tasks_blocked()
            refused = await at.call("probe", {}, Person())
            assert refused.error == "unavailable"
            assert "busy" in refused.text
            assert work.running == places
            work.end.set()
        assert (await at.call("probe", {}, Person())).text == "done"


async def test_serial_calls_run_one_at_a_time_and_hold_no_place_of_the_reads_meanwhile(
    tmp_path: Path,
) -> None:
    work, free = Work(), Work()
    entries = serial(tool(work.run, name="one")), tool(free.run, name="many")
    at = dispatcher(machine(tmp_path), *entries)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(at.call, "one", {}, Person())
            await anyio.wait_all_tasks_blocked()
            assert work.running == 1
            for _ in range(READS_OF_ONE):
                tasks.start_soon(at.call, "many", {}, Person())
            await anyio.wait_all_tasks_blocked()
            assert free.running == READS_OF_ONE - 1
            work.end.set()
            free.end.set()
    assert work.running == 3
