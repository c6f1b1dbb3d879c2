"""Agents that use the client's own model, with the official client over every transport."""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.client import advertise
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError

from mcp_toolserver.app.compose import Application
from mcp_toolserver.app.serve import mcp_server
from mcp_toolserver.capabilities.model import Model, ModelRequest, ModelTurn, ToolCall, ToolReply, UserText
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.protocol import sampling
from mcp_toolserver.protocol.sampling import LAST_TURN, create_message
from mcp_toolserver.protocol.tasks.feature import EXTENSION
from mcp_toolserver.runtime.host_services import ServiceRequest
from tests.protocol.resource_clients import place
from tests.support.live import ERAS, Setup, connected, text
from tests.support.processes import until

TOOLS = mcp.SamplingCapability(tools=mcp.SamplingToolsCapability())
TASK = {"description": "a test", "prompt": "find"}

Params = mcp.CreateMessageRequestParams
Answer = mcp.CreateMessageResult | mcp.CreateMessageResultWithTools | mcp.ErrorData

eras = pytest.mark.parametrize("era", ERAS)


def done(words: str = "done") -> Answer:
    return mcp.CreateMessageResult(role="assistant", content=mcp.TextContent(text=words), model="m")


def calls(tool: str = "ls", number: int = 1, **arguments: object) -> Answer:
    use = mcp.ToolUseContent(id=f"c{number}", name=tool, input=arguments)
    return mcp.CreateMessageResultWithTools(role="assistant", content=[use], model="m", stop_reason="toolUse")


class Sampler:
    """The model of a client: looks `looks` times, then says "done"."""

    def __init__(self, looks: float = 2, answer: Callable[[Params], Answer] | None = None) -> None:
        self.asked: list[Params] = []
        self._looks = looks
        self._answer = answer or self._scripted

    async def __call__(self, _: ClientRequestContext, params: Params) -> Answer:
        self.asked.append(params)
        return self._answer(params)

    def _scripted(self, params: Params) -> Answer:
        turns = sum(message.role == "assistant" for message in params.messages)
        return calls(number=turns) if turns < self._looks else done()

    @property
    def options(self) -> dict[str, Any]:
        return {"sampling_callback": self, "sampling_capabilities": TOOLS}


@asynccontextmanager
async def in_memory(
    app: Application, era: str, sampler: Sampler | None = None, **options: Any
) -> AsyncGenerator[Client]:
    """A client of a server in this process."""
    options |= sampler.options if sampler else {}
    server = mcp_server(app, only_client="local")
    async with Client(server, mode=era, read_timeout_seconds=20, **options) as client:
        yield client


def outcome(result: mcp.CallToolResult) -> str:
    """What an agent answered, and after how many turns."""
    return re.sub(r"\n\[agent_\w+ finished; (\d turns?), [1-9][\d,]* tokens\]$", r" after \1", text(result))


LONG = (("http", "auto"), ("sse", "legacy"))


async def idle(app: Application) -> None:
    """Wait until no call and no agent runs."""
    await until(lambda: not app.background._tasks)


@pytest.mark.parametrize(
    ("transport", "era"),
    [("stdio", "legacy"), *(pytest.param(*one, marks=pytest.mark.long) for one in LONG)],
)
async def test_an_agent_uses_the_model_of_its_client(transport: str, era: str, tmp_path: Path) -> None:
    sampler, heard = Sampler(), list[str | None]()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with connected(Setup.below(tmp_path), transport, era, **sampler.options) as client:
        result = await client.call_tool("Agent", {**TASK, "model": "small"}, progress_callback=hear)
        later = await client.call_tool("Agent", {**TASK, "run_in_background": True})
    assert outcome(result) == "done after 3 turns"
    first, *_, last = sampler.asked
    assert first.max_tokens == 8192
    assert str(tmp_path / "root") in (first.system_prompt or "")
    assert "ls" in {tool.name for tool in first.tools or ()}
    assert first.model_preferences is not None
    assert [hint.name for hint in first.model_preferences.hints or ()] == ["small"]
    assert [message.role for message in last.messages] == ["user", "assistant", "user", "assistant", "user"]
    [reply] = last.messages[-1].content_as_list
    assert isinstance(reply, mcp.ToolResultContent)
    assert (reply.tool_use_id, reply.is_error) == ("c1", None)
    assert [one for one in heard if one and "waits" in one] == [
        f"a test: turn {turn}: waits for its model" for turn in (1, 2, 3)
    ]
    assert later.is_error
    assert "Leave run_in_background out" in text(later)


@pytest.mark.requirement("SW-56")
@eras
async def test_tools_are_listed_where_they_can_work(era: str, tmp_path: Path) -> None:
    """The list of the stateless protocol is the same for every client, so it has no tool that needs one's.

    A model that uses no tools is none.
    """
    without_tools = {**Sampler().options, "sampling_capabilities": mcp.SamplingCapability()}
    async with place(tmp_path) as made:
        async with in_memory(made.app, era, Sampler()) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert ("Agent" in names) == (era == "legacy")
        async with in_memory(made.app, era, **without_tools) as client:
            assert "Agent" not in [tool.name for tool in (await client.list_tools()).tools]
            result = await client.call_tool("Agent", TASK)
    assert result.is_error
    assert text(result).startswith("Agent spawner not available.")
    assert "[agent]" in text(result)


async def test_stateless_clients_answer_at_most_ten_times(tmp_path: Path) -> None:
    async def approve(_: ClientRequestContext, __: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        return mcp.ElicitResult(action="accept", content={"decision": "allow"})

    # A question to the user, which comes before, takes one of the rounds.
    sampler = Sampler(answer=lambda params: calls() if params.tools else done("this far"))
    async with (
        place(tmp_path, ask=("Agent",)) as made,
        in_memory(made.app, "auto", sampler, elicitation_callback=approve) as client,
    ):
        result = await client.call_tool("Agent", TASK)
    assert re.search(rf"^this far\n.*\n\[.* {sampling.EXHAUSTED}; 8 turns", text(result)), text(result)
    assert result.is_error
    assert len(sampler.asked) == sampling.LAST_TURNS - 1
    *before, last = sampler.asked
    assert last.tools is None
    assert (last.system_prompt or "").endswith(LAST_TURN)
    assert all(params.tools for params in before)


@eras
async def test_an_agent_of_an_agent_uses_the_model_too(era: str, tmp_path: Path) -> None:
    """Also for a client with tasks: a task has no turns of a model, so the call becomes none."""

    def answer(params: Params) -> Answer:
        inner = params.messages[0].content == mcp.TextContent(text="inner")
        if inner or len(params.messages) > 1:
            return done("inner" if inner else "outer")
        return calls("Agent", description="x", prompt="inner")

    sampler = Sampler(answer=answer)
    tasks: dict[str, Any] = {"extensions": [advertise(EXTENSION, {})]} if era == "auto" else {}
    async with place(tmp_path) as made, in_memory(made.app, era, sampler, **tasks) as client:
        assert outcome(await client.call_tool("Agent", TASK)) == "outer after 2 turns"
    assert "inner" in str(sampler.asked[-1].messages[-1])
    assert len(sampler.asked) == 3


async def test_a_call_through_another_tool_uses_the_model_and_a_state_is_valid_once(tmp_path: Path) -> None:
    async with place(tmp_path) as made, in_memory(made.app, "auto", Sampler()) as client:
        through = await client.call_tool("CallTool", {"name": "Agent", "arguments": TASK})
        assert outcome(through) == "done after 3 turns"
        wrong = await client.call_tool("CallTool", {"name": "Agent", "arguments": {"prompt": 1}})
        assert wrong.is_error
        assert (await client.call_tool("CallTool", {"name": "CallTool", "arguments": {}})).is_error
        first = await begun(client)
        second = await continued(client, first, [calls()])
        assert isinstance(second, mcp.InputRequiredResult)
        assert second.request_state != first.request_state
        assert "This call has ended" in text(await ended(client, first, calls()))
        assert outcome(await ended(client, second, done())) == "done after 2 turns"
        first = await begun(client)
        with pytest.raises(MCPError):
            await continued(client, first, [done()], prompt="another")
        assert outcome(await ended(client, first, done())) == "done after 1 turn"
        # Without an answer the agent learns that the client refused.
        assert text(await ended(client, await begun(client))).startswith("The client did not let")


async def test_a_client_with_a_handshake_has_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "TURN_SECONDS", 0.05)

    class Silent(Sampler):
        async def __call__(self, _: ClientRequestContext, params: Params) -> Answer:
            await anyio.sleep_forever()
            raise AssertionError

    async with place(tmp_path) as made, in_memory(made.app, "legacy", Silent()) as client:
        result = await client.call_tool("Agent", TASK)
    assert result.is_error
    assert "did not answer within" in text(result)


@eras
async def test_the_model_of_a_client_answers_only_during_its_call(era: str, tmp_path: Path) -> None:
    models: list[Model | None] = []
    async with place(tmp_path) as made:
        host = made.app.dispatcher.host
        own = host.providers[Capability.AGENTS]

        def keeps(request: ServiceRequest) -> object:
            detached = request.calls.detached(owner="later", name="later")
            models.extend((request.user.caller.sampling(), detached.caller.sampling()))
            return own(request)

        keeping = replace(host, providers={**host.providers, Capability.AGENTS: keeps})
        made.app.dispatcher = replace(made.app.dispatcher, host=keeping)
        async with in_memory(made.app, era, Sampler(looks=0)) as client:
            assert outcome(await client.call_tool("Agent", TASK)) == "done after 1 turn"
            model, detached = models
            assert model is detached
            assert model is not None
            with pytest.raises(Unavailable, match=re.escape(sampling.NO_REQUEST)):
                await model.turn(ModelRequest(system="", messages=(UserText("x"),)))


async def begun(client: Client) -> mcp.InputRequiredResult:
    result = await client.session.call_tool("Agent", TASK, allow_input_required=True)
    assert isinstance(result, mcp.InputRequiredResult)
    return result


async def continued(
    client: Client, before: mcp.InputRequiredResult, answers: Sequence[Answer], **arguments: Any
) -> mcp.CallToolResult | mcp.InputRequiredResult:
    responses: Any = dict(zip(before.input_requests or {}, answers, strict=False))
    return await client.session.call_tool(
        "Agent",
        {**TASK, **arguments},
        input_responses=responses,
        request_state=before.request_state,
        allow_input_required=True,
    )


async def ended(client: Client, before: mcp.InputRequiredResult, *answers: Answer) -> mcp.CallToolResult:
    """The result of the call, which these answers end."""
    result = await continued(client, before, answers)
    assert isinstance(result, mcp.CallToolResult)
    return result


async def test_a_call_that_waited_too_long_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "TURN_SECONDS", 0.05)
    async with place(tmp_path) as made, in_memory(made.app, "auto", Sampler()) as client:
        first = await begun(client)
        await idle(made.app)
        assert "This call has ended" in text(await ended(client, first, done()))


async def test_cancelling_a_request_cancels_its_call(tmp_path: Path) -> None:
    heard: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    sampler = Sampler(answer=lambda _: calls("Sleep", duration_ms=300_000))
    async with place(tmp_path) as made, in_memory(made.app, "auto", sampler) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: client.call_tool("Agent", TASK, progress_callback=hear))
            await until(lambda: any("calls Sleep" in one for one in heard))
            tasks.cancel_scope.cancel()
        await idle(made.app)


async def test_forgetting_a_client_cancels_its_calls(tmp_path: Path) -> None:
    async with place(tmp_path) as made, in_memory(made.app, "auto", Sampler()) as client:
        first = await begun(client)
        made.app.changes.forget("somebody else")
        first = await continued(client, first, [calls()])
        assert isinstance(first, mcp.InputRequiredResult)
        made.app.changes.forget("local")
        await idle(made.app)
        assert "This call has ended" in text(await ended(client, first, done()))


async def test_a_client_has_a_limited_number_of_calls_in_rounds_which_its_leaving_ends(
    tmp_path: Path,
) -> None:
    async with place(tmp_path) as made, in_memory(made.app, "auto", Sampler()) as client:
        waiting = [await begun(client) for _ in range(sampling.CALLS_OF_ONE)]
        refused = await client.session.call_tool("Agent", TASK, allow_input_required=True)
        assert isinstance(refused, mcp.CallToolResult)
        assert "Too many calls" in text(refused)
        await continued(client, waiting[0], [done()])
        await begun(client)
    # The end of the server cancels what waits; the audit log has it.
    entries = "".join(file.read_text(encoding="utf-8") for file in (tmp_path / "state/audit").glob("*.jsonl"))
    assert '"cancelled"' in entries


def alone() -> sampling.RoundCall:
    handlers: Any = SimpleNamespace(questions=None, ask_seconds=1, client_ids=SimpleNamespace(id_for=str))
    context: Any = SimpleNamespace(session=SimpleNamespace(client_params=None), request=None)
    return sampling.RoundCall(handlers, context, mcp.CallToolRequestParams(name="x"))


async def test_turns_at_the_same_time_share_a_round_and_later_ones_wait_until_there_is_none() -> None:
    async def turns() -> Result:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "first")
            tasks.start_soon(one, "second")
            await asked.wait()
            tasks.start_soon(one, "third")
        # Only an agent whose own agents used the last rounds comes to this.
        call.rounds = sampling.MAX_ROUNDS
        assert (await call.turn(ModelRequest(system="", messages=()))).limit == sampling.EXHAUSTED
        return Result(text=" ".join(sorted(said)))

    async def one(words: str) -> None:
        turn = await call.turn(ModelRequest(system="", messages=(UserText(words),)))
        said.append(f"{words}: {turn.text}")

    asked, said = anyio.Event(), list[str]()
    call = alone()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run, turns)
        assert list(await call.next_questions()) == ["turn-1", "turn-2"]
        asked.set()
        with anyio.fail_after(5):
            while len(call._turns) < 3:
                await anyio.lowlevel.checkpoint()
        call.take({"turn-1": done("1"), "turn-2": done("2")})
        assert list(await call.next_questions()) == ["turn-3"]
        call.take({"turn-3": done("3")})
        assert await call.next_questions() == {}
    assert getattr(call.result, "text", "") == "first: 1 second: 2 third: 3"


def test_a_conversation_becomes_messages_of_the_protocol() -> None:
    call = ToolCall(id="c", name="look", arguments="{broken")
    request = ModelRequest(
        system="",
        messages=(
            UserText("x"),
            ModelTurn(text=""),
            ModelTurn(text="I look", calls=(call,)),
            (ToolReply(id="c", name="look", text="no JSON", is_error=True),),
        ),
    )
    params = create_message(request).params
    assert (params.system_prompt, params.tools, params.model_preferences) == (None, None, None)
    user, assistant, replies = params.messages
    assert user.content == mcp.TextContent(text="x")
    said, use = assistant.content_as_list
    assert said == mcp.TextContent(text="I look")
    assert use == mcp.ToolUseContent(id="c", name="look", input={"invalid": "{broken"})
    [reply] = replies.content_as_list
    assert isinstance(reply, mcp.ToolResultContent)
    assert reply.is_error
