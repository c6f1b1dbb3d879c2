"""A client that knows tasks: the official one, with the extension."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import mcp_types as mcp
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from pydantic import ConfigDict

from mcp_toolserver.protocol.tasks.feature import EXTENSION

PATIENCE = 20.0
"""Seconds that a test waits for what must come."""


class Anything(mcp.Result):
    model_config = ConfigDict(extra="allow")


class Handle(Anything):
    """What comes in place of a result."""

    result_type: Literal["task"]


class TaskRequest(mcp.Request[dict[str, Any], str]):
    name_param = "taskId"


class KnowsTasks(ClientExtension):
    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=Handle, resolve=_followed),)


async def _followed(handle: Handle, context: ClaimContext) -> mcp.CallToolResult:
    raise AssertionError(f"{context.tool_name} was called by a test that does not follow it: {handle}")


@dataclass(frozen=True)
class Follower:
    """A connected client, and what it can do with tasks."""

    client: Client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a call, whatever its kind."""
        answer = await self.client.session.call_tool(
            tool, arguments, allow_claimed=True, allow_input_required=True
        )
        return plain(answer)

    async def begun(self, tool: str, **arguments: Any) -> str:
        """The id of the task that a call has become."""
        answer = await self.call(tool, **arguments)
        assert answer["resultType"] == "task", answer
        assert not answer.keys() & {"result", "error", "inputRequests", "requestState", "task", "ttl"}
        return answer["taskId"]

    async def ask(self, method: str, task: object, **params: Any) -> dict[str, Any]:
        request = TaskRequest(method=method, params={"taskId": task, **params})
        return plain(await self.client.session.send_request(request, Anything))

    async def get(self, task: str) -> dict[str, Any]:
        state = await self.ask("tasks/get", task)
        assert state["resultType"] == "complete"
        assert state["taskId"] == task
        return state

    async def update(self, task: str, answers: Mapping[str, object]) -> None:
        """Answer what it asks."""
        assert bare(await self.ask("tasks/update", task, inputResponses=answers)) == {}

    async def cancel(self, task: str) -> None:
        assert bare(await self.ask("tasks/cancel", task)) == {}

    async def until(self, task: str, wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Poll, within bounds, until it is as wanted."""
        with anyio.fail_after(PATIENCE):
            while not wanted(state := await self.get(task)):
                await anyio.sleep(0.02)
        return state

    async def ended(self, task: str) -> dict[str, Any]:
        return await self.until(task, lambda state: state["status"] not in ("working", "input_required"))

    async def asking(self, task: str) -> dict[str, Any]:
        state = await self.until(task, lambda state: state["status"] != "working")
        assert state["status"] == "input_required", state
        return state["inputRequests"]


def plain(answer: mcp.Result) -> dict[str, Any]:
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


def bare(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what all answers have."""
    assert answer["resultType"] == "complete"
    return {key: value for key, value in answer.items() if key not in ("resultType", "_meta")}


def said(result: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


def options(**more: Any) -> dict[str, Any]:
    return {"mode": "auto", "extensions": [KnowsTasks()], "read_timeout_seconds": 30, **more}


@asynccontextmanager
async def following(server: Any, **more: Any) -> AsyncGenerator[Follower]:
    """A client that knows tasks, connected to `server` in this process."""
    async with Client(server, **options(**more)) as client:
        yield Follower(client)
