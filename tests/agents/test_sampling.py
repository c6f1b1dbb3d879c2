"""Agents that use the client's own model, with the official client over every transport."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
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

from mcp_toolserver.app.serve import mcp_server
from mcp_toolserver.capabilities.model import ModelRequest, ModelTurn, ToolCall, ToolReply, UserText
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.nested_calls import NestedCalls
from mcp_toolserver.pipeline.rights import Rights
from mcp_toolserver.protocol.sampling import back_channel, rounds
from mcp_toolserver.protocol.sampling.messages import LAST_TURN, create_message
from mcp_toolserver.protocol.tasks.feature import EXTENSION
from tests.agents import sampling_server
from tests.agents.sampling_server import SYSTEM, with_delegate
from tests.protocol.resource_clients import place
from tests.support.live import ERAS, TRANSPORTS, Setup, connected, text
from tests.support.workbench import Person

TOOLS = mcp.SamplingCapability(tools=mcp.SamplingToolsCapability())

Params = mcp.CreateMessageRequestParams
Answer = mcp.CreateMessageResult | mcp.CreateMessageResultWithTools | mcp.ErrorData


def done(words: str = "done") -> Answer:
    return mcp.CreateMessageResult(role="assistant", content=mcp.TextContent(text=words), model="m")


def looks(*at: object) -> Answer:
    calls = [mcp.ToolUseContent(id=f"c{n}", name="look", input={"at": one}) for n, one in enumerate(at)]
    return mcp.CreateMessageResultWithTools(
        role="assistant", content=[*calls], model="m", stop_reason="toolUse"
    )


class Sampler:
    """The model of a client: looks `calls` times, then says "done"."""

    def __init__(self, calls: float = 2, answer: Callable[[Params], Answer] | None = None) -> None:
        self.asked: list[Params] = []
        self._calls = calls
        self._answer = answer or self._scripted

    async def __call__(self, _: ClientRequestContext, params: Params) -> Answer:
        self.asked.append(params)
        return self._answer(params)

    def _scripted(self, params: Params) -> Answer:
        results = sum(message.role == "assistant" for message in params.messages)
        return looks(results) if results < self._calls else done()

    @property
    def options(self) -> dict[str, Any]:
        return {"sampling_callback": self, "sampling_capabilities": TOOLS}


class SamplingSetup(Setup):
    """A server with the tool `delegate`."""

    @property
    def command(self) -> list[str]:
        return [
            "tests.agents.sampling_server" if word == "mcp_toolserver" else word for word in super().command
        ]


@asynccontextmanager
async def in_memory(
    folder: Path, era: str, sampler: Sampler | None, *, settings: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[Client]:
    """The server in this process, and a client."""
    sampling_server.LATER = sampling_server.Later()
    async with place(folder, **(settings or {})) as made:
        server = mcp_server(with_delegate(made.app), only_client="local")
        options |= sampler.options if sampler else {}
        async with Client(server, mode=era, read_timeout_seconds=20, **options) as client:
            yield client


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_agent_uses_the_model_of_its_client(transport: str, era: str, tmp_path: Path) -> None:
    sampler, heard = Sampler(), list[str | None]()
    setup = SamplingSetup.below(tmp_path)

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with connected(setup, transport, era, **sampler.options) as client:
        result = await client.call_tool(
            "delegate", {"task": "find", "model": "small"}, progress_callback=hear
        )
    assert text(result) == "done after 3 turns, tokens: True"
    first, *_, last = sampler.asked
    assert (first.system_prompt, first.max_tokens) == (SYSTEM, 8192)
    assert [tool.name for tool in first.tools or ()] == ["look"]
    assert first.model_preferences is not None
    assert [hint.name for hint in first.model_preferences.hints or ()] == ["small"]
    assert [message.role for message in last.messages] == ["user", "assistant", "user", "assistant", "user"]
    [reply] = last.messages[-1].content_as_list
    assert isinstance(reply, mcp.ToolResultContent)
    assert (reply.tool_use_id, reply.is_error) == ("c0", None)
    assert heard == ["turn 1", "turn 2", "turn 3"]


@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_listed_where_they_can_work(era: str, tmp_path: Path) -> None:
    """The list of the stateless protocol is the same for every client, so it has no tool that needs one's."""
    async with in_memory(tmp_path, era, Sampler()) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert ("delegate" in names) == (era == "legacy")
    async with in_memory(tmp_path, era, None) as client:
        assert "delegate" not in [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_model_a_call_says_what_to_configure(era: str, tmp_path: Path) -> None:
    sampler = Sampler()
    # The second client has a model that uses no tools.
    without_tools = {**sampler.options, "sampling_capabilities": mcp.SamplingCapability()}
    declared: tuple[dict[str, Any], ...] = ({}, without_tools)
    for options in declared:
        async with in_memory(tmp_path, era, None, **options) as client:
            result = await client.call_tool("delegate", {"task": "find"})
        assert result.is_error
        assert text(result).startswith("Agent spawner not available.")
        assert "[agent]" in text(result)
    assert sampler.asked == []


async def test_stateless_clients_answer_at_most_ten_times(tmp_path: Path) -> None:
    async def approve(_: ClientRequestContext, __: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        return mcp.ElicitResult(action="accept", content={"decision": "allow"})

    sampler = Sampler(calls=99)
    async with in_memory(tmp_path, "auto", sampler) as client:
        result = await client.call_tool("delegate", {"task": "find"})
    # What the model calls in the last turn is dropped, so an answer of calls alone is none.
    assert "without text and without a call" in text(result)
    assert len(sampler.asked) == rounds.LAST_TURNS
    *before, last = sampler.asked
    assert last.tools is None
    assert (last.system_prompt or "").endswith(LAST_TURN)
    assert all(params.tools for params in before)
    # An agent ends with what it has. A question to the user, which comes before, takes one of the rounds.
    sampler = Sampler(answer=lambda params: looks(1) if params.tools else done("this far"))
    rules = {"ask": ("capability:agents",)}
    async with in_memory(tmp_path, "auto", sampler, elicitation_callback=approve, settings=rules) as client:
        result = await client.call_tool("delegate", {"task": "find"})
    assert text(result) == "this far after 8 turns, tokens: True"
    assert len(sampler.asked) == rounds.LAST_TURNS - 1


@pytest.mark.parametrize("era", ERAS)
async def test_agents_of_one_call_use_the_model_at_the_same_time(era: str, tmp_path: Path) -> None:
    """Also for a client with tasks: a task has no turns of a model, so the call becomes none."""
    sampler = Sampler()
    tasks: dict[str, Any] = {"extensions": [advertise(EXTENSION, {})]} if era == "auto" else {}
    async with in_memory(tmp_path, era, sampler, **tasks) as client:
        result = await client.call_tool("delegate", {"task": "find", "agents": 3})
    assert text(result).splitlines() == ["done after 3 turns, tokens: True"] * 3
    assert len(sampler.asked) == 9


async def test_a_call_through_another_tool_uses_the_model_too(tmp_path: Path) -> None:
    arguments = {"name": "delegate", "arguments": {"task": "x"}}
    async with in_memory(tmp_path, "auto", Sampler()) as client:
        assert text(await client.call_tool("CallTool", arguments)) == "done after 3 turns, tokens: True"
        wrong = await client.call_tool("CallTool", {"name": "delegate", "arguments": {"task": 1}})
        assert wrong.is_error
        assert (await client.call_tool("CallTool", {"name": "CallTool", "arguments": {}})).is_error


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_may_refuse(era: str, tmp_path: Path) -> None:
    sampler = Sampler(answer=lambda _: mcp.ErrorData(code=-1, message="the user says no"))
    async with in_memory(tmp_path, era, sampler) as client:
        if era == "legacy":
            said = text(await client.call_tool("delegate", {"task": "find"}))
            assert said.startswith("unavailable after 0 turns: The client did not let its model answer")
        else:
            # The official client ends the call itself.
            with pytest.raises(MCPError, match="the user says no"):
                await client.call_tool("delegate", {"task": "find"})


async def test_a_client_with_a_handshake_has_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_channel, "TURN_SECONDS", 0.05)

    class Silent(Sampler):
        async def __call__(self, _: ClientRequestContext, params: Params) -> Answer:
            await anyio.sleep_forever()
            raise AssertionError

    async with in_memory(tmp_path, "legacy", Silent()) as client:
        said = text(await client.call_tool("delegate", {"task": "find"}))
    assert said.startswith("timed_out after 0 turns")


@pytest.mark.parametrize("era", ERAS)
async def test_the_model_of_a_client_answers_only_during_its_call(era: str, tmp_path: Path) -> None:
    sampler = Sampler()
    async with in_memory(tmp_path, era, sampler) as client:
        assert text(await client.call_tool("delegate", {"task": "x", "later": True})) == "started"
        sampling_server.LATER.answered.set()
        with anyio.fail_after(5):
            await sampling_server.LATER.ended.wait()
    assert sampling_server.LATER.said == f"unavailable after 0 turns: {back_channel.NO_REQUEST}"
    assert sampler.asked == []


# --- a stateless client of one's own ---------------------------------------------------------------------


async def begun(client: Client, **arguments: Any) -> mcp.InputRequiredResult:
    result = await client.session.call_tool("delegate", {"task": "x", **arguments}, allow_input_required=True)
    assert isinstance(result, mcp.InputRequiredResult)
    return result


async def continued(
    client: Client, before: mcp.InputRequiredResult, answers: Sequence[Answer], **arguments: Any
) -> mcp.CallToolResult | mcp.InputRequiredResult:
    responses: Any = dict(zip(before.input_requests or {}, answers, strict=False))
    return await client.session.call_tool(
        "delegate",
        {"task": "x", **arguments},
        input_responses=responses,
        request_state=before.request_state,
        allow_input_required=True,
    )


async def ended(client: Client, before: mcp.InputRequiredResult, *answers: Answer) -> str:
    """The text of the call, which these answers end."""
    result = await continued(client, before, answers)
    assert isinstance(result, mcp.CallToolResult)
    return text(result)


async def test_a_state_is_valid_once_and_for_one_call(tmp_path: Path) -> None:
    async with in_memory(tmp_path, "auto", Sampler()) as client:
        first = await begun(client)
        second = await continued(client, first, [looks(1)])
        assert isinstance(second, mcp.InputRequiredResult)
        assert second.request_state != first.request_state
        assert "This call has ended" in await ended(client, first, looks(1))
        assert await ended(client, second, done()) == "done after 2 turns, tokens: True"
        first = await begun(client)
        with pytest.raises(MCPError):
            await continued(client, first, [done()], task="another")
        assert await ended(client, first, done()) == "done after 1 turns, tokens: True"
        # Without an answer the agent learns that the client refused.
        assert "unavailable after 0 turns: The client did not let" in await ended(client, await begun(client))


async def test_a_call_that_waited_too_long_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "TURN_SECONDS", 0.05)
    async with in_memory(tmp_path, "auto", Sampler()) as client:
        first = await begun(client)
        with anyio.fail_after(5):
            await sampling_server.LATER.ended.wait()
        assert "This call has ended" in await ended(client, first, done())


async def test_after_the_last_round_the_model_is_not_asked() -> None:
    """Only an agent whose own agents used the last rounds comes to this."""

    async def work() -> Result:
        try:
            await call.turn(ModelRequest(system="", messages=(UserText("x"),)))
        except Unavailable as error:
            return Result(text=str(error))
        raise AssertionError

    client: Any = SimpleNamespace(owner="o")
    call = rounds.RoundCall(client, mcp.CallToolRequestParams(name="x"), rounds=rounds.MAX_ROUNDS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run, work)
        assert await call.next_questions() == {}
    assert call.result is not None
    assert "answers at most 10 times" in call.result.text


async def test_cancelling_a_request_cancels_its_call(tmp_path: Path) -> None:
    async with in_memory(tmp_path, "auto", Sampler()) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "delegate", {"task": "x", "hangs": True})
            with anyio.fail_after(5):
                await sampling_server.LATER.answered.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            await sampling_server.LATER.ended.wait()


async def test_forgetting_a_client_cancels_its_calls(tmp_path: Path) -> None:
    sampling_server.LATER = sampling_server.Later()
    async with place(tmp_path) as made:
        server = mcp_server(with_delegate(made.app), only_client="local")
        async with Client(server, mode="auto", **Sampler().options) as client:
            first = await begun(client)
            made.app.changes.forget("somebody else")
            made.app.changes.forget("local")
            with anyio.fail_after(5):
                await sampling_server.LATER.ended.wait()
            assert "This call has ended" in await ended(client, first, done())


async def test_a_turn_that_no_round_has_asked_for_yet_waits_for_the_next() -> None:
    async def turns() -> Result:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "first")
            await asked.wait()
            tasks.start_soon(one, "second")
        return Result(text=" ".join(said))

    async def one(words: str) -> None:
        turn = await call.turn(ModelRequest(system="", messages=(UserText(words),)))
        said.append(f"{words}: {turn.text}")

    asked, said = anyio.Event(), list[str]()
    client: Any = SimpleNamespace(owner="o")
    call = rounds.RoundCall(client, mcp.CallToolRequestParams(name="x"), rounds=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run, turns)
        assert list(await call.next_questions()) == ["turn-1"]
        asked.set()
        with anyio.fail_after(5):
            while len(call._questions) < 2:
                await anyio.lowlevel.checkpoint()
        call.take({"turn-1": done("1")})
        assert list(await call.next_questions()) == ["turn-2"]
        call.take({"turn-2": done("2")})
        assert await call.next_questions() == {}
    assert call.result is not None
    assert call.result.text == "first: 1 second: 2"


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


async def test_a_client_has_a_limited_number_of_calls_in_rounds_which_its_leaving_ends(
    tmp_path: Path,
) -> None:
    async with in_memory(tmp_path, "auto", Sampler()) as client:
        waiting = [await begun(client) for _ in range(rounds.CALLS_OF_ONE)]
        refused = await client.session.call_tool("delegate", {"task": "x"}, allow_input_required=True)
        assert isinstance(refused, mcp.CallToolResult)
        assert "Too many calls" in text(refused)
        await continued(client, waiting[0], [done()])
        await begun(client)
    # The end of the server cancels what waits; the audit log has it.
    entries = "".join(file.read_text(encoding="utf-8") for file in (tmp_path / "state/audit").glob("*.jsonl"))
    assert '"cancelled"' in entries


async def test_agents_see_tools_that_need_a_model_only_where_there_is_one(tmp_path: Path) -> None:
    async with place(tmp_path) as made:
        served = with_delegate(made.app).dispatcher
        model: Any = object()
        found = {
            person.model is model: {
                entry.spec.name
                for entry in NestedCalls(dispatcher=served, caller=person, rights=Rights()).entries()
            }
            for person in (Person(), Person(model=model))
        }
    assert found[True] - found[False] >= {"delegate"}
