"""Changes reach clients of both eras over every transport, from real servers."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent

from tests.live import ERAS, TRANSPORTS, Setup, connected
from tests.resource_clients import background, listed, read

pytestmark = [pytest.mark.uncounted, pytest.mark.xdist_group("test_notifications")]


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
async def listening(client: Client, era: str, ear: Ear, uris: Sequence[str]) -> AsyncGenerator[None]:
    """Hear of the list and of these resources, in the way of the era."""
    if era == "legacy":
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


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.below(tmp_path, "danger-full-access")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_change_of_the_list_and_of_a_resource_is_announced(
    transport: str, era: str, setup: Setup
) -> None:
    ear = Ear()
    async with connected(setup, transport, era, message_handler=ear.message) as client:
        declared = client.server_capabilities
        assert declared is not None
        assert declared.resources == mcp.ResourcesCapability(subscribe=True, list_changed=True)
        assert declared.tools == mcp.ToolsCapability(list_changed=False)
        assert declared.prompts == mcp.PromptsCapability(list_changed=False)
        async with listening(client, era, ear, (JOBS, TODOS, CONFIG)):
            handle = await background(client, "read line; echo $line")
            await ear.until(ResourcesListChanged())
            assert f"{JOBS}/{handle}" in await listed(client)
            await client.call_tool("TodoWrite", {"todos": [{"content": "look"}]})
            await ear.until(ResourceUpdated(TODOS))
            assert "look" in await read(client, TODOS)
            await client.call_tool("Config", {"setting": "theme", "value": "dark"})
            await ear.until(ResourceUpdated(CONFIG))
            assert '"dark"' in await read(client, CONFIG)
        handle = await background(client, "exec sleep 60")
        async with listening(client, era, ear, (JOBS, f"{JOBS}/{handle}")):
            ear.heard.clear()
            await client.call_tool("TaskStop", {"task_id": handle})
            await ear.until(ResourceUpdated(f"{JOBS}/{handle}"))
            assert "stopped" in await read(client, f"{JOBS}/{handle}")


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_stream_acknowledges_only_what_can_be_announced_and_read(
    transport: str, setup: Setup
) -> None:
    async with connected(setup, transport, "auto") as client:
        asked = [
            "file:///etc/passwd",
            f"{JOBS}/bg_none",
            TODOS,
            "toolserver://nothing",
            "toolserver://security",
        ]
        (setup.root / "a").write_text("a", encoding="utf-8")
        asked.append(f"file://{setup.root}/a")
        async with client.listen(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=asked,
        ) as stream:
            assert stream.honored == mcp.SubscriptionFilter(
                resources_list_changed=True, resource_subscriptions=[TODOS]
            )
