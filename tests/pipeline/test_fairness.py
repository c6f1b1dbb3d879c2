"""A flood by one client does not starve another."""

from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolserver.pipeline.dispatcher import PARALLEL_READS, READS_OF_ONE
from mcp_toolserver.pipeline.fair_semaphore import FairSemaphore, Overdue
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.tool_spec import Limits
from tests.search.searching import searcher
from tests.support.workbench import Args, Output, Person, Runtime, dispatcher, machine, tool

FLOOD = 101


class Asked:
    """Calls for places, and who got them."""

    def __init__(self, turns: FairSemaphore) -> None:
        self.turns = turns
        self.ends: list[tuple[str, anyio.Event]] = []
        """Those that hold a place, in the order in which they got it."""

    @property
    def order(self) -> str:
        return "".join(client for client, _ in self.ends)

    async def work(self, client: str) -> None:
        async with self.turns.slot(client):
            end = anyio.Event()
            self.ends.append((client, end))
            await end.wait()


async def test_places_go_round_by_client_and_not_by_call() -> None:
    asked = Asked(FairSemaphore(slots=1, per_client=1))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for client in "aaaaabbc":
                tasks.start_soon(asked.work, client)
                await anyio.wait_all_tasks_blocked()
            for number in range(8):
                asked.ends[number][1].set()
                await anyio.wait_all_tasks_blocked()
    assert asked.order == "aabcabaa"
    assert asked.turns.clients == 0


async def test_one_client_never_holds_all_places() -> None:
    asked = Asked(FairSemaphore(slots=3, per_client=2))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for client in "aaaaab":
                tasks.start_soon(asked.work, client)
                await anyio.wait_all_tasks_blocked()
            assert asked.order == "aab"
            tasks.cancel_scope.cancel()
    assert asked.turns.clients == 0


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


async def test_a_turn_that_does_not_come_in_time_takes_no_place() -> None:
    turns = FairSemaphore(slots=1, per_client=1)
    with anyio.fail_after(5):
        async with turns.slot("a"):
            with pytest.raises(Overdue):
                await turns.acquire("a", 0.01)
        assert turns.clients == 0
        async with turns.slot("a", 0.01):
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


async def test_a_read_overtakes_a_flood_of_calls_that_do_not_end(tmp_path: Path) -> None:
    running = 0

    async def stay(_: Args, __: Runtime) -> Output:
        nonlocal running
        running += 1
        await anyio.sleep_forever()
        raise AssertionError

    async def read(_: Args, __: Runtime) -> Output:
        return Output("read")

    at = dispatcher(machine(tmp_path), tool(stay, name="slow"), tool(read, name="quick"))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(FLOOD):
                tasks.start_soon(at.call, "slow", {}, Person(name="flood"))
            await anyio.wait_all_tasks_blocked()
            assert running == READS_OF_ONE < PARALLEL_READS
            assert (await at.call("quick", {}, Person(name="other"))).text == "read"
            tasks.cancel_scope.cancel()


async def test_a_read_waits_for_few_of_a_flood_of_searches(tmp_path: Path, search_broker: Broker) -> None:
    at = searcher(tmp_path, search_broker)
    for number in range(50):
        (tmp_path / "root" / f"{number}.txt").write_text("needle\n" * 200, encoding="utf-8")
    ended: list[str] = []

    async def search(client: str) -> None:
        result = await at.call("grep_search", {"pattern": "needle"}, Person(name=client))
        assert result.error is None
        ended.append(client)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(FLOOD):
                tasks.start_soon(search, "flood")
            while not ended:
                await anyio.lowlevel.checkpoint()
            before = len(ended)
            await search("other")
            assert ended.index("other") - before <= 2 * PARALLEL_READS
    assert len(ended) == FLOOD + 1


class Work:
    """A tool whose calls run until they are let go."""

    def __init__(self) -> None:
        self.running = 0
        self.end = anyio.Event()

    async def run(self, _: Args, __: Runtime) -> Output:
        self.running += 1
        await self.end.wait()
        return Output("done")


async def test_the_deadline_of_a_call_starts_when_it_runs(tmp_path: Path) -> None:
    work = Work()

    async def quick(_: Args, __: Runtime) -> Output:
        return Output("quick")

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


@pytest.mark.parametrize("serial", [True, False])
async def test_a_call_whose_turn_does_not_come_says_that_the_server_is_busy(
    tmp_path: Path, serial: bool
) -> None:
    work = Work()
    entry = tool(work.run)
    at = dispatcher(machine(tmp_path), Entry(replace(entry.spec, serial=serial), toolset="tests"))
    at = replace(at, queue_seconds=0.01)
    places = 1 if serial else READS_OF_ONE
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
    entry = tool(work.run, name="one")
    at = dispatcher(
        machine(tmp_path),
        Entry(replace(entry.spec, serial=True), toolset="tests"),
        tool(free.run, name="many"),
    )
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
