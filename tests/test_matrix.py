"""What a client is promised beyond plain calls: on every transport, in every era, by the real server.

Tasks, which only clients of the stateless era know, are in `test_tasks_served.py`.
"""

import secrets
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as mcp
import pytest
import pytest_asyncio
from mcp import Client
from mcp.shared.subscriptions import ResourcesListChanged

from tests.live import ERAS, TRANSPORTS, Kept, Setup, text
from tests.processes import PATIENCE, arguments, processes, until

pytestmark = [
    pytest.mark.uncounted,
    pytest.mark.asyncio(loop_scope="module"),
    # Every server here is started once, if one process of the test runner has all these tests.
    pytest.mark.xdist_group("test_matrix"),
]


@dataclass
class User:
    """Answers whatever is asked with blue, and remembers the questions and the notifications."""

    asked: list[str] = field(default_factory=list[str])
    notifications: list[object] = field(default_factory=list[object])

    async def hear(self, message: object) -> None:
        self.notifications.append(message)

    async def __call__(self, _: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        self.asked.append(params.message)
        return mcp.ElicitResult(action="accept", content={"answer_1": "blue"})


async def elicits(client: Client, user: User) -> None:
    user.asked.clear()
    question = {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}
    answer = await client.call_tool("AskUserQuestion", {"questions": [question]})
    assert "blue" in text(answer)
    assert len(user.asked) == 1


async def reports_progress(client: Client, _: User) -> None:
    heard: list[str | None] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    await client.call_tool("Sleep", {"duration_ms": 1}, progress_callback=listen)
    assert heard == ["slept 0 of 0.001 s"]


async def cancels(client: Client, _: User) -> None:
    # As a number of seconds, it is a word that `sleep` takes.
    marker = f"0.{secrets.randbelow(10**12):012}"

    def runs() -> bool:
        return any({"sleep", marker} <= set(arguments(pid)) for pid in processes())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "bash", {"command": f"sleep 300 {marker}"})
        await until(runs)
        tasks.cancel_scope.cancel()
    await until(lambda: not runs())
    assert "again" in text(await client.call_tool("bash", {"command": "echo again"}))


async def reads_what_was_cut(client: Client, _: User) -> None:
    answer = await client.call_tool("bash", {"command": "seq 100000"})
    (link,) = [block for block in answer.content if isinstance(block, mcp.ResourceLink)]
    (whole,) = (await client.read_resource(link.uri)).contents
    assert isinstance(whole, mcp.TextResourceContents)
    assert whole.text.split() == [str(number) for number in range(1, 100_001)]
    assert whole.text not in text(answer)


async def tells_of_a_changed_list(client: Client, user: User) -> None:
    async def change() -> None:
        await client.call_tool("bash", {"command": "seq 100000"})

    if client.protocol_version == "2026-07-28":
        async with client.listen(resources_list_changed=True) as events:
            await change()
            with anyio.fail_after(PATIENCE):
                assert await anext(aiter(events)) == ResourcesListChanged()
        return
    user.notifications.clear()
    with anyio.fail_after(PATIENCE):
        # Nobody gets a notification sent before the client has opened its stream.
        while not any(
            isinstance(message, mcp.ResourceListChangedNotification) for message in user.notifications
        ):
            await change()
            await anyio.sleep(0.01)


PROMISES: Mapping[str, Callable[[Client, User], Awaitable[None]]] = {
    "elicit": elicits,
    "progress": reports_progress,
    "cancel": cancels,
    "list-changed": tells_of_a_changed_list,
    "resource-read-of-a-truncated-output": reads_what_was_cut,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept() -> AsyncGenerator[Kept]:
    made = Kept()
    yield made
    await made.aclose()


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    return Setup.below(tmp_path_factory.mktemp("matrix"))


@pytest.fixture(scope="module")
def users() -> defaultdict[tuple[str, str], User]:
    """By transport and era, because a client asks the same person for as long as it is there."""
    return defaultdict(User)


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_promise_is_kept(
    transport: str,
    era: str,
    promise: str,
    setup: Setup,
    kept: Kept,
    users: Mapping[tuple[str, str], User],
) -> None:
    user = users[transport, era]
    client = await kept.client(setup, transport, era, elicitation_callback=user, message_handler=user.hear)
    assert (client.protocol_version == "2026-07-28") == (era == "auto")
    await PROMISES[promise](client, user)
