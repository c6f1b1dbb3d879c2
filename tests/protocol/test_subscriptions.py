"""Listening for changes: who hears of what, how often, and how many may; what is remembered of callers."""

import asyncio
import gc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    Subscription,
    ToolsListChanged,
)
from mcp.server.lowlevel import NotificationOptions
from mcp.shared.exceptions import MCPError

from mcp_toolserver.app.serve import mcp_server
from mcp_toolserver.capabilities import change_events
from mcp_toolserver.capabilities.change_events import ChangeEvents, ResourceRef
from mcp_toolserver.protocol.resources import subscriptions
from mcp_toolserver.protocol.resources.subscriptions import change_notification
from tests.protocol.resource_clients import ERAS, background, commanding, place, read
from tests.protocol.test_resources import NumberedSource
from tests.support.following import following
from tests.support.processes import until
from tests.tasks.test_protocol_tasks import Listener, listen

TODOS, JOBS, CONFIG = "toolserver://todos", "toolserver://jobs", "toolserver://config"
EVERYTHING = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
ANOTHER = {"client_info": mcp.Implementation(name="another", version="1")}


async def heard(stream: Subscription) -> ServerEvent:
    with anyio.fail_after(10):
        return await anext(stream)


class Notes:
    """The notifications that a client of the handshake era got."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    async def __call__(self, message: Any) -> None:
        self.methods.append(message.method)


async def write_todo(client: Client, word: str) -> str:
    result = await client.call_tool("TodoWrite", {"todos": [{"content": word}]})
    assert result.structured_content is not None
    return result.structured_content["list_id"]


async def set_language(client: Client, language: str) -> None:
    assert not (await client.call_tool("Config", {"setting": "language", "value": language})).is_error


# --- the handshake era -----------------------------------------------------------------------------------


async def test_what_does_not_change_or_is_not_there_cannot_be_subscribed_to(tmp_path: Path) -> None:
    own = ("security", "jobs/none", "nothing")
    async with place(tmp_path) as made, made.client() as client:
        for uri in ("file:///etc/passwd", *(f"toolserver://{name}" for name in own)):
            with pytest.raises(MCPError) as refused:
                await client.subscribe_resource(uri)
            assert refused.value.error.data == {"uri": uri}
            assert refused.value.error.code == -32002


async def test_who_unsubscribed_hears_no_more(tmp_path: Path) -> None:
    notes = Notes()
    async with place(tmp_path) as made, made.client(message_handler=notes) as client:
        await client.unsubscribe_resource(CONFIG)
        await client.subscribe_resource(CONFIG)
        await client.subscribe_resource(TODOS)
        await set_language(client, "German")
        await until(lambda: notes.methods)
        await client.unsubscribe_resource(CONFIG)
        await set_language(client, "French")
        await write_todo(client, "x")
        await until(lambda: len(notes.methods) > 1)
        assert notes.methods == ["notifications/resources/updated"] * 2


async def test_a_client_does_not_hear_of_what_another_left_or_what_it_never_asked_for(tmp_path: Path) -> None:
    quiet, deaf, active = Notes(), Notes(), Notes()
    async with (
        commanding(tmp_path) as made,
        made.client(message_handler=quiet),
        made.client(message_handler=deaf) as one,
        made.client(message_handler=active) as other,
    ):
        await background(other, "exec sleep 60")
        await until(lambda: active.methods)
        assert quiet.methods == []
        await one.subscribe_resource(TODOS)
        await other.subscribe_resource(TODOS)
        active.methods.clear()
        await write_todo(other, "x")
        await until(lambda: active.methods)
        assert deaf.methods == []


async def test_one_connection_can_subscribe_to_so_many_resources_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "WATCHED", 2)
    async with place(tmp_path, extra={"sources": (NumberedSource(),)}) as made, made.client() as client:
        for uri in (TODOS, CONFIG, CONFIG):
            await client.subscribe_resource(uri)
        with pytest.raises(MCPError, match="No more than 2"):
            await client.subscribe_resource("test://1")


async def test_a_client_that_left_is_forgotten(tmp_path: Path) -> None:
    async with place(tmp_path) as made:
        async with made.client() as client:
            await client.subscribe_resource(CONFIG)
            await write_todo(client, "x")
            assert len(made.handlers.client_ids.connections) == 1
        assert made.handlers.client_ids.connections == {}
        notes = Notes()
        async with made.client(message_handler=notes) as client:
            await client.subscribe_resource(CONFIG)
            await set_language(client, "German")
            await until(lambda: notes.methods)
            assert await read(client, TODOS) == "[]"


async def test_a_client_that_leaves_before_its_notification_is_sent_leaves_no_failed_task(
    tmp_path: Path,
) -> None:
    failures: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    async with place(tmp_path) as made, made.client() as client:
        await client.subscribe_resource(CONFIG)
        hub = made.feature.resource_handlers.subscriptions
        (connection,) = made.handlers.client_ids.connections.values()
        hub.publish(change_notification(ResourceUpdated(CONFIG)))
        hub._flush()
        # Nothing here gives way to the loop, so the client is gone before the task takes its first step.
        await connection.exit_stack.aclose()
        assert hub._connected == {}
        await anyio.lowlevel.checkpoint()
        gc.collect()
        assert failures == []


async def test_a_call_succeeds_although_nobody_can_be_notified_of_its_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("of the listener")

    async with place(tmp_path) as made, made.client() as client:
        made.handlers.changes.on_change = fail
        assert await write_todo(client, "x")
        assert '"x"' in await read(client, TODOS)
    assert "ZeroDivisionError: of the listener" in caplog.text


async def test_a_client_that_does_not_read_holds_up_no_other(tmp_path: Path) -> None:
    free = Notes()
    reading = anyio.Event()

    async def wait(_: Any) -> None:
        await reading.wait()

    async with (
        place(tmp_path) as made,
        made.client(message_handler=wait) as slow,
        made.client(message_handler=free) as client,
    ):
        await slow.subscribe_resource(CONFIG)
        await client.subscribe_resource(CONFIG)
        for number, language in enumerate(("German", "French", "German"), 1):
            await set_language(client, language)
            await until(lambda number=number: len(free.methods) == number)
        reading.set()


# --- without a handshake ---------------------------------------------------------------------------------


async def test_a_stream_hears_of_its_own_and_of_what_is_everybodys(tmp_path: Path) -> None:
    async with (
        commanding(tmp_path) as made,
        made.client("auto") as one,
        made.client("auto", **ANOTHER) as other,
        other.listen(resources_list_changed=True, resource_subscriptions=[TODOS, CONFIG]) as stream,
    ):
        await background(one, "echo x")
        await write_todo(one, "x")
        await set_language(one, "German")
        assert await heard(stream) == ResourceUpdated(CONFIG)
        await write_todo(other, "y")
        assert await heard(stream) == ResourceUpdated(TODOS)
        assert '"y"' in await read(other, TODOS)


async def test_changes_that_follow_each_other_closely_are_announced_once(tmp_path: Path) -> None:
    async with (
        place(tmp_path) as made,
        made.client("auto") as client,
        client.listen(resource_subscriptions=[CONFIG, TODOS]) as stream,
    ):
        for _ in range(100):
            made.feature.publish(change_notification(ResourceUpdated(CONFIG)))
        made.feature.publish(change_notification(ResourceUpdated(TODOS)))
        assert [await heard(stream), await heard(stream)] == [ResourceUpdated(CONFIG), ResourceUpdated(TODOS)]


@pytest.mark.parametrize("era", ERAS)
async def test_lists_that_can_change_are_declared_and_announced(era: str, tmp_path: Path) -> None:
    notes = Notes()
    async with (
        place(tmp_path, extra={"changing": EVERYTHING}) as made,
        made.client(era, message_handler=notes) as client,
    ):
        declared = client.server_capabilities
        assert declared is not None
        assert declared.tools is not None
        assert declared.prompts is not None
        assert (declared.tools.list_changed, declared.prompts.list_changed) == (True, True)
        await client.call_tool("current_datetime", {})
        events = (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())
        everything: dict[str, Any] = dict.fromkeys(
            [f"{kind}_list_changed" for kind in ("tools", "prompts", "resources")], True
        )
        async with nullcontext() if era == "legacy" else client.listen(**everything) as stream:
            for event in events:
                made.feature.publish(change_notification(event))
            if stream is None:
                await until(lambda: len(notes.methods) == len(events))
                kinds = [method.split("/")[1] for method in notes.methods]
                assert kinds == ["tools", "prompts", "resources"]
            else:
                assert [await heard(stream) for _ in events] == list(events)


async def test_so_many_streams_may_be_open_of_so_many_resources_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "STREAMS", 1)
    monkeypatch.setattr(subscriptions, "WATCHED", 1)
    async with place(tmp_path) as made, made.client("auto") as client:
        async with client.listen(resource_subscriptions=[TODOS, TODOS, CONFIG]) as stream:
            assert stream.honored.resource_subscriptions == [TODOS]
            with pytest.raises(MCPError, match="open already"):
                async with client.listen(resource_subscriptions=[TODOS]):
                    raise AssertionError("a second stream was opened")
        await until(lambda: not vars(made.feature.resource_handlers.subscriptions)["_streams"])
        async with client.listen(resource_subscriptions=[TODOS]) as stream:
            assert stream.honored.resource_subscriptions == [TODOS]


async def test_how_a_task_goes_is_not_sent_to_another_client(tmp_path: Path) -> None:
    stranger = Listener()
    more = {**ANOTHER, "extensions": [stranger], "message_handler": stranger.messages}
    async with (
        commanding(tmp_path) as made,
        following(server := mcp_server(made.app)) as client,
        following(server, **more) as other,
        anyio.create_task_group() as streams,
    ):
        task = await client.begun("bash", command="until [ -e go ]; do sleep 0.02; done")
        streams.start_soon(listen, other.client, [task])
        await until(lambda: stranger.agreed)
        made.write("go", "")
        await client.ended(task)
        streams.cancel_scope.cancel()
    assert (stranger.agreed, stranger.heard) == ([{}], [])


# --- what is announced -----------------------------------------------------------------------------------


def test_a_change_is_announced_with_whose_it_is_and_whether_it_is_new() -> None:
    known = ChangeEvents()
    heard: list[tuple[ResourceRef, frozenset[str], bool]] = []
    known.on_change = lambda *event: heard.append(event)
    with known.on_behalf_of("one"):
        known.changed("job", "a")
        known.changed("job", "a")
        known.changed("preferences")
    known.changed("job", "a")
    known.removed("job", "a")
    known.removed("job", "a")
    one, none = frozenset({"one"}), frozenset[str]()
    assert heard == [
        (("job", "a"), one, True),
        (("job", "a"), one, False),
        (("preferences", ""), none, False),
        (("job", "a"), one, False),
        (("job", "a"), one, True),
        (("job", "a"), none, True),
    ]
    assert known.of("one", "job") == ()


def test_callers_and_their_things_are_bounded() -> None:
    known = ChangeEvents()
    for caller in range(change_events.MAX_CALLERS + 1):
        with known.on_behalf_of(str(caller)):
            known.changed("job", "a")
    assert known.of("0", "job") == ()
    assert known.of("1", "job") == ("a",)
    with known.on_behalf_of("1"):
        for number in range(change_events.MAX_REFS):
            known.changed("output", str(number))
    assert known.of("1", "job") == ()
    assert len(known.of("1", "output")) == change_events.MAX_REFS
