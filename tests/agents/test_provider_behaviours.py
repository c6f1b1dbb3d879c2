"""What the caller of an agent, a task and a schedule record of each way in which a provider may behave.

`provider_behaviours.txt` has the table. Each answer there is the name of a function here and its arguments.
"""

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp.shared.exceptions import MCPError

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.models import client
from mcp_toolserver.runtime.models.model import ProviderName
from tests.agents.agents import Agents, Model
from tests.agents.test_models import KEY, PATH, PREFIX, PROVIDERS
from tests.agents.test_run_task_packet import PACKET, scheduled
from tests.agents.test_sampling import TASK, Params, Sampler, in_memory
from tests.protocol.resource_clients import place
from tests.support.live import ERAS, text
from tests.support.workshop import workshop
from tests.tasks.test_board import ID, created
from tests.web.web import Reply, site

SAID = "The work is finished.\nOUTCOME: done"
CALLS = {
    "ls": ("ls", "{}"),
    "unknown": ("no_such_tool", "{}"),
    "wrong": ("ls", '{"path": [1]}'),
    "bad": ("ls", '{"path": '),
    "part": ("write_file", '{"path": "a'),
    "write": ("write_file", '{"path": "a", "content": ""}'),
}
STOPS: Mapping[ProviderName, Mapping[str, str]] = {
    "anthropic": {"stop": "end_turn", "calls": "tool_use", "cut": "max_tokens", "filter": "refusal"},
    "openai": {"calls": "tool_calls", "cut": "length", "filter": "content_filter"},
}

Made = Sequence[tuple[str, str]]
Json = dict[str, Any]


def openai(said: str, made: Made, thought: str, stop: str) -> Iterator[Json]:
    deltas: list[Json] = [{"role": "assistant", "content": ""}, {"reasoning_content": thought}]
    deltas += [{"content": said[:9]}, {"content": said[9:]}]
    for index, (name, given) in enumerate(made):
        function = {"name": name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": given}}]})
    yield from ({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas)
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]}
    yield {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}


def anthropic(said: str, made: Made, thought: str, stop: str) -> Iterator[Json]:
    usage, head = {"input_tokens": 7, "output_tokens": 3}, {"type": "message", "role": "assistant"}
    yield {
        "type": "message_start",
        "message": {"id": "m", **head, "model": "m", "content": [], "usage": usage},
    }
    blocks: list[tuple[Json, str, str]] = []
    if thought:
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, "thinking", thought))
    if said:
        blocks.append(({"type": "text", "text": ""}, "text", said))
    for index, (name, given) in enumerate(made):
        block = {"type": "tool_use", "id": f"c{index}", "name": name, "input": {}}
        blocks.append((block, "partial_json", given))
    for index, (block, key, value) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        kind = "input_json_delta" if key == "partial_json" else f"{key}_delta"
        for part in (value[:9], value[9:]):
            yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: part}}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage}
    yield {"type": "message_stop"}


Answer = Callable[[Reply, ProviderName], object]
"""Answers a request in the format of a provider."""


def sse(*events: Json) -> str:
    named = ((f"event: {one['type']}\n" if "type" in one else "", json.dumps(one)) for one in events)
    return "".join(f"{name}data: {data}\n\n" for name, data in named)


def turn(said: str = SAID, calls: str = "", thought: str = "", stop: str = "", **what: str) -> Answer:
    """A whole answer; or its `first` events, or all but some at the end (`without`), then an `error` or
    `more`; `drops` closes the connection after them."""
    made = [CALLS[name] for name in calls.split(",") if name]
    reason = stop or ("calls" if made else "stop")

    def answer(reply: Reply, provider: ProviderName) -> None:
        build = openai if provider == "openai" else anthropic
        events = [*build(said, made, thought, STOPS[provider].get(reason, reason))]
        kept = int(what.get("first", len(events) - int(what.get("without", 0))))
        stream = sse(*events[:kept]) + what.get("more", "").replace("%", "\n")
        if kind := what.get("error"):
            stream += sse({"type": "error", "error": {"type": kind, "message": f"reason {KEY}"}})
        dropped(stream)(reply, provider) if "drops" in what else raw(f"{stream}\n\n")(reply, provider)

    return answer


def dropped(sent: str = "") -> Answer:
    """Closes the connection after the headers and this much of an answer."""

    def answer(reply: Reply, _: str) -> None:
        reply.close_connection = True
        reply.send_response(200)
        reply.send_header("content-type", "text/event-stream")
        reply.send_header("content-length", str(len(sent) + 1000))
        reply.end_headers()
        reply.wfile.write(sent.encode())

    return answer


def error(status: str, message: str = "", **more: str) -> Answer:
    """An error, with headers and with fields of its body."""

    def answer(reply: Reply, _: str) -> None:
        told = {"message": f"reason {KEY} {reply.site.url}/v1 {message}", "type": "an_error", "code": None}
        body = json.dumps({"type": "error", "error": {**told, **more}})
        reply.say(body, status=int(status), headers={key: more[key] for key in more if "-" in key})

    return answer


def raw(content: str, kind: str = "text/event-stream", status: str = "200") -> Answer:
    body = content.replace("%", "\n")
    return lambda reply, _: reply.say(f"{body}\n\n" if body else "", kind=kind, status=int(status))


def drips(reply: Reply, _: str) -> None:
    closing = reply.site.closing
    reply.pour(iter(lambda: b"" if closing.wait(0.05) else b": yet\n\n", b""), kind="text/event-stream")


def endless(reply: Reply, _: str) -> None:
    reply.pour(repeat(b": comment " + b"x" * 4096 + b"\n"), kind="text/event-stream")


def sampled(said: str = SAID, calls: str = "", stop: str | None = None) -> mcp.CreateMessageResultWithTools:
    """What the model of a client answers."""
    used = [CALLS[name] for name in calls.split(",") if name]
    content: list[Any] = [
        mcp.TextContent(text=said),
        *(mcp.ToolUseContent(id=f"c{n}", name=one, input=json.loads(of)) for n, (one, of) in enumerate(used)),
    ]
    return mcp.CreateMessageResultWithTools(role="assistant", content=content, model="m", stop_reason=stop)


SINGLE: Mapping[str, Any] = {
    "redirect": lambda reply, _: reply.redirect(f"{reply.site.url}/elsewhere", 307),
    "compressed": lambda reply, _: reply.pour([b"x"], encoding="gzip"),
    "lost": lambda reply, _: setattr(reply, "close_connection", True),
    "silent": lambda reply, _: reply.site.closing.wait(),
    "drips": drips,
    "endless": endless,
    "dropped": dropped(),
    "declines": mcp.ErrorData(code=-1, message="no"),
}
MADE: Mapping[str, Callable[..., Any]] = {"turn": turn, "error": error, "raw": raw, "sampled": sampled}


@dataclass(frozen=True)
class Row:
    says: str
    asked: int
    answers: Sequence[Any]


def answer_of(source: str) -> Any:
    name, *words = shlex.split(source)
    named = dict(word.split("=", 1) for word in words if re.match(r"[a-z-]+=", word))
    return SINGLE[name] if name in SINGLE else MADE[name](*words[: len(words) - len(named)][:1], **named)


def tables() -> Iterator[dict[str, Row]]:
    """Those of the file."""
    content = Path(__file__).with_name("provider_behaviours.txt").read_text(encoding="utf-8")
    for table in content.split("\n## ")[1:]:
        rows = [line.split("|", 3) for line in table.splitlines() if "|" in line]
        yield {
            name.strip(): Row(says.strip(), int(asked), [*map(answer_of, answers.split("; "))])
            for name, says, asked, answers in rows
        }


DONE, FAILED, LATE, SAMPLED = tables()
ROWS = {**DONE, **FAILED, **LATE}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_failure_of_a_provider_is_recorded_as_success(
    provider: ProviderName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(client, "MAX_BYTES", 1 << 20)
    asked, wrong = Counter[str](), list[str]()

    def route(reply: Reply) -> None:
        found = re.search(r"(?:caller|task|schedule): ([^.]*)\.", reply.asked.body.decode())
        assert found is not None
        answers = ROWS[found[1]].answers
        asked[found[0]] += 1
        answers[min(asked[found[0]], len(answers)) - 1](reply, provider)

    async def check(at: Agents, name: str, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            result = await at.agent(f"caller: {name}.")
            made = await created(at.server, prompt=f"task: {name}.")
            task = (await at.call("TaskOutput", task_id=made, until="end")).text
            outcome = await scheduled(at, f"schedule: {name}.")
        succeeded = (result.error is None, "[completed; " in task, outcome.succeeded)
        row, times, said = ROWS[name], asked[f"caller: {name}."], (result.text, task, outcome.output)
        if succeeded != (name in DONE,) * 3 or row.says not in result.text or times != row.asked:
            wrong.append(f"{name}: {succeeded}, {times} requests, {said}")
        if KEY in str(said) or str(server.port) in str(said):
            wrong.append(f"{name} shows a secret: {said}")

    with site({PATH[provider]: route}) as server:
        (key := tmp_path / "key").touch(0o600)
        key.write_text(KEY, encoding="utf-8")
        given: dict[str, Any] = {"agent_provider": provider, "agent_model": "m", "agent_running": 100}
        given |= {"agent_key_file": str(key), "agent_base_url": server.url + PREFIX[provider]}
        for seconds, rows in ((60.0, (*DONE, *FAILED)), (1.0, LATE)):
            (folder := tmp_path / f"{seconds:g}").mkdir()
            given["agent_turn_seconds"] = seconds
            async with workshop(folder, Permission.WORKSPACE_WRITE, **given) as made:
                at = Agents(server=made, model=Model("", {}), root=folder / "root")
                limiter = anyio.CapacityLimiter(6)
                async with anyio.create_task_group() as tasks:
                    for name in rows:
                        tasks.start_soon(check, at, name, limiter)
            assert not [*(folder / "root").iterdir()]
    assert not wrong, "\n".join(wrong)
    assert len(ROWS) >= 60


@pytest.mark.parametrize("era", ERAS)
async def test_no_failure_of_the_model_of_a_client_is_recorded_as_success(era: str, tmp_path: Path) -> None:
    asked = Counter[str]()

    def answer(params: Params) -> Any:
        name = params.messages[0].content_as_list[0].text  # type: ignore[union-attr]
        answers = SAMPLED[name].answers
        asked[name] += 1
        # With a handshake the client answers for ever.
        return answers[min(asked[name], len(answers)) - 1] if asked[name] < 30 else sampled()

    async with place(tmp_path) as made, in_memory(made.app, era, Sampler(answer=answer)) as session:
        for name, row in SAMPLED.items():
            if era == "auto" and "error" in name:
                # The official client ends a stateless call itself.
                with pytest.raises(MCPError, match="no"):
                    await session.call_tool("Agent", {**TASK, "prompt": name})
                continue
            result = await session.call_tool("Agent", {**TASK, "prompt": name})
            if (name, era) == ("calls on and on", "legacy"):
                row = Row("finished; 30 turns", 30, ())
            assert row.says in text(result), name
            assert result.is_error == (not row.says.startswith("finished")), name
            assert asked[name] == row.asked
        # Tasks and schedules have no client when they run.
        refused = {"RunTaskPacket": PACKET, "CronCreate": {"schedule": "@daily", "prompt": "x"}}
        for tool, arguments in refused.items():
            assert (await session.call_tool(tool, arguments)).is_error, tool
        task = await session.call_tool("TaskCreate", {"prompt": "plain"})
        for found in ID.findall(text(task)):
            ended = await session.call_tool("TaskOutput", {"task_id": found, "until": "end", "wait_ms": 500})
            assert "[completed" not in text(ended)
        listed = {tool.name for tool in (await session.list_tools()).tools}
        assert listed & {"Agent", "RunTaskPacket", "TeamCreate"} == ({"Agent"} if era == "legacy" else set())
    assert not [*(tmp_path / "root").iterdir()]
