"""A model API on loopback that plays a fixed list of tool calls, for tests with real clients.

It speaks four formats: Anthropic messages, OpenAI chat completions, OpenAI responses and Gemini. It keeps no
state of a conversation: a request that carries N results of tools is answered with call N of the script, and
with the text "done" after the last.
"""

import gzip
import itertools
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from tests.web.web import Reply, site

MODEL = "scripted"
"""The name of the model in lists of models; requests for any other are answered as well."""

DONE = "done"

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Call:
    tool: str
    """As the client names it, in Codex `namespace/name`; it is called whether it is offered or not."""
    arguments: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Request:
    tools: tuple[str, ...]
    """The names of the offered tools; one in a namespace is `namespace/name`."""
    results: tuple[str, ...]
    """The results of the calls so far, each as JSON or text, as the client wrote it."""
    body: Json = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Answer:
    number: int
    """Unique in this process, for identifiers."""
    name: str = ""
    """The tool that is called, as the client names it; empty for the text."""
    arguments: Mapping[str, object] = field(default_factory=dict)


class Messages:
    def request(self, body: Json) -> Request:
        blocks = [block for message in body["messages"] for block in _list(message["content"])]
        results = [block["content"] for block in blocks if block.get("type") == "tool_result"]
        return _request([tool["name"] for tool in body.get("tools") or []], results, body)

    def answer(self, answer: Answer, body: Json) -> Json:
        block: Json = {"type": "text", "text": DONE}
        if answer.name:
            block = {"type": "tool_use", "id": f"toolu_{answer.number}", "name": answer.name}
            block["input"] = answer.arguments
        return {
            "id": f"msg_{answer.number}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", MODEL),
            "content": [block],
            "stop_reason": "tool_use" if answer.name else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def events(self, answer: Answer, body: Json) -> Iterable[Json]:
        message = self.answer(answer, body)
        block: Json = message["content"][0]
        if answer.name:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            block = {**block, "input": {}}
        else:
            delta = {"type": "text_delta", "text": block["text"]}
            block = {**block, "text": ""}
        yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": message["usage"]}
        yield {"type": "message_stop"}


class ChatCompletions:
    def request(self, body: Json) -> Request:
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        return _request([tool["function"]["name"] for tool in body.get("tools") or []], results, body)

    def answer(self, answer: Answer, body: Json) -> Json:
        return {**self._head(answer, body), "choices": [self._choice(answer, "message")]}

    def events(self, answer: Answer, body: Json) -> Iterable[Json]:
        head = {**self._head(answer, body), "object": "chat.completion.chunk"}
        yield {**head, "choices": [{**self._choice(answer, "delta"), "finish_reason": None}]}
        yield {**head, "choices": [{**self._choice(answer, "delta"), "delta": {}}]}

    def _head(self, answer: Answer, body: Json) -> Json:
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": f"chat_{answer.number}", "object": "chat.completion", "created": 1}
        return {**head, "model": body.get("model", MODEL), "usage": usage}

    def _choice(self, answer: Answer, key: str) -> Json:
        message: Json = {"role": "assistant", "content": DONE}
        if answer.name:
            function = {"name": answer.name, "arguments": json.dumps(answer.arguments)}
            call = {"index": 0, "id": f"call_{answer.number}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"index": 0, key: message, "finish_reason": "tool_calls" if answer.name else "stop"}


class Responses:
    """OpenAI responses, with the namespaces in which Codex sends the tools of a server."""

    def request(self, body: Json) -> Request:
        names: list[str] = []
        for tool in body.get("tools") or []:
            if tool["type"] == "namespace":
                names += [f"{tool['name']}/{inner['name']}" for inner in tool["tools"]]
            else:
                names.append(tool.get("name", tool["type"]))
        results = [item["output"] for item in _list(body["input"]) if item["type"].endswith("call_output")]
        return _request(names, results, body)

    def answer(self, answer: Answer, body: Json) -> Json:
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        details = {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return {
            "id": f"resp_{answer.number}",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": body.get("model", MODEL),
            "output": [self._item(answer)],
            "usage": {**usage, **details},
        }

    def events(self, answer: Answer, body: Json) -> Iterable[Json]:
        response = self.answer(answer, body)
        [item] = response["output"]
        yield {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield {"type": "response.completed", "response": response}

    def _item(self, answer: Answer) -> Json:
        item: Json = {"id": f"item_{answer.number}", "status": "completed"}
        if not answer.name:
            content = {"type": "output_text", "text": DONE, "annotations": []}
            return {**item, "type": "message", "role": "assistant", "content": [content]}
        item |= {"call_id": f"call_{answer.number}"}
        if answer.name == "apply_patch":
            # Codex takes it as text instead of JSON.
            return {**item, "type": "custom_tool_call", "name": answer.name, **answer.arguments}
        namespace, _, name = answer.name.rpartition("/")
        item |= {"type": "function_call", "name": name, "arguments": json.dumps(answer.arguments)}
        return item | ({"namespace": namespace} if namespace else {})


class Gemini:
    def request(self, body: Json) -> Request:
        tools = body.get("tools") or []
        names = [declared["name"] for tool in tools for declared in tool.get("functionDeclarations", [])]
        parts = [part for content in body["contents"] for part in content["parts"]]
        results = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
        return _request(names, results, body)

    def answer(self, answer: Answer, body: Json) -> Json:
        part: Json = {"text": DONE}
        if answer.name:
            part = {"functionCall": {"name": answer.name, "args": answer.arguments}}
        content = {"role": "model", "parts": [part]}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        candidate = {"content": content, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL}

    def events(self, answer: Answer, body: Json) -> Iterable[Json]:
        yield self.answer(answer, body)


FORMATS: Mapping[str, Messages | ChatCompletions | Responses | Gemini] = {
    "/messages": Messages(),
    "/chat/completions": ChatCompletions(),
    "/responses": Responses(),
    "enerateContent": Gemini(),
}
"""By how the path of a request ends: its `request`, and the answer as one document or as a stream."""


class ScriptedModel:
    """A running model API.

    Attributes:
        url: the address, without a path.
        requests: the requests that offered tools, in order.
    """

    def __init__(self, url: str, script: Sequence[Call]) -> None:
        self.url = url
        self.requests: list[Request] = []
        self._script = script
        self._numbers = itertools.count(1)

    def reply(self, path: str, body: Json) -> tuple[str, bytes]:
        """The type and the content of an answer to a POST."""
        kind = next((FORMATS[end] for end in FORMATS if path.endswith(end)), None)
        if kind is None:
            return "application/json", json.dumps({"input_tokens": 1, "totalTokens": 1}).encode()
        request = kind.request(body)
        if request.tools:
            self.requests.append(request)
        answer = self._answer(request)
        if not (body.get("stream") or "streamGenerate" in path):
            return "application/json", json.dumps(kind.answer(answer, body)).encode()
        events = "".join(
            f"event: {event.get('type')}\n" * ("type" in event) + f"data: {json.dumps(event)}\n\n"
            for event in kind.events(answer, body)
        )
        return "text/event-stream", (events + "data: [DONE]\n\n" * isinstance(kind, ChatCompletions)).encode()

    def _answer(self, request: Request) -> Answer:
        number, step = next(self._numbers), len(request.results)
        if not request.tools or step >= len(self._script):
            return Answer(number=number)
        call = self._script[step]
        return Answer(number=number, name=call.tool, arguments=call.arguments)


@contextmanager
def scripted_model(script: Sequence[Call]) -> Generator[ScriptedModel]:
    """A model that plays the script, on a free port of loopback."""

    def route(reply: Reply) -> None:
        kind, content = "application/json", b""
        if reply.command == "GET":
            models = [{"id": MODEL, "object": "model", "name": f"models/{MODEL}"}]
            content = json.dumps({"object": "list", "data": models}).encode()
        elif reply.command == "POST":
            packed = reply.asked.headers.get("content-encoding") == "gzip"
            body = json.loads((gzip.decompress if packed else bytes)(reply.asked.body) or b"{}")
            path = reply.path.partition("?")[0]
            kind, content = model.reply(path, cast("Json", body) if isinstance(body, dict) else {})
        # With CONNECT a client wants a connection to another host, with this server as its proxy.
        reply.say(content, kind=kind, status=403 if reply.command == "CONNECT" else 200)

    with site(other=route) as made:
        model = ScriptedModel(made.url, script)
        yield model


def _request(tools: Iterable[str], results: Iterable[object], body: Json) -> Request:
    texts = [result if isinstance(result, str) else json.dumps(result) for result in results]
    return Request(tools=tuple(tools), results=tuple(texts), body=body)


def _list(content: Any) -> list[Json]:
    return cast("list[Json]", content) if isinstance(content, list) else []
