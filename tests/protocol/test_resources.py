"""Resources: what is listed to whom, and that reading one is a call like any other."""

import base64
import json
from collections.abc import Mapping, Sequence
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
from pydantic import FileUrl

from mcp_toolserver.app.serve import mcp_server
from mcp_toolserver.capabilities import change_events
from mcp_toolserver.capabilities.change_events import ChangeEvents, ResourceRef
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.protocol.resources import handlers, subscriptions
from mcp_toolserver.protocol.resources.source import LARGEST, Source, Visitor
from mcp_toolserver.protocol.resources.subscriptions import change_notification
from mcp_toolserver.runtime.processes.commands import CommandLimits
from tests.protocol.resource_clients import (
    ERAS,
    background,
    commanding,
    completed,
    listed,
    place,
    read,
    refusal,
)
from tests.support.families import lines
from tests.support.following import following
from tests.support.live import text
from tests.support.processes import until
from tests.tasks.test_protocol_tasks import Listener, listen

OWN = ["toolserver://security", "toolserver://config", "toolserver://todos"]
JOBS, TASKS, CRON = "toolserver://jobs", "toolserver://tasks", "toolserver://schedules"
TODOS, CONFIG = "toolserver://todos", "toolserver://config"
PIXEL = b"\x89PNG\r\n\x1a\n\0rest"

eras = pytest.mark.parametrize("era", ERAS)


async def test_a_client_that_passes_on_less_gets_less(tmp_path: Path) -> None:
    seen: dict[str, tuple[int, int]] = {}
    async with place(tmp_path) as made:
        made.write("long", "".join(f"{number}\n" for number in range(20_000)))
        for name in ("someone", "@cline/core", "qwen-cli-mcp-client-toolserver"):
            named = mcp.Implementation(name=name, version="1")
            async with made.client(client_info=named) as client:
                shown = text(await client.call_tool("read_file", {"path": "long"}))
            assert f"go on with offset={shown.count(chr(10))}]" in shown
            seen[name] = len(shown), shown.count("\n")
    assert seen["someone"][1] == 2_000
    assert seen["@cline/core"][0] < 6_000
    assert seen["qwen-cli-mcp-client-toolserver"][1] < 950


# --- files -----------------------------------------------------------------------------------------------


async def test_a_file_is_given_whole_or_as_bytes_and_a_long_one_refused(tmp_path: Path) -> None:
    binary = "application/octet-stream"
    async with place(tmp_path) as made, made.client() as client:
        long = "".join(f"line {number}\n" for number in range(10_000))
        assert await read(client, made.write("a b/ä.txt", long)) == long
        assert await read(client, f"file://localhost{made.root}/a%20b/%C3%A4.txt") == long
        found = await client.read_resource(made.write("empty", ""))
        assert found.contents == [
            mcp.TextResourceContents(uri=f"file://{made.root}/empty", text="", mime_type="text/plain")
        ]
        for content, mime_type in ((b"\0binary", binary), (b"caf\xe9", binary), (PIXEL, "image/png")):
            found: Any = (await client.read_resource(made.write("a.bin", content))).contents[0]
            assert base64.b64decode(found.blob) == content
            assert found.mime_type == mime_type
        assert await read(client, made.write("a", "x\u202ey\x1b[2J\n")) == "x\\u{202e}y\\u{1b}[2J\n"
        assert len(await read(client, made.write("a", "x" * LARGEST))) == LARGEST
        for content in ("x" * (LARGEST + 1), "\x1b" * (LARGEST - 1)):
            assert "read_file" in (await refusal(client, made.write("a", content))).error.message


@eras
async def test_a_file_outside_the_roots_is_not_found(era: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    async with place(tmp_path) as made, made.client(era) as client:
        (made.root / "link").symlink_to(tmp_path / "secret")
        for uri in (f"file://{tmp_path}/secret", f"file://{made.root}/link", f"file://{made.root}/../secret"):
            refused = await refusal(client, uri)
            assert refused.error.code == (mcp.INVALID_PARAMS if era == "auto" else -32002)
            assert refused.error.data == {"uri": uri}
            assert "secret" not in refused.error.message.replace(uri, "").replace("/secret", "")


async def test_the_rules_about_reading_hold(tmp_path: Path) -> None:
    async with place(tmp_path, deny=("read_file(*.key)",)) as made, made.client() as client:
        assert "denied here by the rule" in (await refusal(client, made.write("a.key", "k"))).error.message
        assert await read(client, made.write("a.txt", "t")) == "t"
        outcomes = [(line["tool"], line["verdict"], line["outcome"]) for line in lines(made.folder)]
        assert outcomes == [("read_file", "refused-rule", "denied"), ("read_file", "allowed", "output")]


async def test_the_roots_of_the_client_narrow_what_can_be_read(tmp_path: Path) -> None:
    async with place(tmp_path) as made:
        inside, outside = made.write("in/a", "a"), made.write("b", "b")

        async def roots(_: object) -> mcp.ListRootsResult:
            return mcp.ListRootsResult(roots=[mcp.Root(uri=FileUrl(f"file://{made.root}/in"))])

        async with made.client(list_roots_callback=roots) as client:
            assert await read(client, inside) == "a"
            assert "outside" in (await refusal(client, outside)).error.message
            assert await completed(client, "file:///{+path}", f"{made.root}/"[1:]) == []


@eras
async def test_a_rule_that_asks_is_asked_about_a_resource_too(era: str, tmp_path: Path) -> None:
    asked: list[str] = []
    decisions = ["allow", "deny"]

    async def answer(_: object, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        asked.append(params.message)
        return mcp.ElicitResult(action="accept", content={"decision": decisions.pop(0)})

    async with place(tmp_path, ask=("read_file",)) as made:
        uri = made.write("a", "content")
        async with made.client(era, elicitation_callback=answer) as client:
            assert await read(client, uri) == "content"
            assert "approval" in (await refusal(client, uri)).error.message
            assert len(asked) == 2
            assert f"{made.root}/a" in asked[0] or "a\n" in asked[0]
            assert await completed(client, "explain-code", "") == []
            assert len(asked) == 2


# --- what was kept ---------------------------------------------------------------------------------------


async def test_what_a_call_left_is_listed_and_read_while_it_is_kept(tmp_path: Path) -> None:
    async with commanding(tmp_path) as made, made.client() as client:
        assert await listed(client) == [*OWN, JOBS, TASKS, CRON]
        templates = (await client.list_resource_templates()).resource_templates
        handles = [f"toolserver://{kind}/{{id}}" for kind in ("jobs", "agents", "tasks", "output")]
        files = ["file:///{+path}", "skill://{name}/{+path}"]
        assert [template.uri_template for template in templates] == [*handles, *files]
        first, second = [await background(client, f"echo {word}; exec sleep 60") for word in ("one", "two")]
        cut = await client.call_tool("bash", {"command": "seq 100000"})
        link = next(block for block in cut.content if isinstance(block, mcp.ResourceLink))
        jobs = [f"toolserver://jobs/{handle}" for handle in (second, first)]
        assert await listed(client) == [*OWN, JOBS, *jobs, TASKS, CRON, link.uri]
        assert (await read(client, link.uri)).endswith("100000\n")
        answer = json.loads(await read(client, "toolserver://jobs"))
        assert [(one["id"], one["running"]) for one in answer] == [(second, True), (first, True)]
        with anyio.fail_after(10):
            while (await read(client, jobs[1])).splitlines()[0] != "one":
                await anyio.sleep(0.01)
        await client.call_tool("TaskStop", {"task_id": first})
        assert (await read(client, jobs[1])).splitlines()[1].startswith("[stopped after")
        handle = await background(client, "printf 'ä%.0s' $(seq 40001)")
        answer = ""
        with anyio.fail_after(10):
            while "[exit status" not in answer:
                answer = await read(client, f"toolserver://jobs/{handle}")
        start, output, end = answer.splitlines()
        assert start == "[20002 bytes before; TaskOutput reads them]"
        assert output == "ä" * 30_000
        assert end == "[exit status 0]"
        gone, here = [await background(client, command) for command in ("true", "exec sleep 60")]
        await client.call_tool("TaskOutput", {"task_id": gone, "wait_ms": 5_000})
        vars(made.app.commands)["_limits"] = CommandLimits(ended_seconds=0)
        ids = [one["id"] for one in json.loads(await read(client, "toolserver://jobs"))]
        assert (gone in ids, here in ids) == (False, True)
        assert f"toolserver://jobs/{gone}" not in await listed(client)


@eras
async def test_what_another_client_left_is_neither_listed_nor_read(era: str, tmp_path: Path) -> None:
    named = {"client_info": mcp.Implementation(name="another", version="1")}
    async with commanding(tmp_path) as made, made.client(era) as one, made.client(era, **named) as other:
        handle = await background(one, "echo mine; exec sleep 60")
        await one.call_tool("TodoWrite", {"todos": [{"content": "mine"}]})
        assert f"toolserver://jobs/{handle}" not in await listed(other)
        assert await read(other, "toolserver://jobs") == "[]"
        assert await read(other, "toolserver://todos") == "[]"
        assert await completed(other, "toolserver://jobs/{id}", "", "id") == []
        assert await completed(one, "toolserver://jobs/{id}", handle[:5], "id") == [handle]
        assert await completed(one, "toolserver://jobs/{id}", "x", "id") == []
        assert "[running" in await read(one, f"toolserver://jobs/{handle}")
        refused = await refusal(other, f"toolserver://jobs/{handle}")
        unknown = await refusal(other, f"toolserver://jobs/bg_{'0' * 32}")
        assert (refused.error.code, refused.error.message) == (unknown.error.code, unknown.error.message)


async def test_the_output_of_a_task_is_listed_to_whose_it_is(tmp_path: Path) -> None:
    async with commanding(tmp_path) as made, following(mcp_server(made.app)) as client:
        task = await client.begun("bash", command="seq 100000; until [ -e go ]; do sleep 0.02; done")
        made.write("go", "")
        ended = await client.ended(task)
        (link,) = [block for block in ended["result"]["content"] if block["type"] == "resource_link"]
        assert link["uri"] in await listed(client.client)


NOWHERE: Mapping[str, str] = {
    **{name: f"toolserver://{name}" for name in ("jobs/bg_none", "jobs/", "output/none", "nothing", "jobsx")},
    "URI03": "file://{}/%2e%2e/%2e%2e/etc/passwd",
    "URI04": "file://{}/%252e%252e/x",
    "URI05": "file://evilhost/share/x",
    "URI06": "FILE:///etc/passwd",
    "URI07": "file://{}/a%00b",
    "URI08": "git+file://{}/a",
    "URI11": "file://{}/a?../../x",
    "our scheme in capitals": "TOOLSERVER://security",
    "a way round": "toolserver://security/../todos",
}


async def test_no_other_address_is_a_resource(tmp_path: Path) -> None:
    async with commanding(tmp_path) as made, made.client() as client:
        made.write("a", "a")
        for name, address in NOWHERE.items():
            uri = address.format(made.root)
            refused = await refusal(client, uri)
            assert (refused.error.code, refused.error.data) == (-32002, {"uri": uri}), name


async def test_without_the_tools_their_resources_are_not_there(tmp_path: Path) -> None:
    tools = ("read_file", "TodoWrite", "Config", "TaskOutput", "TaskList", "TaskGet", "CronList")
    async with place(tmp_path, exclude_tools=tools) as made, made.client() as client:
        assert await listed(client) == OWN[:2]
        for uri in (JOBS, f"{JOBS}/x", "toolserver://todos", TASKS, f"{TASKS}/x", made.write("a", "a")):
            assert (await refusal(client, uri)).error.message == "Resource not found."
        assert "preferences" not in json.loads(await read(client, "toolserver://config"))
        templates = (await client.list_resource_templates()).resource_templates
        assert "file:///{+path}" not in [one.uri_template for one in templates]


async def test_lists_of_things_to_do_and_faults_are_reported_as_they_are(tmp_path: Path) -> None:
    async with place(tmp_path) as made, made.client() as client:
        assert await read(client, "toolserver://todos") == "[]"
        handle = await write_todo(client, "look \u200b")
        await client.call_tool("TodoWrite", {"action": "toggle", "list_id": handle, "id": 1})
        todo = {"id": 1, "content": "look \u200b", "status": "completed", "priority": "medium"}
        assert json.loads(await read(client, "toolserver://todos")) == [{"list_id": handle, "todos": [todo]}]
        # A list that is gone is left out.
        await made.app.shared.database.run(lambda database: database.execute("DELETE FROM todo_lists"))
        await client.call_tool("TodoWrite", {"todos": [{"content": "two"}]})
        lists = json.loads(await read(client, "toolserver://todos"))
        assert [one["todos"][0]["content"] for one in lists] == ["two"]
        await client.call_tool("TodoWrite", {"todos": [{"content": "x"}]})
        made.app.shared.database.close()
        refused = await refusal(client, "toolserver://todos")
        assert refused.error.code == mcp.INTERNAL_ERROR


async def test_the_configuration_is_reported_without_what_hides_or_opens_something(tmp_path: Path) -> None:
    secret = {"deny": ("read_file(hidden-name)",), "web_search_keys": (), "token_file": "/the/token"}
    async with place(tmp_path, **secret) as made, made.client() as client:
        await client.call_tool("Config", {"setting": "language", "value": "German"})
        answer = await read(client, "toolserver://config")
        found = json.loads(answer)
        assert found["permission-mode"] == "danger-full-access"
        assert found["root"] == [str(made.root)]
        assert found["preferences"] == {"language": "German"}
        assert "hidden-name" not in answer
        assert "/the/token" not in answer
        assert str(made.folder / "state") not in answer
    # Preferences do not depend on the toolset, but on the rules.
    async with place(tmp_path, toolsets=("files",)) as made, made.client() as client:
        assert (await client.call_tool("Config", {"setting": "language"})).is_error
        assert json.loads(await read(client, "toolserver://config"))["preferences"] == {"language": "German"}
    async with place(tmp_path, deny=("Config",)) as made, made.client() as client:
        assert "preferences" not in json.loads(await read(client, "toolserver://config"))


# --- pages, errors, sources ------------------------------------------------------------------------------


class NumberedSource(Source):
    """Resources of a test: a hundred and more, one of which changes."""

    def __init__(self, count: int = 120) -> None:
        self.count = count

    async def listed(self, _: Visitor) -> Sequence[mcp.Resource]:
        return [mcp.Resource(name=str(number), uri=f"test://{number}") for number in range(self.count)]

    async def watch(self, uri: str, _: Visitor) -> bool:
        return uri == "test://1"


async def test_a_long_list_has_pages_and_only_cursors_that_were_given(tmp_path: Path) -> None:
    source = NumberedSource()
    async with place(tmp_path, extra={"sources": (source,)}) as made, made.client() as client:
        found: list[str] = []
        cursors: list[str | None] = [None]
        while len(cursors) == 1 or cursors[-1]:
            page = await client.list_resources(cursor=cursors[-1], cache_mode="bypass")
            assert len(page.resources) <= handlers.PAGE
            found += [one.uri for one in page.resources]
            cursors.append(page.next_cursor)
        assert found == [*OWN, JOBS, TASKS, CRON, *(f"test://{number}" for number in range(source.count))]
        source.count = 10
        for cursor in (cursors[1], "x", "¡", "dGVzdDovL25v"):
            with pytest.raises(MCPError, match="cursor") as refused:
                await client.list_resources(cursor=cursor, cache_mode="bypass")
            assert refused.value.error.code == mcp.INVALID_PARAMS


async def test_what_may_be_shared_is_what_everybody_would_get(tmp_path: Path) -> None:
    async with place(tmp_path) as made, made.client("auto") as client:
        uri = made.write("a", "a")
        answer = {
            "tools": await client.list_tools(),
            "prompts": await client.list_prompts(),
            "templates": await client.list_resource_templates(),
            "resources": await client.list_resources(),
            "security": await client.read_resource("toolserver://security"),
            "config": await client.read_resource("toolserver://config"),
            "todos": await client.read_resource("toolserver://todos"),
            "file": await client.read_resource(uri),
        }
        hints = {name: (one.cache_scope, one.ttl_ms > 0) for name, one in answer.items()}
        assert hints == {
            "tools": ("public", True),
            # Skills are among them.
            "prompts": ("private", False),
            "templates": ("public", True),
            "resources": ("private", False),
            "security": ("public", True),
            "config": ("private", False),
            "todos": ("private", False),
            "file": ("private", False),
        }


async def test_reading_a_resource_needs_what_the_tool_needs(tmp_path: Path) -> None:
    async with (
        commanding(tmp_path, permission_mode=Permission.DANGER_FULL_ACCESS, deny=("TaskOutput",)) as made,
        made.client() as client,
    ):
        handle = await background(client, "echo x")
        refused = await refusal(client, f"toolserver://jobs/{handle}")
        assert "denied" in refused.error.message
        assert text(await client.call_tool("TaskOutput", {"task_id": handle})) in refused.error.message


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
    return (result.structured_content or {})["list_id"]


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
        declared: Any = client.server_capabilities
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
