"""Listening for tasks: who may, of which there is news, and what it says."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.client.extension import NotificationBinding
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict

from mcp_toolserver.app.serve import mcp_server
from tests.conformance.task_tools import TaskTools
from tests.protocol.resource_clients import place
from tests.support.following import Anything, Follower, KnowsTasks, bare
from tests.support.processes import until
from tests.tasks.test_protocol_tasks import nobody


class Params(BaseModel):
    """Any."""

    model_config = ConfigDict(extra="allow")


@dataclass
class Listener(KnowsTasks):
    """A client of the extension that notes what it hears."""

    heard: list[dict[str, Any]] = field(default_factory=list)
    agreed: list[dict[str, Any]] = field(default_factory=list)

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        return (NotificationBinding(method="notifications/tasks", params_type=Params, handler=self._hear),)

    async def _hear(self, params: Params) -> None:
        self.heard.append(params.model_dump())

    async def messages(self, message: object) -> None:
        if isinstance(message, mcp.SubscriptionsAcknowledgedNotification):
            agreed = message.params.notifications
            self.agreed.append(agreed.model_dump(by_alias=True, exclude_none=True))

    def statuses(self, task: str) -> list[str]:
        """What it heard of a task."""
        return [state["status"] for state in self.heard if state["taskId"] == task]


@asynccontextmanager
async def listening(folder: Path, listener: Listener) -> AsyncGenerator[Follower]:
    async with (
        place(folder) as made,
        Client(
            mcp_server(made.app, (TaskTools().join,)),
            mode="auto",
            extensions=[listener],
            message_handler=listener.messages,
            elicitation_callback=nobody,
            read_timeout_seconds=20,
        ) as client,
    ):
        yield Follower(client)


async def listen(client: Client, tasks: object) -> None:
    """Listen until cancelled."""
    request = mcp.Request[dict[str, Any], str](
        method="subscriptions/listen", params={"notifications": {"taskIds": tasks}}
    )
    await client.session.send_request(request, Anything)


async def test_a_client_hears_of_the_tasks_that_it_listens_for(tmp_path: Path) -> None:
    listener = Listener()
    async with listening(tmp_path, listener) as client:
        mine, other = await client.begun("confirm_delete"), await client.begun("confirm_delete")
        async with anyio.create_task_group() as group:
            group.start_soon(listen, client.client, [mine, "task_" + "0" * 32, 7, None])
            await until(lambda: listener.statuses(mine) == ["input_required"])
            (key,) = await client.asking(mine)
            await client.update(mine, {key: {"action": "accept", "content": {"name": "x"}}})
            await until(lambda: listener.statuses(mine)[-1] == "completed")
            await client.cancel(other)
            await client.ended(other)
            group.cancel_scope.cancel()
        state = bare(await client.get(mine))
    heard = listener.heard[-1]
    assert listener.agreed == [{"taskIds": [mine]}]
    assert {key: value for key, value in heard.items() if key != "_meta"} == state
    assert "io.modelcontextprotocol/subscriptionId" in heard["_meta"]
    assert listener.statuses(other) == []


async def test_nothing_is_agreed_to_of_which_there_is_no_news(tmp_path: Path) -> None:
    listener = Listener()
    wanted: tuple[object, ...] = (["task_" + "0" * 32], [], "task_" + "0" * 32)
    async with listening(tmp_path, listener) as client, anyio.create_task_group() as group:
        for number, tasks in enumerate(wanted, 1):
            group.start_soon(listen, client.client, tasks)
            await until(lambda number=number: len(listener.agreed) == number)
        # Nor is there any for a client that does not listen.
        await client.ended(await client.begun("failing_job"))
        group.cancel_scope.cancel()
    assert listener.agreed == [{}] * len(wanted)
    assert listener.heard == []


async def test_a_client_that_does_not_know_tasks_can_listen_for_all_but_them(tmp_path: Path) -> None:
    async with (
        place(tmp_path) as made,
        Client(mcp_server(made.app), mode="auto", read_timeout_seconds=20) as client,
    ):
        with pytest.raises(MCPError) as failure:
            await listen(client, ["task_" + "0" * 32])
        async with client.listen(resources_list_changed=True) as stream:
            assert stream is not None
    assert failure.value.code == mcp.MISSING_REQUIRED_CLIENT_CAPABILITY
