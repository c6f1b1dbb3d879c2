"""What a client is promised beyond plain calls: on every transport, in every era, by the real server.

Tasks, which only clients of the stateless era know, are in `test_tasks.py`, cancelling is in
`test_shutdown.py`.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent

from tests.protocol.resource_clients import background, listed, read
from tests.support.live import ERAS, TRANSPORTS, Setup, SharedServers, text

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # Every server here is started once, if one process of the test runner has all these tests.
    pytest.mark.xdist_group("test_matrix"),
]


MANY = 40
JOBS, TODOS, CONFIG = "toolserver://jobs", "toolserver://todos", "toolserver://config"


class Ear:
    """What a client hears of changes, in either era."""

    def __init__(self) -> None:
        self.heard: list[ServerEvent] = []
        self._news = anyio.Event()

    def take(self, event: ServerEvent) -> None:
        self.heard.append(event)
        self._news.set()
        self._news = anyio.Event()

    async def message(self, message: Any) -> None:
        """Take a notification of the handshake era."""
        if isinstance(message, mcp.ResourceListChangedNotification):
            self.take(ResourcesListChanged())
        elif isinstance(message, mcp.ResourceUpdatedNotification):
            self.take(ResourceUpdated(uri=message.params.uri))

    async def until(self, event: ServerEvent) -> None:
        """Wait, bounded, until `event` was heard; then forget everything."""
        with anyio.fail_after(20):
            while event not in self.heard:
                await self._news.wait()
        self.heard.clear()


@asynccontextmanager
async def listening(client: Client, ear: Ear, uris: Sequence[str]) -> AsyncGenerator[None]:
    """Hear of the list and of these resources, in the way of the era."""
    if client.protocol_version != "2026-07-28":
        for uri in uris:
            await client.subscribe_resource(uri)
        yield
        for uri in uris:
            await client.unsubscribe_resource(uri)
        return
    async with (
        client.listen(resources_list_changed=True, resource_subscriptions=uris) as stream,
        anyio.create_task_group() as tasks,
    ):
        assert stream.honored.resource_subscriptions == list(uris)

        async def hear() -> None:
            async for event in stream:
                ear.take(event)

        tasks.start_soon(hear)
        yield
        tasks.cancel_scope.cancel()


@dataclass
class User:
    """Answers whatever is asked with blue, and remembers the questions and the notifications."""

    asked: list[str] = field(default_factory=list[str])
    ear: Ear = field(default_factory=Ear)

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


async def reads_what_was_cut(client: Client, _: User) -> None:
    answer = await client.call_tool("bash", {"command": "seq 100000"})
    (link,) = [block for block in answer.content if isinstance(block, mcp.ResourceLink)]
    whole = await read(client, link.uri)
    assert whole.split() == [str(number) for number in range(1, 100_001)]
    assert whole not in text(answer)


async def announces_changes(client: Client, user: User) -> None:
    ear = user.ear
    ear.heard.clear()
    declared: Any = client.server_capabilities
    assert declared.resources == mcp.ResourcesCapability(subscribe=True, list_changed=True)
    assert declared.tools == mcp.ToolsCapability(list_changed=False)
    assert declared.prompts == mcp.PromptsCapability(list_changed=False)
    async with listening(client, ear, (JOBS, TODOS, CONFIG)):
        handle = await background(client, "read line; echo $line")
        await ear.until(ResourcesListChanged())
        assert f"{JOBS}/{handle}" in await listed(client)
        await client.call_tool("TodoWrite", {"todos": [{"content": "look"}]})
        await ear.until(ResourceUpdated(TODOS))
        assert "look" in await read(client, TODOS)
        await client.call_tool("Config", {"setting": "language", "value": "German"})
        await ear.until(ResourceUpdated(CONFIG))
        assert '"German"' in await read(client, CONFIG)
    handle = await background(client, "exec sleep 60")
    async with listening(client, ear, (JOBS, f"{JOBS}/{handle}")):
        ear.heard.clear()
        await client.call_tool("TaskStop", {"task_id": handle})
        await ear.until(ResourceUpdated(f"{JOBS}/{handle}"))
        assert "stopped" in await read(client, f"{JOBS}/{handle}")


async def answers_many_calls_in_flight(client: Client, _: User) -> None:
    answers: dict[int, str] = {}

    async def read_one(number: int) -> None:
        answers[number] = text(await client.call_tool("read_file", {"path": f"many/{number}"}))

    async with anyio.create_task_group() as tasks:
        for number in range(MANY):
            tasks.start_soon(read_one, number)
    assert all(f"file {number} " in answers[number] for number in range(MANY))


PROMISES: Sequence[Callable[[Client, User], Awaitable[None]]] = (
    elicits,
    reports_progress,
    announces_changes,
    reads_what_was_cut,
    answers_many_calls_in_flight,
)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    made = Setup.below(tmp_path_factory.mktemp("matrix"), "danger-full-access")
    (made.root / "many").mkdir()
    for number in range(MANY):
        content = f"file {number} " + "x" * 50_000
        (made.root / f"many/{number}").write_text(content, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def users() -> defaultdict[tuple[str, str], User]:
    """By transport and era, because a client asks the same person for as long as it is there."""
    return defaultdict(User)


@pytest.mark.parametrize(
    ("transport", "era"),
    [
        # A second server on stdio, for one row.
        pytest.param(*pair, marks=pytest.mark.long if pair == ("stdio", "auto") else ())
        for pair in product(TRANSPORTS, ERAS)
    ],
)
async def test_every_promise_is_kept(
    transport: str,
    era: str,
    setup: Setup,
    shared: SharedServers,
    users: Mapping[tuple[str, str], User],
) -> None:
    user = users[transport, era]
    client = await shared.client(
        setup, transport, era, elicitation_callback=user, message_handler=user.ear.message
    )
    assert (client.protocol_version == "2026-07-28") == (era == "auto")
    for promise in PROMISES:
        await promise(client, user)


async def test_a_stream_acknowledges_only_what_can_be_announced_and_read(
    setup: Setup, shared: SharedServers, users: Mapping[tuple[str, str], User]
) -> None:
    user = users["http", "auto"]
    client = await shared.client(
        setup, "http", "auto", elicitation_callback=user, message_handler=user.ear.message
    )
    (setup.root / "a").write_text("a", encoding="utf-8")
    absent = (f"{JOBS}/bg_none", "toolserver://nothing")
    unchanging = ("file:///etc/passwd", f"file://{setup.root}/a", "toolserver://security")
    async with client.listen(
        tools_list_changed=True,
        prompts_list_changed=True,
        resources_list_changed=True,
        resource_subscriptions=[*absent, TODOS, *unchanging],
    ) as stream:
        assert stream.honored == mcp.SubscriptionFilter(
            resources_list_changed=True, resource_subscriptions=[TODOS]
        )
