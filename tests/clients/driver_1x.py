"""The conversation, led by the official Python client that knows only the handshake.

It runs in an environment of its own. argv: the task as JSON, {transport, answer, steps}. Tells an outcome per
line, and goes on at each line that it reads.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError

TASK = json.loads(sys.argv[1])


async def tell(**outcome: Any) -> None:
    sys.stdout.write(json.dumps(outcome) + "\n")
    sys.stdout.flush()
    await anyio.to_thread.run_sync(sys.stdin.readline)


def summary(text: str) -> dict[str, Any]:
    return {"text": text[-4000:], "length": len(text)}


class Driver:
    """Leads the conversation."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.link = ""

    async def tools(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"names": [tool.name for tool in (await self.session.list_tools()).tools]}

    async def prompts(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"names": [prompt.name for prompt in (await self.session.list_prompts()).prompts]}

    async def prompt(self, step: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self.session.get_prompt(step["name"], step["arguments"])
        return summary("\n".join(getattr(message.content, "text", "") for message in answer.messages))

    async def read(self, step: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self.session.read_resource(self.link if step["uri"] == "link" else step["uri"])
        return summary("\n".join(getattr(content, "text", "") for content in answer.contents))

    async def call(self, step: Mapping[str, Any]) -> dict[str, Any]:
        reports: list[float] = []

        async def listen(progress: float, total: float | None, message: str | None) -> None:
            reports.append(progress)

        answer = await self.session.call_tool(step["tool"], step["arguments"], progress_callback=listen)
        links = [block for block in answer.content if isinstance(block, types.ResourceLink)]
        self.link = str(links[-1].uri) if links else self.link
        text = "\n".join(getattr(block, "text", "") for block in answer.content)
        return {**summary(text), "is_error": answer.isError, "links": len(links), "progress": len(reports)}

    async def cancel(self, step: Mapping[str, Any]) -> dict[str, Any]:
        request_id = self.session._request_id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.session.call_tool, step["tool"], step["arguments"])
            await tell()
            # This client gives up without a word, unless it has to send one.
            params = types.CancelledNotificationParams(requestId=request_id)
            note = types.CancelledNotification(method="notifications/cancelled", params=params)
            await self.session.send_notification(types.ClientNotification(note))
            tasks.cancel_scope.cancel()
        return summary("given up")


async def main() -> None:
    asked: list[str] = []

    async def answer(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content=TASK["answer"])

    noticed = anyio.Event()

    async def notice(message: Any) -> None:
        if isinstance(getattr(message, "root", None), types.ResourceListChangedNotification):
            noticed.set()

    async with AsyncExitStack() as stack:
        read, write = await connected(stack)
        session = await stack.enter_async_context(
            ClientSession(read, write, elicitation_callback=answer, message_handler=notice)
        )
        opened = await session.initialize()
        await tell(names=[opened.serverInfo.name, opened.protocolVersion])
        driver = Driver(session)
        for step in TASK["steps"]:
            asked.clear()
            try:
                outcome = await getattr(driver, step["op"])(step)
            except McpError as error:
                outcome = {"code": error.error.code, "text": str(error)}
            await tell(**outcome, asked=asked)
        # The long result is a new resource. This client fails when the notice of it comes as it closes.
        with anyio.fail_after(20):
            await noticed.wait()


async def connected(stack: AsyncExitStack) -> tuple[Any, Any]:
    """The streams to the server."""
    way = TASK["transport"]
    if "command" in way:
        command, *arguments = way["command"]
        server = StdioServerParameters(command=command, args=arguments, env=way["environment"])
        return await stack.enter_async_context(stdio_client(server))
    headers = {"authorization": f"Bearer {way['token']}"}
    http = await stack.enter_async_context(httpx.AsyncClient(headers=headers, timeout=30, trust_env=False))
    read, write, _ = await stack.enter_async_context(streamable_http_client(way["url"], http_client=http))
    return read, write


anyio.run(main)
