"""A flood by one client does not starve another."""

from collections.abc import Generator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolserver.dispatch import PARALLEL_READS, READS_OF_ONE
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.turns import Turns
from tests.searching import search_broker, searcher
from tests.workbench import Args, Output, Person, Runtime, dispatcher, machine, tool

FLOOD = 101


@pytest.fixture(scope="module")
def started() -> Generator[Broker]:
    with search_broker() as found:
        yield found


class Asked:
    """Calls for places, and who got them."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.ends: list[tuple[str, anyio.Event]] = []
        """Those that hold a place, in the order in which they got it."""

    @property
    def order(self) -> str:
        return "".join(client for client, _ in self.ends)

    async def work(self, client: str) -> None:
        async with self.turns.place(client):
            end = anyio.Event()
            self.ends.append((client, end))
            await end.wait()


async def test_places_go_round_by_client_and_not_by_call() -> None:
    asked = Asked(Turns(places=1, each=1))
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
    asked = Asked(Turns(places=3, each=2))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for client in "aaaaab":
                tasks.start_soon(asked.work, client)
                await anyio.wait_all_tasks_blocked()
            assert asked.order == "aab"
            tasks.cancel_scope.cancel()
    assert asked.turns.clients == 0


async def test_who_leaves_just_when_it_is_their_turn_lets_the_next_one_in() -> None:
    turns = Turns(places=1, each=1)
    await turns.take("a")
    scope = anyio.CancelScope()

    async def leave() -> None:
        with scope:
            async with turns.place("b"):
                raise AssertionError

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            turns.give_back("a")
        async with turns.place("c"):
            assert turns.clients == 1


@settings(max_examples=50)
@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(("ask", "end", "leave")))))
def test_no_place_is_lost_or_given_twice(steps: list[tuple[str, str]]) -> None:
    anyio.run(_through, steps)


async def _through(steps: list[tuple[str, str]]) -> None:
    turns = Turns(places=2, each=1)
    held: list[str] = []
    most = 0

    async def work(client: str, scope: anyio.CancelScope, end: anyio.Event) -> None:
        nonlocal most
        with scope:
            async with turns.place(client):
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
        async with turns.place("a"), turns.place("b"):
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


async def test_a_read_waits_for_few_of_a_flood_of_searches(tmp_path: Path, started: Broker) -> None:
    at = searcher(tmp_path, started)
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
