"""One step of a model's loop: runs the calls in the answer of a model."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from anyio import CapacityLimiter, create_task_group
from pydantic import BaseModel, JsonValue

from mcp_toolserver.custom_tools.registry import Definition, ToolRegistry
from mcp_toolserver.custom_tools.tool import ToolResult
from mcp_toolserver.tool_spec import ToolContext

MOST_AT_ONCE = 10
"""Calls that run at the same time."""


@dataclass(frozen=True)
class _Call:
    id: str
    name: str
    arguments: JsonValue
    reply: Callable[[str, ToolResult], Definition]
    """The id and the result in the form of the API."""


async def answer_calls(
    registry: ToolRegistry, answer: Iterable[Mapping[str, JsonValue] | BaseModel], context: ToolContext
) -> tuple[list[Definition], ToolContext]:
    """Run the calls in a model's answer: the `tool_use` blocks of Anthropic's Messages API, or the
    `function_call` items of OpenAI's Responses API, as dictionaries or as objects of their clients.

    Consecutive calls run together if their tools read only and are concurrency-safe; others run one at a
    time. Returns the results in the order and the form of the calls, and the context of the next step, with
    the state updates of the calls that succeeded.
    """
    items: list[Definition] = []
    for alone, group in groupby(_calls(answer), lambda call: registry.runs_alone(call.name)):
        calls = list(group)
        for batch in [[call] for call in calls] if alone else [calls]:
            results = await _together(registry, batch, context)
            items += [call.reply(call.id, result) for call, result in zip(batch, results, strict=True)]
            updates = [result.state_update for result in results if result.error is None]
            state = {key: value for one in (context.state, *updates) for key, value in one.items()}
            context = context.model_copy(update={"state": state})
    return items, context


async def _together(registry: ToolRegistry, calls: Sequence[_Call], context: ToolContext) -> list[ToolResult]:
    results, limiter = dict[int, ToolResult](), CapacityLimiter(MOST_AT_ONCE)

    async def run(number: int, call: _Call) -> None:
        async with limiter:
            # Validation copies the state, which a tool must not change.
            own = ToolContext.model_validate({**dict(context), "call_id": call.id})
            results[number] = await registry.execute(call.name, call.arguments, own)

    async with create_task_group() as tasks:
        for number, call in enumerate(calls):
            tasks.start_soon(run, number, call)
    return [results[number] for number in range(len(calls))]


def _calls(answer: Iterable[Mapping[str, JsonValue] | BaseModel]) -> Iterator[_Call]:
    for part in answer:
        item = part.model_dump(mode="json") if isinstance(part, BaseModel) else part
        if item.get("type") == "tool_use":
            yield _Call(str(item["id"]), str(item["name"]), item["input"], _tool_result)
        elif item.get("type") == "function_call":
            call_id, name = str(item["call_id"]), str(item["name"])
            yield _Call(call_id, name, item["arguments"], _function_call_output)


def _tool_result(call_id: str, result: ToolResult) -> Definition:
    """For Anthropic, which refuses blocks of text that are empty."""
    blocks: list[JsonValue] = [{"type": "text", "text": result.text}] if result.text else []
    for image in result.images:
        data = base64.b64encode(image.data).decode()
        source: JsonValue = {"type": "base64", "media_type": image.mime_type, "data": data}
        blocks.append({"type": "image", "source": source})
    content = blocks if result.images else result.text
    failed: Definition = {} if result.error is None else {"is_error": True}
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **failed}


def _function_call_output(call_id: str, result: ToolResult) -> Definition:
    """For OpenAI, whose results have no mark of an error but their text."""
    text = result.text if result.error is None else f"Error: {result.text}"
    parts: list[JsonValue] = [{"type": "input_text", "text": text}]
    for image in result.images:
        url = f"data:{image.mime_type};base64,{base64.b64encode(image.data).decode()}"
        parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    output = parts if result.images else text
    return {"type": "function_call_output", "call_id": call_id, "output": output}
