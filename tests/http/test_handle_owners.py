"""Every handle is its owner's: for another client it is the same as one that was never given.

One table of kind × operation, over HTTP, with two clients of one real server, in both eras of the protocol.
"""

import re
import secrets
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.protocol.resource_clients import background, listed, read
from tests.support.confinement import USERS, Scene, as_user, visible_folder
from tests.support.extent import IN_FULL
from tests.support.following import Follower, KnowsTasks
from tests.support.live import Setup, connected_to, text
from tests.support.named import file_of_tokens
from tests.support.processes import Daemons, until

# They share a server.
pytestmark = pytest.mark.xdist_group("test_handle_owners")

HEX = re.compile(r"[0-9a-f]{32}|(?<=_)[0-9a-f]{6,}")
"""The random part of a handle: those of commands and sessions are short."""
SAVED_IN = re.compile(r'path "([^"]+)"')
MARK = "only the owner may know this"


@dataclass(frozen=True)
class Things:
    """One of each kind, by its handle."""

    output: str
    path: str
    job: str
    session: str
    todos: str
    task: str = ""

    @property
    def folder(self) -> str:
        """Where the saved output lies."""
        return self.path.rpartition("/")[0]

    def unknown(self) -> "Things":
        """Handles of the same form that nobody was ever given; the session folder of the server is known."""
        start, owner, name = self.path.rsplit("/", 2)
        path = f"{start}/{_other(owner)}/{_other(name)}"
        handles = (self.job, self.session, self.todos, self.task)
        return Things(_other(self.output), path, *map(_other, handles))

    def unknown_to_owner(self) -> "Things":
        """The same, but for the folder of saved outputs, which is the owner's."""
        return replace(self.unknown(), path=f"{self.folder}/{_other(self.path.rpartition('/')[2])}")


def _other(handle: str) -> str:
    return HEX.sub(lambda found: secrets.token_hex(len(found[0]) // 2), handle)


Operation = Callable[[Client, Things], Awaitable[str]]


async def answer(asked: Awaitable[str]) -> str:
    """What a client gets, with every handle blanked."""
    try:
        return HEX.sub("HANDLE", await asked)
    except MCPError as error:
        return HEX.sub("HANDLE", f"error {error.error.code}: {error.error.message}")


def tool(name: str, **arguments: Callable[[Things], Any] | str | int | bool) -> Operation:
    """A call, with the arguments that depend on the handle as functions of it."""

    async def operation(client: Client, things: Things) -> str:
        given = {key: value(things) if callable(value) else value for key, value in arguments.items()}
        result = await client.call_tool(name, given)
        # How long a command has run says nothing of whose it is.
        return f"{result.is_error} {re.sub(r'[0-9.]+ s', 'N s', text(result))}"

    return operation


def resource(uri: Callable[[Things], str]) -> Operation:
    async def operation(client: Client, things: Things) -> str:
        return await read(client, uri(things))

    return operation


def completing(template: str, handle: Callable[[Things], str]) -> Operation:
    async def operation(client: Client, things: Things) -> str:
        reference = mcp.ResourceTemplateReference(uri=template)
        found = await client.complete(reference, {"name": "id", "value": handle(things)[:16]})
        return str(found.completion.values)

    return operation


async def watch(client: Client, things: Things) -> str:
    """Subscribe to changes, in the way of the client's era."""
    uri = f"toolserver://jobs/{things.job}"
    if client.protocol_version >= "2026":
        async with client.listen(resource_subscriptions=[uri]) as stream:
            return str(stream.honored.resource_subscriptions)
    await client.subscribe_resource(uri)
    return "subscribed"


def task(method: str, **params: Any) -> Operation:
    async def operation(client: Client, things: Things) -> str:
        state = await Follower(client).ask(method, things.task, **params)
        return str({key: value for key, value in state.items() if key in ("status", "resultType")})

    return operation


def output_of(things: Things) -> str:
    return f"toolserver://output/{things.output}"


TABLE: Mapping[tuple[str, str], Operation] = {
    ("output", "read_file"): tool("read_file", path=lambda it: it.path),
    ("output", "head"): tool("head", path=lambda it: it.path),
    ("output", "tail"): tool("tail", path=lambda it: it.path),
    ("output", "diff"): tool("diff", path=lambda it: it.path, other_path="empty"),
    ("output", "grep_search in the file"): tool("grep_search", pattern=MARK, path=lambda it: it.path),
    ("output", "resources/read"): resource(output_of),
    ("output", "resources/read by path"): resource(lambda it: f"file://{it.path}"),
    ("output", "completion"): completing("toolserver://output/{id}", lambda it: it.output),
    ("job", "TaskOutput"): tool("TaskOutput", task_id=lambda it: it.job, wait_ms=0),
    ("job", "resources/read"): resource(lambda it: f"toolserver://jobs/{it.job}"),
    ("job", "completion"): completing("toolserver://jobs/{id}", lambda it: it.job),
    ("job", "subscribe"): watch,
    ("job", "TaskStop"): tool("TaskStop", task_id=lambda it: it.job),
    ("session", "REPL"): tool("REPL", language="shell", code="echo $secret", session=lambda it: it.session),
    ("session", "REPL to end it"): tool(
        "REPL", language="shell", code="", session=lambda it: it.session, end_session=True
    ),
    ("todos", "list"): tool("TodoWrite", action="list", list_id=lambda it: it.todos),
    ("todos", "add"): tool("TodoWrite", action="add", text="more", list_id=lambda it: it.todos),
    ("todos", "toggle"): tool("TodoWrite", action="toggle", id=1, list_id=lambda it: it.todos),
}
"""What the owner of a handle can do with it. Those that end the thing come last of its kind."""

OF_EACH_KIND = (
    *(("output", "read_file"), ("output", "resources/read"), ("job", "TaskOutput"), ("job", "subscribe")),
    *(("session", "REPL"), ("todos", "list")),
)
"""What is tried in the gate without a handshake. Kinds differ in code, eras only in who the client is."""

FOLDER: Mapping[tuple[str, str], Operation] = {
    ("folder", "grep_search"): tool("grep_search", pattern=MARK, path=lambda it: it.folder),
    ("folder", "glob_search"): tool("glob_search", pattern="**/*", path=lambda it: it.folder),
    ("folder", "ls"): tool("ls", path=lambda it: it.folder),
    ("folder", "tree"): tool("tree", path=lambda it: it.folder),
}
"""What the owner of saved outputs can do with the folder that they lie in."""

COMMANDS: Mapping[tuple[str, str], Operation] = {
    ("output", "bash"): tool("bash", command=lambda it: f"cat {it.path}; ls {it.folder}"),
    ("output", "REPL"): tool("REPL", language="shell", code=lambda it: f"cat {it.path}; ls {it.folder}"),
}
"""What no client can do, the owner neither: commands do not see the state folder."""

TASKS: Mapping[tuple[str, str], Operation] = {
    ("task", "tasks/get"): task("tasks/get"),
    ("task", "tasks/update"): task("tasks/update", inputResponses={}),
    ("task", "tasks/cancel"): task("tasks/cancel"),
}


@dataclass(frozen=True)
class Served:
    """A server, and the tokens of two names."""

    url: str
    tokens: tuple[str, str]

    def client(self, token: int, name: str = "client", era: str = "legacy") -> Any:
        """A client that calls itself so; without a handshake it knows tasks."""
        more = {"extensions": [KnowsTasks()]} if era == "auto" else {}
        info = mcp.Implementation(name=name, version="1")
        return connected_to(self.url, "http", mode=era, client_info=info, token=self.tokens[token], **more)


@pytest.fixture(scope="module")
def served() -> Generator[Served]:
    """As root where possible: its files are open to it, so only the server keeps clients apart."""
    with visible_folder() as base:
        at = Scene(base=base, user=USERS[0])
        at.root.mkdir()
        (at.root / "empty").touch()
        at.own()
        names = file_of_tokens(base, {"one": {}, "other": {}})
        with names.serving(Setup(root=at.root, home=base, mode="workspace-write", around=as_user(at))) as url:
            yield Served(url, (names.tokens["one"], names.tokens["other"]))


async def make(client: Client, *, tasks: bool) -> Things:
    """One of each kind."""
    cut = await client.call_tool("bash", {"command": f"echo {MARK}; seq 100000"})
    link = next(block for block in cut.content if isinstance(block, mcp.ResourceLink))
    job = await background(client, f"echo {MARK}; exec sleep 60")
    session = await client.call_tool(
        "REPL", {"language": "shell", "code": f"secret='{MARK}'", "session": "new"}
    )
    todos = await client.call_tool("TodoWrite", {"todos": [{"content": MARK}]})
    return Things(
        output=link.uri.rpartition("/")[2],
        path=SAVED_IN.findall(text(cut))[0],
        job=job,
        session=re.findall(r"repl_[0-9a-f]{6,}", text(session))[0],
        todos=re.findall(r"todos_[0-9a-f]{6,}", text(todos))[0],
        task=await Follower(client).begun("bash", command="exec sleep 60") if tasks else "",
    )


@pytest.mark.rounds
@pytest.mark.parametrize(
    ("era", "apart"),
    [("legacy", "clients"), ("auto", "clients"), ("auto", "tokens")],
)
async def test_the_handle_of_another_client_is_answered_like_one_that_nobody_has(
    era: str, apart: str, served: Served
) -> None:
    """With a handshake both clients call themselves the same, as do those that are kept apart by tokens."""
    name = "another client" if (era, apart) == ("auto", "clients") else "client"
    async with (
        served.client(0, era=era) as owner,
        served.client(int(apart == "tokens"), name, era) as other,
    ):
        things = await make(owner, tasks=era == "auto")
        own = TABLE
        if era == "auto":
            own = {**{row: TABLE[row] for row in (TABLE if IN_FULL else OF_EACH_KIND)}, **TASKS}
        table = {**own, **FOLDER, **COMMANDS} if era == "legacy" or IN_FULL else own
        answers = {
            row: (await answer(ask(other, things)), await answer(ask(other, things.unknown())))
            for row, ask in table.items()
        }
        assert {row: pair for row, pair in answers.items() if pair[0] != pair[1]} == {}
        assert [row for row, pair in answers.items() if MARK in pair[0]] == []
        assert [uri for uri in await listed(other) if HEX.search(uri)] == []
        # None of that did anything to them: the owner goes on as if nobody had asked.
        for row, ask in own.items():
            mine = await answer(ask(owner, things))
            assert mine != await answer(ask(owner, things.unknown_to_owner())), row
            assert not mine.startswith(("True", "error")), (row, mine)
        if era == "legacy" or IN_FULL:
            await folders_hold_only_what_is_their_owners(owner, other, things)
        if era == "auto":
            # Who comes back under the same name with the same token is the owner.
            async with served.client(0, era=era) as again:
                assert (await Follower(again).ended(things.task))["status"] == "cancelled"


async def folders_hold_only_what_is_their_owners(one: Client, other: Client, mine: Things) -> None:
    theirs = await make(other, tasks=False)
    assert mine.folder != theirs.folder
    for row, ask in FOLDER.items():
        shown = await ask(one, mine)
        assert shown.startswith("False"), (row, shown)
        assert theirs.output not in shown, row
    assert mine.output in await FOLDER["folder", "ls"](one, mine)
    assert mine.output in await FOLDER["folder", "grep_search"](one, mine)


async def test_what_a_client_has_running_ends_with_its_session(served: Served) -> None:
    """With a handshake the session is the owner: without it nobody could read, use or stop these."""
    jobs, sessions = Daemons(), Daemons()
    async with served.client(0) as client:
        await background(client, f"exec sleep {jobs.mark}")
        code = f"sleep {sessions.mark} &"
        await client.call_tool("REPL", {"language": "shell", "code": code, "session": "new"})
        cut = await client.call_tool("bash", {"command": "seq 100000"})
        saved = Path(SAVED_IN.findall(text(cut))[0])
        await until(jobs.alive)
        assert sessions.alive()
        assert saved.exists()
    await until(lambda: not jobs.alive() and not sessions.alive())
    await until(lambda: not saved.parent.exists())
