"""Calls that outlive their request: what the client learns of them, and what becomes of the work."""

import re
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
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
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.capabilities.user import Question
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.protocol import elicitation
from mcp_toolserver.protocol.handlers import Handlers, known_client
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.tasks.feature import EXTENSION, TaskFeature
from mcp_toolserver.protocol.tasks.task import Task, Wire
from mcp_toolserver.protocol.tasks.tasks import TaskLimits, Tasks
from mcp_toolserver.runtime.processes.commands import CommandLimits
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.tasks import StoredTasks, TaskRetention
from mcp_toolserver.tools.search.call_tool import TOOL as CALL_TOOL
from tests.conformance.task_tools import TaskTools
from tests.protocol.resource_clients import place
from tests.support import http_server, processes
from tests.support.following import PATIENCE, Anything, Follower, KnowsTasks, bare, following, options, said
from tests.support.live import connected_to
from tests.support.processes import until
from tests.support.workbench import Args, Output, Runtime, dispatcher, machine, required, tool

AT_ONCE = TaskLimits(grace=0.01)
YES = {"action": "accept", "content": {"decision": "allow"}}


@dataclass
class Work:
    """What a long tool does, and what has become of it."""

    begun: int = 0
    cancelled: int = 0
    words: Sequence[str] = ()
    go_on: anyio.Event = field(default_factory=anyio.Event)
    answer: Output = field(default_factory=lambda: Output("done"))

    async def run(self, _: Args, rt: Runtime) -> Output:
        self.begun += 1
        for word in self.words:
            await rt.report(word)
        try:
            await self.go_on.wait()
        except BaseException:
            self.cancelled += 1
            raise
        return self.answer


@dataclass
class Stand:
    """A server with tasks."""

    server: ToolServer
    store: StoredTasks
    handlers: Handlers
    outcomes: list[str]
    """Of every call the tool and what became of it."""
    notified: list[Wire]


def stand(
    folder: Path,
    *tools: Entry,
    limits: TaskLimits = AT_ONCE,
    bounds: TaskRetention | None = None,
    ask: Sequence[str] = (),
    served: Dispatcher | None = None,
    only_client: str = "",
) -> Stand:
    """A server of `tools`, which keeps its tasks in `folder/kept`."""
    outcomes, notified = list[str](), list[Wire]()
    observers = (lambda call: outcomes.append(f"{call.tool}: {call.outcome}"),)
    target = replace(served or dispatcher(machine(folder), *tools, ask=ask), observers=observers)
    handlers = Handlers(dispatcher=target, ask_seconds=5, only_client=only_client)
    store = StoredTasks(Database(str(folder / "kept"), ["root"]), bounds)
    tasks = Tasks(handlers, store, principal="me", limits=limits)
    tasks.changed = notified.append
    server = ToolServer(handlers, "hello", [TaskFeature(lambda: tasks).join, TaskTools().join])
    return Stand(server, store, handlers, outcomes, notified)


def long(work: Work, **more: Any) -> Entry:
    return tool(work.run, may_be_long=True, **more)


@asynccontextmanager
async def talking(
    folder: Path, *tools: Entry, can_be_asked: bool = False, **options_of_server: Any
) -> AsyncGenerator[tuple[Stand, Follower]]:
    """A server of a long tool or of `tools`, and a client of it."""
    made = stand(folder, *(tools or (long(Work()),)), **options_of_server)
    more: dict[str, Any] = {"elicitation_callback": nobody} if can_be_asked else {}
    async with following(made.server, **more) as client:
        yield made, client


async def nobody(context: object, params: object) -> mcp.ElicitResult:
    raise AssertionError("a task is not asked about in its request")


async def code_of(request: Awaitable[object]) -> int:
    """The code of the error that answers a request."""
    with pytest.raises(MCPError) as failure:
        await request
    return failure.value.code


def changed_to(notified: Sequence[Wire]) -> list[object]:
    """The announced statuses, each once."""
    found = [one["status"] for one in notified]
    return [status for number, status in enumerate(found) if found[number - 1 : number] != [status]]


# --- how a call becomes a task ---------------------------------------------------------------------------


async def test_a_call_that_ends_soon_or_of_a_tool_that_is_never_long_is_answered_as_any_other(
    tmp_path: Path,
) -> None:
    async def late(_: Args, __: Runtime) -> Output:
        await anyio.sleep(0.05)
        return Output("late")

    async with talking(tmp_path, tool(late)) as (_, client):
        assert said(await client.call("probe")) == "late"
    work = Work()
    work.go_on.set()
    async with talking(tmp_path, long(work), limits=TaskLimits()) as (made, client):
        answer = await client.call("probe")
    assert (answer["resultType"], said(answer)) == ("complete", "done")
    assert not (tmp_path / "kept").exists()
    assert made.notified == []
    assert made.outcomes == ["probe: output"]


async def test_a_call_that_takes_longer_is_followed_by_its_handle(tmp_path: Path) -> None:
    work = Work(words=["looking", "half way"])
    async with talking(tmp_path, long(work)) as (made, client):
        handle = await client.call("probe")
        assert handle["status"] == "working"
        assert handle["pollIntervalMs"] > 0
        assert handle["ttlMs"] >= 3_600_000
        assert re.fullmatch(r"task_[0-9a-f]{32}", handle["taskId"])
        for moment in ("createdAt", "lastUpdatedAt"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", handle[moment])
        state = await client.get(handle["taskId"])
        assert (state["status"], state["statusMessage"]) == ("working", "half way")
        assert not state.keys() & {"result", "error", "inputRequests"}
        work.go_on.set()
        state = await client.ended(handle["taskId"])
        again = await client.get(handle["taskId"])
    assert (state["status"], said(state["result"])) == ("completed", "done")
    assert "io.modelcontextprotocol/related-task" not in state["result"].get("_meta", {})
    assert bare(again) == bare(state)
    assert (work.begun, made.outcomes) == (1, ["probe: output"])
    assert changed_to(made.notified) == ["completed"]


async def test_a_call_of_another_tool_is_as_long_as_that(tmp_path: Path) -> None:
    work = Work()
    async with talking(tmp_path, long(work), Entry(CALL_TOOL, toolset="search")) as (made, client):
        task = await client.begun("CallTool", name="probe", arguments={})
        work.go_on.set()
        assert said((await client.ended(task))["result"]) == "done"
        assert (await client.call("CallTool", name="nothing", arguments={}))["isError"]
    assert made.outcomes == ["probe: output", "CallTool: not_found"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_that_does_not_know_tasks_waits_for_the_answer(tmp_path: Path, mode: str) -> None:
    work, heard = Work(words=["looking"]), list[str | None]()
    made = stand(tmp_path, long(work))

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)
        work.go_on.set()

    async with Client(made.server, mode=mode, read_timeout_seconds=10) as client:
        answer = await client.call_tool("probe", {}, progress_callback=progress)
        with pytest.raises(MCPError) as failure:
            await Follower(client).ask("tasks/get", "task_" + "0" * 32)
    assert answer.content[0] == mcp.TextContent(type="text", text="done")
    assert heard == ["looking"]
    assert not (tmp_path / "kept").exists()
    if mode == "legacy":
        assert failure.value.code == mcp.METHOD_NOT_FOUND
    else:
        assert failure.value.code == mcp.MISSING_REQUIRED_CLIENT_CAPABILITY
        assert failure.value.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


async def test_a_tool_that_must_be_a_task_is_refused_to_others(tmp_path: Path) -> None:
    async with Client(stand(tmp_path, long(Work())).server, mode="auto", read_timeout_seconds=10) as client:
        code = await code_of(client.call_tool("failing_job", {}))
    assert code == mcp.MISSING_REQUIRED_CLIENT_CAPABILITY


# --- its end ---------------------------------------------------------------------------------------------


async def test_a_client_that_leaves_before_it_has_the_handle_ends_the_work(tmp_path: Path) -> None:
    work = Work()
    made = stand(tmp_path, long(work), limits=TaskLimits())
    async with following(made.server) as client, anyio.create_task_group() as group:
        group.start_soon(client.call, "probe")
        await processes.until(lambda: work.begun == 1)
        group.cancel_scope.cancel()
    assert made.outcomes == ["probe: cancelled"]
    assert not (tmp_path / "kept").exists()


async def test_another_server_of_the_workspace_knows_the_task_and_leaves_it_alone(tmp_path: Path) -> None:
    work = Work()
    made, other = stand(tmp_path, long(work)), stand(tmp_path, long(Work()))
    async with following(made.server) as client, following(other.server) as stranger:
        task = await client.begun("probe")
        assert (await stranger.get(task))["status"] == "working"
        assert await code_of(stranger.cancel(task)) == mcp.INVALID_PARAMS
        work.go_on.set()
        await client.ended(task)
        await stranger.update(task, {"approval-1": YES})
        await stranger.cancel(task)
        assert said((await stranger.get(task))["result"]) == "done"


async def test_a_failure_of_the_call_is_a_result_and_one_of_the_protocol_an_error(tmp_path: Path) -> None:
    accepted: list[object] = []
    async with talking(tmp_path) as (_, client):
        for tool, status in (("failing_job", "completed"), ("protocol_error_job", "failed")):
            task = await client.begun(tool)
            state = await client.ended(task)
            assert state["status"] == status
            await client.update(task, {"approval-1": YES})
            assert bare(await client.get(task)) == bare(state)
            if status == "completed":
                assert state["result"]["isError"]
            else:
                assert (state["error"]["code"], "result" in state) == (mcp.INTERNAL_ERROR, False)
        assert (client.client.server_capabilities.extensions or {})[EXTENSION] == {}
        assert await code_of(client.call("nothing")) == mcp.INVALID_PARAMS
        for method in ("tasks/list", "tasks/result"):
            assert await code_of(client.ask(method, "task_" + "0" * 32)) == mcp.METHOD_NOT_FOUND
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            for task in ("task_" + "0" * 32, "made up", "", 7, None):
                request = mcp.Request[dict[str, Any], str](
                    method=method, params={"taskId": task, "inputResponses": {}}
                )
                send = client.client.session.send_request(request, mcp.EmptyResult)
                if await code_of(send) != mcp.INVALID_PARAMS:
                    accepted.append((method, task))
    assert accepted == []


@pytest.mark.parametrize("grace", [0.0, 5.0], ids=["as a task", "in its request"])
async def test_a_bug_ends_one_task_and_tells_nobody_how(tmp_path: Path, grace: float) -> None:
    go_on = anyio.Event()

    async def work(_: Task) -> Wire:
        await go_on.wait()
        raise ValueError("a secret")

    async def call(context: Any, _: mcp.CallToolRequestParams) -> Wire:
        feature: TaskFeature = context.lifespan_context[EXTENSION]
        return await feature.tasks().carry(context, work, grace=grace)

    made = stand(tmp_path, long(Work()))
    made.server.add_request_handler("tools/call", mcp.CallToolRequestParams, call)
    async with following(made.server) as client:
        if grace:
            go_on.set()
            with pytest.raises(MCPError) as failure:
                await client.call("probe")
            error = {"code": failure.value.code, "message": failure.value.message}
        else:
            task = await client.begun("probe")
            go_on.set()
            error = (await client.ended(task))["error"]
    assert error["code"] == mcp.INTERNAL_ERROR
    assert "secret" not in error["message"]


async def test_an_end_while_the_handle_is_being_written_is_the_answer(tmp_path: Path) -> None:
    class Slow(StoredTasks):
        async def keep(self, record: Any) -> None:
            work.go_on.set()
            await tasks._live[record.id].ended.wait()
            await super().keep(record)

    work = Work()
    made = stand(tmp_path, long(work))
    slow = Slow(Database(str(tmp_path / "kept"), ["root"]))
    tasks = Tasks(made.handlers, slow, principal="me", limits=AT_ONCE)
    TaskFeature(lambda: tasks).join(made.server)
    async with following(made.server) as client:
        assert said(await client.call("probe")) == "done"


# --- questions -------------------------------------------------------------------------------------------


async def test_a_task_waits_for_its_answer_and_goes_on_where_it_was(tmp_path: Path) -> None:
    work = Work()
    work.go_on.set()
    asking: dict[str, Any] = {"ask": ["probe"], "limits": TaskLimits(), "can_be_asked": True}
    async with talking(tmp_path, long(work), **asking) as (made, client):
        task = await client.begun("probe")
        asked = await client.asking(task)
        assert list(asked) == ["approval-1"]
        assert asked["approval-1"]["method"] == "elicitation/create"
        assert "Allow probe" in asked["approval-1"]["params"]["message"]
        assert await client.asking(task) == asked
        await client.update(task, {"unknown": {"ignored": True}})
        assert await client.asking(task) == asked
        assert work.begun == 0
        await client.update(task, {"approval-1": YES, "unknown": YES})
        state = await client.ended(task)
    assert said(state["result"]) == "done"
    assert (work.begun, made.outcomes) == (1, ["probe: output"])
    assert changed_to(made.notified) == ["working", "completed"]


async def test_a_no_is_an_answer_and_so_is_none_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work()
    async with talking(tmp_path, long(work), ask=["probe"], can_be_asked=True) as (_, client):
        task = await client.begun("probe")
        await client.update(task, {"approval-1": {"action": "decline"}})
        assert (await client.ended(task))["result"]["isError"]
        monkeypatch.setattr(elicitation, "STATE_SECONDS", 0.2)
        assert (await client.ended(await client.begun("probe")))["result"]["isError"]
    assert work.begun == 0


async def test_each_question_has_a_key_of_its_own_and_is_reported(tmp_path: Path) -> None:
    async def run(_: Args, rt: Runtime) -> Output:
        answers = [await rt.ask([Question(text=text)]) for text in ("Which?", "Really?")]
        return Output(str([*map(str, answers)]))

    entry = tool(run, may_be_long=True, needs=[Capability.ASK])
    host = machine(tmp_path, required(Capability.ASK))
    async with talking(tmp_path, served=dispatcher(host, entry), can_be_asked=True) as (made, client):
        task = await client.begun("probe")
        for key, word in (("answers-1", "that one"), ("answers-2", "yes")):
            state = await client.until(task, lambda state, key=key: key in state.get("inputRequests", {}))
            properties = state["inputRequests"][key]["params"]["requestedSchema"]["properties"]
            await client.update(task, {key: {"action": "accept", "content": dict.fromkeys(properties, word)}})
        state = await client.ended(task)
    assert "that one" in said(state["result"])
    assert "yes" in said(state["result"])
    assert changed_to(made.notified) == ["working", "input_required", "working", "completed"]


async def test_questions_before_a_task_come_with_the_request_and_others_one_by_one(tmp_path: Path) -> None:
    async with talking(tmp_path, can_be_asked=True) as (_, client):
        task = await client.begun("multi_input")
        asked = await client.until(task, lambda state: len(state.get("inputRequests", {})) == 2)
        first, second = asked["inputRequests"]
        await client.update(task, {first: {"action": "accept", "content": {"name": "one"}}})
        assert list(await client.asking(task)) == [second]
        await client.update(task, {second: {"action": "accept", "content": {"name": "two"}}})
        assert "two" in said((await client.ended(task))["result"])
        first = await client.call("test_tool_with_task")
        assert first["resultType"] == "input_required"
        answer = mcp.ElicitResult(action="accept", content={"name": "Ada"})
        second = await client.client.session.call_tool(
            "test_tool_with_task", {}, input_responses={"user_name": answer}, allow_claimed=True
        )
        state = await client.ended(second.model_dump()["taskId"])
    assert said(state["result"]) == "Hello, Ada!"


NO_ANSWERS: tuple[object, ...] = ({"approval-1": {"action": "perhaps"}}, {"approval-1": None}, [], None)


async def test_what_is_no_answer_is_refused_and_asked_on_until_the_task_is_cancelled(tmp_path: Path) -> None:
    async with talking(tmp_path, long(Work()), ask=["probe"]) as (made, client):
        assert (await client.call("probe"))["isError"], "a client that cannot ask is not asked"
    async with following(made.server, elicitation_callback=nobody) as client:
        task = await client.begun("probe")
        for answers in NO_ANSWERS:
            update = client.ask("tasks/update", task, inputResponses=answers)
            assert await code_of(update) == mcp.INVALID_PARAMS
            assert list(await client.asking(task)) == ["approval-1"]
        await client.cancel(task)
        state = await client.ended(task)
    assert state["status"] == "cancelled"
    assert "inputRequests" not in state
    assert made.outcomes == ["probe: denied", "probe: cancelled"]


# --- bounds ----------------------------------------------------------------------------------------------


async def test_only_so_many_tasks_run_at_once(tmp_path: Path) -> None:
    work = Work()
    async with talking(tmp_path, long(work), limits=TaskLimits(grace=0.01, running=2)) as (_, client):
        first, second = await client.begun("probe"), await client.begun("probe")
        refused = await client.call("probe")
        assert refused["isError"]
        assert "2 calls run as tasks already" in said(refused)
        await client.cancel(first)
        await client.ended(first)
        third = await client.begun("probe")
        work.go_on.set()
        assert {(await client.ended(task))["status"] for task in (second, third)} == {"completed"}
    assert work.begun == 3


async def test_a_call_that_cannot_become_a_task_stays_in_its_request(tmp_path: Path) -> None:
    work, heard = Work(words=["looking"]), list[str | None]()
    made = stand(tmp_path, long(work), bounds=TaskRetention(tasks=0))

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)
        with anyio.move_on_after(0.2):
            await anyio.Event().wait()
        work.go_on.set()

    async with Client(made.server, **options()) as client:
        answer = await client.call_tool("probe", {}, progress_callback=progress)
    assert answer.content[0] == mcp.TextContent(type="text", text="done")
    assert heard == ["looking"]
    assert made.notified == []


async def test_a_store_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    made = stand(tmp_path, long(Work()))
    (tmp_path / "kept").write_text("no folder", encoding="utf-8")
    async with following(made.server) as client:
        with pytest.raises(MCPError) as failure:
            await client.get("task_" + "0" * 32)
    assert failure.value.code == mcp.INTERNAL_ERROR
    assert "cannot be read" in failure.value.message


@pytest.mark.parametrize("kept", [True, False], ids=["small", "large"])
async def test_a_result_without_room_is_remembered_if_it_is_small(tmp_path: Path, kept: bool) -> None:
    work = Work()
    limits = replace(AT_ONCE, unkept_bytes=10_000 if kept else 10)
    bounds = TaskRetention(outcome_bytes=10)
    async with talking(tmp_path, long(work), bounds=bounds, limits=limits) as (_, client):
        task = await client.begun("probe")
        work.go_on.set()
        state = await client.ended(task)
        state = await client.until(task, lambda state: kept or state["result"]["isError"])
    assert (said(state["result"]) == "done") == kept
    assert state["status"] == "completed"


async def test_only_so_many_results_without_room_are_remembered(tmp_path: Path) -> None:
    works = [Work(), Work()]
    tools = [long(work, name=name) for work, name in zip(works, ("first", "second"), strict=True)]
    limits = replace(AT_ONCE, unkept=1)
    made = stand(
        tmp_path, *tools, bounds=TaskRetention(outcome_bytes=10), limits=limits, only_client="the only client"
    )

    async def written(task: str) -> str:
        return getattr(await made.store.find(task, "me, the only client"), "status", "")

    async with following(made.server) as client:
        first, second = await client.begun("first"), await client.begun("second")
        works[0].go_on.set()
        # Its row says so once its result is in memory; until then the second could overtake it.
        with anyio.fail_after(PATIENCE):
            while await written(first) != "failed":
                await anyio.sleep(0.01)
        assert said((await client.get(first))["result"]) == "done"
        works[1].go_on.set()
        state = await client.until(first, lambda state: state["status"] == "failed")
        assert said((await client.ended(second))["result"]) == "done"
    assert state["error"]["message"] == state["statusMessage"]


async def test_a_header_that_names_another_task_is_refused(tmp_path: Path) -> None:
    work = Work()
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tasks/get"}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
    }
    async with (
        http_server.serving(server=stand(tmp_path, long(work)).server) as served,
        connected_to(served.url, "http", token=http_server.TOKEN, **options()) as connection,
        served.http(**headers) as http,
    ):
        client = Follower(connection)
        task = await client.begun("probe")
        body = {"method": "tasks/get", "params": {"taskId": task, "_meta": meta}}
        for named in ({"mcp-name": "task_of_another"}, {"mcp-name": "=?base64?!?="}, {}):
            answer = await http.post(served.url, json={"jsonrpc": "2.0", "id": 1, **body}, headers=named)
            refused = (answer.status_code, answer.json()["error"]["code"])
            assert refused == (400, mcp.HEADER_MISMATCH), named
        work.go_on.set()
        assert said((await client.ended(task))["result"]) == "done"


# --- commands --------------------------------------------------------------------------------------------


GIVES_UP = {
    "someone 1.0": False,
    "claude-code 2.1.153": False,
    "claude-code 2.1.154": True,
    "gemini-cli-mcp-client 0.0.1": True,
    "gemini-cli-mcp-client-toolserver 1": True,
    **{f"claude-code {version}": False for version in ("", "x", "2.1", "2.x.1", "9" * 5000, "2.1.²")},
}
"""By client and version, whether it is known to wait, so that it gets the answer of a long command."""


def implementation(client: str) -> mcp.Implementation:
    name, _, version = client.partition(" ")
    return mcp.Implementation(name=name, version=version)


def test_only_clients_that_are_known_to_wait_are_made_to() -> None:
    waits = {client: known_client(implementation(client)).timeout is not None for client in GIVES_UP}
    assert waits == GIVES_UP
    assert known_client(None).timeout is None


async def test_a_command_is_handed_over_when_its_client_would_give_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolserver.capabilities.call_scope.SECONDS_TO_ANSWER", 0.2)
    answered: list[bool] = []
    async with processes.served(tmp_path) as served:
        made = stand(tmp_path, served=served)
        for client in ("someone 1.0", "claude-code 2.1.154"):
            for era in ("legacy", "auto"):
                named = implementation(client)
                async with Client(made.server, mode=era, client_info=named, read_timeout_seconds=10) as talk:
                    answer = await talk.call_tool("bash", {"command": "sleep 1; echo at the end"})
                    answered.append("bg_" not in str(answer.content))
    assert answered == [False, False, True, True]


async def test_a_command_that_is_a_task_is_not_handed_over(tmp_path: Path) -> None:
    async with processes.served(tmp_path, CommandLimits(foreground_seconds=0.1)) as served:
        async with talking(tmp_path, served=served) as (made, client):
            task = await client.begun("bash", command="sleep 0.5; echo at the end")
            state = await client.ended(task)
            assert "at the end" in said(state["result"])
            behind = await client.call("bash", command="sleep 100", run_in_background=True)
            if behind["resultType"] == "task":
                behind = (await client.ended(behind["taskId"]))["result"]
        # The operator's setting is for every client, also one that is not known to give up.
        for mode in ("legacy", "auto"):
            named = implementation("goose 1.0")
            async with Client(made.server, mode=mode, client_info=named, read_timeout_seconds=10) as client:
                assert "bg_" in str((await client.call_tool("bash", {"command": "sleep 100"})).content)
    assert "bg_" in said(behind)


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
