"""The tools with which the official suite tries tasks, carried by the server's own feature for them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import mcp_types as mcp
from mcp.shared.exceptions import MCPError

from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.tasks.feature import EXTENSION, TaskFeature, declares
from mcp_toolserver.protocol.tasks.task import Task, Wire
from tests.conformance.asking import NAME, Context

Run = Callable[[Context, mcp.CallToolRequestParams], Awaitable[Any]]


class TaskTools:
    """A feature that answers for the suite's tools; it joins after the server's own."""

    def join(self, server: ToolServer) -> None:
        """Stand before the server's answers for tools."""
        calls, lists = server.get_request_handler("tools/call"), server.get_request_handler("tools/list")
        assert calls is not None
        assert lists is not None

        async def call(context: Context, params: mcp.CallToolRequestParams) -> Any:
            run = TOOLS.get(params.name, calls.handler)
            return await run(context, params)

        async def listed(context: Context, params: mcp.PaginatedRequestParams) -> mcp.ListToolsResult:
            found = await lists.handler(context, params)
            assert isinstance(found, mcp.ListToolsResult)
            own = [
                mcp.Tool(name=name, description="For the suite.", input_schema=SCHEMA[name]) for name in TOOLS
            ]
            return mcp.ListToolsResult(tools=[*found.tools, *own])

        server.add_request_handler("tools/call", mcp.CallToolRequestParams, call)
        server.add_request_handler("tools/list", mcp.PaginatedRequestParams, listed)
        schema = server.get_tool_input_schema
        assert schema is not None
        server.get_tool_input_schema = lambda name: SCHEMA.get(name) or schema(name)


def said(text: str, *, is_error: bool = False) -> Wire:
    return {
        "content": [{"type": "text", "text": text}],
        "isError": is_error,
        "resultType": "complete",
    }


async def carried(context: Context, work: Callable[[Task], Awaitable[Wire]]) -> Wire:
    """Do `work` as a task from the first: it begins when the client has the handle."""
    feature: TaskFeature = context.lifespan_context[EXTENSION]

    async def after_the_handle(task: Task) -> Wire:
        with anyio.fail_after(30):
            await task.settled.wait()
        return await work(task)

    return await feature.tasks().carry(context, after_the_handle, grace=0)


async def greet(_: Context, params: mcp.CallToolRequestParams) -> Wire:
    return said(f"Hello, {(params.arguments or {}).get('name')}!")


async def slow_compute(context: Context, params: mcp.CallToolRequestParams) -> Wire:
    asked = params.arguments or {}

    async def work(_: Task | None = None) -> Wire:
        await anyio.sleep(float(asked.get("seconds", 0)))
        return said(f"computed {asked.get('label')}")

    return await (carried(context, work) if declares(context) and asked.get("seconds") else work())


async def failing_job(context: Context, _: mcp.CallToolRequestParams) -> Wire:
    async def work(_: Task) -> Wire:
        return said("It fails on purpose.", is_error=True)

    return await carried(context, work)


async def protocol_error_job(context: Context, _: mcp.CallToolRequestParams) -> Wire:
    async def work(_: Task) -> Wire:
        raise MCPError(mcp.INTERNAL_ERROR, "It breaks on purpose.")

    return await carried(context, work)


async def confirm_delete(context: Context, params: mcp.CallToolRequestParams) -> Wire:
    async def work(task: Task) -> Wire:
        answer = await task.ask("confirm", NAME)
        return said(f"{(params.arguments or {}).get('filename')}: {answer and answer.action}")

    return await carried(context, work)


async def multi_input(context: Context, _: mcp.CallToolRequestParams) -> Wire:
    async def work(task: Task) -> Wire:
        answers: list[str] = []

        async def ask() -> None:
            answer = await task.ask("name", NAME)
            answers.append(str(answer and answer.content))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(ask)
        return said(" and ".join(answers))

    return await carried(context, work)


async def test_tool_with_task(
    context: Context, params: mcp.CallToolRequestParams
) -> Wire | mcp.InputRequiredResult:
    answer = (params.input_responses or {}).get("user_name")
    if not isinstance(answer, mcp.ElicitResult):
        return mcp.InputRequiredResult(input_requests={"user_name": NAME})

    async def work(_: Task) -> Wire:
        return said(f"Hello, {(answer.content or {}).get('name')}!")

    return await carried(context, work)


TOOLS: Mapping[str, Run] = {
    run.__name__: run
    for run in (
        greet,
        slow_compute,
        failing_job,
        protocol_error_job,
        confirm_delete,
        multi_input,
        test_tool_with_task,
    )
}

_TEXT = {"type": "string"}
SCHEMA: Mapping[str, dict[str, Any]] = {
    **{name: {"type": "object", "properties": {}} for name in TOOLS},
    "greet": {"type": "object", "properties": {"name": _TEXT}},
    "slow_compute": {"type": "object", "properties": {"seconds": {"type": "number"}, "label": _TEXT}},
    "confirm_delete": {"type": "object", "properties": {"filename": _TEXT}},
}
