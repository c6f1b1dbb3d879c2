"""Who may answer for a human, and that an answer is good for exactly what the question showed."""

import json
import re
import sqlite3
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from anyio.abc import Process
from mcp import Client
from pydantic import JsonValue

from mcp_toolserver.app.policy import approvals_of, lenient_rules
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.approvals import approvals as command
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.pipeline.call import Result, Rights
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.hooks import Hook
from mcp_toolserver.pipeline.nested_calls import calls_without_client
from mcp_toolserver.pipeline.registry import Registry
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.approvals import APPROVALS, Approvals
from mcp_toolserver.stores.database import FOLDER, Database
from tests.gateway.strangers import Place
from tests.support.confinement import USERS, WORKSPACE_WRITE, put, scene, serving
from tests.support.extent import rounds
from tests.support.live import Setup, connected, text
from tests.support.process_layer import server_command
from tests.support.workbench import Args, Output, Person, Runtime, dispatcher, machine, tool

ASKS = ["Write", "mkdir"]
WRITE = {"path": "a", "content": "one\n"}


def requested(said: str) -> str:
    """The id of the request that a call has left."""
    found = re.search(r"approvals approve (\w+)", said)
    assert found, said
    return found[1]


@dataclass
class Host:
    """A state folder, servers that use it, and the operator."""

    folder: Path
    databases: list[Database]
    capsys: pytest.CaptureFixture[str]

    @property
    def file(self) -> Path:
        return self.folder / "state" / FOLDER / "approvals.sqlite3"

    def server(
        self,
        where: str = "w",
        *,
        user: str = "",
        seconds: float = 0.0,
        folder: Path | None = None,
        **rules: Any,
    ) -> Dispatcher:
        """A server of its own on the root of `where`."""
        (self.folder / where).mkdir(exist_ok=True)
        made = dispatcher(
            machine(self.folder / where), **{"ask": ["write_file", "edit_file", "bash"], **rules}
        )
        database = Database(str(self.folder / "state"), (), name=APPROVALS)
        self.databases.append(database)
        settings = Settings(ask_seconds=seconds)
        store = approvals_of(settings, database, made.host.workspace.roots, user)
        return replace(made, approve=store.approve, rules=lenient_rules(made.registry))

    async def operator(self, what: str, which: str = "", **more: Any) -> tuple[int, str]:
        """What `approvals` answers: its exit status and what it prints."""
        invocation = Invocation(what=what, approval=which, settings=Settings(), **more)
        status = await anyio.to_thread.run_sync(command, str(self.folder / "state"), invocation)
        out = self.capsys.readouterr()
        return status, out.out + out.err

    async def waiting(self) -> list[str]:
        return re.findall(r"(?m)^(\w{8})  waiting", (await self.operator("list"))[1])


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Generator[Host]:
    made = Host(tmp_path, [], capsys)
    yield made
    for database in made.databases:
        database.close()


async def call(
    server: Dispatcher, name: str = "write_file", person: Person | None = None, **more: JsonValue
) -> Result:
    with anyio.fail_after(20):
        return await server.call(
            name, {**WRITE, **more} if name == "write_file" else more, person or Person(says=None)
        )


async def test_the_question_shows_the_change_every_argument_and_the_rule(tmp_path: Path) -> None:
    person, server = Person(), dispatcher(machine(tmp_path), ask=["*"])
    file = tmp_path / "root/a"
    file.write_text("one\ntwo\x1b[2K\n", encoding="utf-8")
    edit: dict[str, JsonValue] = {"path": "./a", "old_string": "one", "new_string": "1\u202e"}
    shown = (
        "Allow edit_file (workspace-write)?\na\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-one\n+1\\u{202e}\n"
        ' two\\u{1b}[2K\npath: "a"\nold_string: "one"\nnew_string: "1\\u{202e}"\n'
        "The rule * wants it approved."
    )
    await call(server, "edit_file", person, **edit)
    await call(server, "edit_file", person, **{**edit, "old_string": "none"})
    await call(server, "write_file", person, content="x" * 50_000)
    await call(server, "write_file", person, path="new")
    assert person.asked[0] == shown
    # What is in the file is for the human, not for the model.
    assert "(no diff: " in person.asked[1]
    assert re.search(
        r"\n\[3\d,\d{3} more characters of this call are not shown here; .*\. SHA-256", person.asked[2]
    )
    assert len(person.asked[2]) < 16_500
    assert "\n+one\n" in person.asked[3]
    assert file.read_text(encoding="utf-8").startswith("one")


async def test_what_is_read_for_the_question_does_not_count_as_read(tmp_path: Path) -> None:
    server, yes = dispatcher(machine(tmp_path), ask=["write_file"]), Person(says=True)
    (tmp_path / "root/a").write_text("old\n" * 50, encoding="utf-8")
    assert (await call(server, person=yes)).error == "conflict"
    assert "-old" in yes.asked[0]


async def test_a_command_is_shown_whole_and_in_its_parts(tmp_path: Path) -> None:
    class Script(Args):
        command: str

    async def run(_: Script, __: Runtime) -> Output:
        return Output("ran")

    shell = tool(run, Script, kind="execute", script=lambda args: args.command)
    person, server = Person(), dispatcher(machine(tmp_path), shell, ask=["probe(git push:*)"])
    await call(server, "probe", person, command="  echo a;git  push f\u043e\n")
    shown = ("echo a", r"git  push f\u043e", r'command: "  echo a;git  push f\u043e\n"')
    end = "The rule probe(git push:*) wants it approved."
    assert person.asked == ["\n".join(("Allow probe (read-only)?", *shown, end))]


async def test_a_file_that_changes_after_the_question_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "root/a"

    class Meanwhile(Person):
        async def ask(self, question: str) -> bool:
            file.write_text("theirs\n", encoding="utf-8")
            return True

    server = dispatcher(machine(tmp_path), ask=["write_file"])
    assert (await call(server, person=Meanwhile(), overwrite=True)).error == "conflict"
    assert file.read_text(encoding="utf-8") == "theirs\n"


async def test_a_yes_lets_exactly_this_call_run_once(host: Host) -> None:
    server = host.server()
    which = requested((await call(server)).text)
    assert (await host.operator("list", which))[1].endswith("The rule write_file wants it approved.\n")
    assert await host.waiting() == [which]
    assert requested((await call(server)).text) == which, "the same call is the same request"
    assert (await host.operator("approve", which))[0] == 0
    assert (await host.operator("approve", which))[0] == 1, "replayed"
    quiet, stranger = Person(says=None), Person(says=None, owner="connection 2")
    edit = {"path": "a", "old_string": "x", "new_string": "one\n"}
    policies = {
        "new deny rule": host.server(deny=["Write(a)"]).policy,
        "new rules": host.server(ask=["Write", "ls"]).policy,
        "lower mode": host.server(ceiling=Permission.READ_ONLY).policy,
    }
    others: dict[str, tuple[Dispatcher, str, Person, dict[str, Any]]] = {
        "one byte": (server, "write_file", quiet, {"content": "one \n"}),
        "one argument more": (server, "write_file", quiet, {"overwrite": True}),
        "other path": (server, "write_file", quiet, {"path": "b"}),
        "other tool": (server, "edit_file", quiet, edit),
        "confirmed by itself": (server, "write_file", quiet, {"approved": True}),
        "other session": (server, "write_file", stranger, {}),
        "other user": (host.server(user="anna"), "write_file", quiet, {}),
        "other workspace": (host.server("v"), "write_file", quiet, {}),
        "other server": (host.server(), "write_file", quiet, {}),
        **{name: (replace(server, policy=one), "write_file", quiet, {}) for name, one in policies.items()},
    }
    ran = [
        name
        for name, (at, tool_, who, more) in others.items()
        if not (await call(at, tool_, who, **more)).error
    ]
    assert ran == []
    assert not (host.folder / "w/root/a").exists()
    assert (await call(server)).text.startswith("Created a")
    (host.folder / "w/root/a").unlink()
    assert requested((await call(server)).text) != which


async def test_a_file_that_changes_makes_a_new_request(host: Host) -> None:
    server, file = host.server(), host.folder / "w/root/a"
    file.write_text("one\n", encoding="utf-8")
    which = requested((await call(server, content="two\n", overwrite=True)).text)
    await host.operator("approve", which)
    file.write_text("three\n", encoding="utf-8")
    assert requested((await call(server, content="two\n", overwrite=True)).text) != which


async def test_a_yes_is_not_for_another_tool_with_the_same_arguments(host: Host) -> None:
    server = host.server(ask=["*"])
    (host.folder / "w/root/a").write_text("one\n", encoding="utf-8")
    await host.operator("approve", requested((await call(server, "head", path="a")).text))
    assert (await call(server, "tail", path="a")).error == "denied"
    assert (await call(server, "head", path="a")).error is None


async def test_a_no_is_an_answer_once(host: Host) -> None:
    server = host.server()
    which = requested((await call(server)).text)
    assert (await host.operator("deny", which))[0] == 0
    assert "did not get it" in (await call(server)).text
    assert requested((await call(server)).text) != which


async def test_answers_for_a_session_and_for_a_pattern_are_listed_and_revoked(host: Host) -> None:
    server, other = host.server(ask=ASKS), Person(says=None, owner="connection 2")
    which = requested((await call(server, "mkdir", path="x")).text)
    await host.operator("approve", which, for_session=True)
    assert [(await call(server, "mkdir", path="x")).error for _ in range(2)] == [None, None]
    assert (await call(server, "mkdir", other, path="x")).error == "denied"
    assert f"{which}  session" in (await host.operator("list"))[1]
    assert (await host.operator("revoke", which))[0] == 0
    assert (await call(server, "mkdir", path="x")).error == "denied"

    which = requested((await call(server, path="x/b")).text)
    for wrong in ({"pattern": "Nothing"}, {"pattern": "Write", "until": "never"}):
        with pytest.raises(SettingsError):
            await host.operator("approve", which, **wrong)
    assert which in await host.waiting()
    assert (await host.operator("approve", which, pattern="Write(x/**)", until="2h"))[0] == 0
    found = re.search(
        r"(\w+)  pattern +120 min  write_file  Write\(x/\*\*\)", (await host.operator("list"))[1]
    )
    assert found
    later = host.server(ask=ASKS)
    for at, who, path, error in (
        (server, Person(says=None), "x/c", None),
        (later, other, "x/d", None),
        (server, Person(says=None), "y", "denied"),
        (host.server(ask=ASKS, user="anna"), Person(says=None), "x/e", "denied"),
        (host.server("v", ask=ASKS), Person(says=None), "x/e", "denied"),
        (host.server(ask=["Write", "ls"]), Person(says=None), "x/e", "denied"),
        (host.server(ask=ASKS, deny=["Write(x/e)"]), Person(says=None), "x/e", "denied"),
        (host.server(ask=ASKS, ceiling=Permission.READ_ONLY), Person(says=None), "x/e", "denied"),
    ):
        assert (await call(at, person=who, path=path)).error == error, path
    assert (await host.operator("revoke", found[1]))[0] == 0
    assert (await call(later, path="x/f")).error == "denied"
    assert (await host.operator("revoke", found[1]))[0] == 1


async def test_what_a_hook_asks_or_runs_outside_the_sandbox_is_approved_once_each_time(host: Host) -> None:
    class Out(Args):
        def why_outside(self) -> str:
            return "docker build"

    async def run(*_: object) -> Output:
        return Output("ran")

    async def asks(_: object) -> JsonValue:
        return {"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "odd"}}

    probe = tool(run, Out, kind="execute", script=lambda _: "make")
    hook = Hook(name="hook 1", event="PreToolUse", run=asks, timeout=5)
    plain = host.server(seconds=60, ask=(), granted=Permission.WORKSPACE_WRITE)
    outside = replace(plain, registry=Registry([probe]), offered=frozenset({"probe"}))
    watcher, quiet = Database(str(host.folder / "state"), (), name=APPROVALS), Person(says=None)
    host.databases.append(watcher)
    cases: tuple[tuple[Dispatcher, str, dict[str, Any]], ...] = (
        (outside, "probe", {}),
        (replace(plain, hooks=(hook,)), "mkdir", {"path": "x"}),
    )
    for server, name, arguments in cases:
        for answer in ({}, {"for_session": True}, {"pattern": "*", "until": "2h"}):
            which = requested((await call(server, name, **arguments)).text)
            assert (await host.operator("approve", which, **answer))[0] == 0
            ran = [(await call(server, name, **arguments)).error for _ in range(2)]
            assert ran == [None, "denied"], (name, answer)
        with Approvals(database=watcher).watched():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.call, name, arguments, quiet)
                with anyio.fail_after(20):
                    assert (await host.operator("approve", (await host.waiting())[-1], for_session=True))[
                        0
                    ] == 0
        assert (await call(server, name, **arguments)).error == "denied"


async def test_requests_expire_end_with_their_server_and_are_bounded(host: Host) -> None:
    server = host.server()
    first, second = [requested((await call(server, path=path)).text) for path in "ab"]
    await host.operator("approve", second)
    with sqlite3.connect(host.file) as raw:
        raw.execute("UPDATE approvals SET expires = 1")
    assert (await host.operator("approve", first))[0] == 1
    assert (await call(server, path="b")).error == "denied"
    assert first not in await host.waiting()
    for number in range(25):
        await call(server, path=f"n{number}")
    waiting = await host.waiting()
    assert len(waiting) == 20
    host.databases[0].close()
    assert await host.waiting() == []
    assert (await host.operator("approve", waiting[0]))[0] == 1
    with pytest.raises(SettingsError):
        await host.operator("approve")
    with pytest.raises(SettingsError):
        await host.operator("deny", waiting[0], pattern="Write")


async def test_texts_of_a_call_cannot_control_the_terminal(host: Host) -> None:
    hostile = "\x1b[2K\u202e\r\nfffffff0  waiting\ud800"
    person = Person(says=None, name=f"client{hostile}")
    which = requested((await call(host.server(), person=person, path="\u3164", content=hostile[:-1])).text)
    for shown in ((await host.operator("list"))[1], (await host.operator("list", which))[1]):
        assert all(one.isprintable() or one == "\n" for one in shown)
    assert await host.waiting() == [which]


async def test_where_nobody_can_answer_the_denial_says_what_the_operator_can_do(host: Host) -> None:
    server = host.server()
    host.file.parent.mkdir(parents=True)
    host.file.mkdir()
    assert (await call(server, person=Person(says=True))).error == "unavailable"
    asking = dispatcher(machine(host.folder), ask=["Write"])
    assert "change the ask rule Write" in (await call(asking)).text
    escalated = dispatcher(machine(host.folder), granted=Permission.READ_ONLY)
    assert "add the allow rule write_file(a)" in (await call(escalated)).text


async def test_calls_without_a_client_use_the_same_requests(host: Host) -> None:
    server = host.server()
    calls = calls_without_client(server, Rights(), owner="agent 1", name="an agent")
    which = requested((await calls.call("write_file", WRITE)).text)
    await host.operator("approve", which)
    assert (await call(server)).error == "denied"
    assert (await calls.call("write_file", WRITE)).error is None


@asynccontextmanager
async def terminal(state: Path, *words: str) -> AsyncGenerator[Process]:
    process = await anyio.open_process(
        [*server_command(), "approvals", *words, "--state-dir", str(state)], stderr=None
    )
    async with process:
        yield process
        with suppress(ProcessLookupError):
            process.terminate()


async def until(process: Process, wanted: str) -> str:
    seen, stdout = "", process.stdout
    assert stdout
    with anyio.fail_after(30):
        while wanted not in seen:
            seen += (await stdout.receive()).decode()
    return seen


async def test_a_call_waits_while_an_operator_watches(host: Host) -> None:
    server, state = host.server(seconds=60.0), host.folder / "state"
    results: dict[str, Result] = {}

    async def write(path: str) -> None:
        results[path] = await server.call("write_file", {**WRITE, "path": path}, Person(says=None))

    async with terminal(state, "watch") as process:
        await until(process, "Watching")
        assert process.stdin
        for path, line in (("a", b"y\n"), ("b", b"n\n"), ("c", b"s\n")):
            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(write, path)
                    assert f'path: "{path}"' in await until(process, "waiting: ")
                    await process.stdin.send(line)
        equal = list[Result]()

        async def write_alike() -> None:
            equal.append(await server.call("write_file", {**WRITE, "path": "z"}, Person(says=None)))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write_alike)
                tasks.start_soon(write_alike)
                # The no is for a second request, if one call comes after the other has run.
                await process.stdin.send(b"y\nn\n")
        short = host.server(seconds=0.0)
        assert requested((await call(short, path="e")).text)
    assert [results[path].error for path in "abc"] == [None, "denied", None]
    assert sorted(one.error or "" for one in equal) == ["", "denied"], "one yes lets one of two run"
    # Nobody watches any more.
    assert requested((await call(server, path="d")).text) in await host.waiting()


@pytest.mark.rounds
async def test_of_two_processes_that_answer_one_wins(host: Host) -> None:
    server = host.server()
    for number in range(rounds(1, 3)):
        which = requested((await call(server, path=f"{number}")).text)
        state = host.folder / "state"
        async with terminal(state, "approve", which) as yes, terminal(state, "deny", which) as no:
            with anyio.fail_after(30):
                statuses = await yes.wait(), await no.wait()
        assert sorted(statuses) == [0, 1]
        answer = await call(server, path=f"{number}")
        assert (answer.error is None) == (statuses[0] == 0), answer.text


ASK = '[rules]\nask = ["Write"]\n'


@pytest.mark.parametrize("era", ["legacy", pytest.param("auto", marks=pytest.mark.long)])
async def test_real_clients_get_an_answer_the_first_way_that_works(
    era: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = put(tmp_path / "config.toml", ASK)
    setup = Setup.below(tmp_path, WORKSPACE_WRITE, "--config", str(config))
    operator, asked = Host(setup.home, [], capsys), list[str]()
    decline = mcp.ElicitResult(action="decline")
    replies: list[mcp.ElicitResult | mcp.ErrorData] = [
        mcp.ElicitResult(action="accept", content={"decision": "allow"}), decline
    ]  # fmt: skip

    async def answer(_: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult | mcp.ErrorData:
        asked.append(params.message)
        # Then it rejects what it said it can.
        return replies.pop(0) if replies else mcp.ErrorData(code=-32600, message="never")

    async def approved_by_the_operator(made: Client) -> None:
        which = requested(text(await made.call_tool("write_file", WRITE)))
        assert "is approved" in (await operator.operator("approve", which))[1]
        assert (await made.call_tool("write_file", {**WRITE, "content": "one"})).is_error
        assert not (await made.call_tool("write_file", WRITE)).is_error
        assert (await made.call_tool("write_file", {**WRITE, "path": "b"})).is_error
        (setup.root / "a").unlink()

    async with connected(setup, "stdio", era, elicitation_callback=answer) as made:
        for path, said in (("yes", "Created yes"), ("no", "did not get it")):
            assert said in text(await made.call_tool("write_file", {**WRITE, "path": path}))
            assert "remembered" in (await operator.operator("list"))[1], "an answer leaves nothing"
        assert len(asked) == 2
        if era == "legacy":
            await approved_by_the_operator(made)
    # One that has nothing to ask with.
    async with connected(setup, "stdio", era) as made:
        await approved_by_the_operator(made)
    assert "remembered" in (await operator.operator("list"))[1], "requests end with their server"


async def test_a_server_behind_wrap_asks_in_the_same_way(tmp_path: Path, host: Host) -> None:
    at = Place(tmp_path)
    try:
        async with at.talking("asks", ask=("mcp__asks",)) as made:
            await made.open()
            which = requested(await made.call("echo", a=1))
            state = str(at.state)
            for what in ("list", "approve"):
                done = Invocation(settings=Settings(), what=what, approval=which)
                assert await anyio.to_thread.run_sync(command, state, done) == 0
            assert requested(await made.call("echo", a=2)) != which
            assert json.loads(await made.call("echo", a=1)) == {"a": 1}
            which = requested(await made.call("echo", a=1))
            remembers = Invocation(
                settings=Settings(), what="approve", approval=which, pattern="mcp__asks__echo", until="1h"
            )
            assert await anyio.to_thread.run_sync(command, state, remembers) == 0
            assert [json.loads(await made.call("echo", a=n)) for n in (1, 3)] == [{"a": 1}, {"a": 3}]
    finally:
        at.broker.close()


FORGE = """
import os, sqlite3
for path in {places!r}:
    try:
        with sqlite3.connect(path, timeout=1) as raw:
            raw.execute("UPDATE approvals SET status = 'approved'")
        print("forged", path)
    except Exception as error:
        print(path, error)
"""


@pytest.mark.parametrize(
    "user", [pytest.param(user, marks=() if user == "root" else pytest.mark.long) for user in USERS]
)
def test_nothing_that_the_model_can_call_answers(user: str) -> None:
    with scene(user) as at:
        put(at.home / "config.toml", ASK)
        with serving(at, WORKSPACE_WRITE, "--config", str(at.home / "config.toml")) as server:
            which = requested(server.call("write_file", path="a", content="x").text)
            file = at.state / FOLDER / "approvals.sqlite3"
            before = file.read_bytes()
            script = put(
                at.root / "forge.py",
                FORGE.format(places=[str(file), f"/proc/{server.client.pid}/root{file}"]),
            )
            said: Sequence[str] = [
                server.bash(f"{sys.executable} {script}; ls {file}"),
                server.bash(f"{' '.join(server_command())} approvals approve {which} --state-dir {at.state}"),
                server.bash(f"ln -s {file} link; echo x > {file}; mv {at.state} gone; rm -rf {at.state}"),
                *(
                    server.call(name, path=path, **more).text
                    for path in (str(file), "link", f"../../../../../{file}")
                    for name, more in (
                        ("read_file", {}),
                        ("edit_file", {"old_string": "a", "new_string": "b"}),
                    )
                ),
            ]
            assert not any("forged" in one or "is approved" in one for one in said), said
            assert file.read_bytes() == before
            assert server.call("write_file", path="a", content="x").is_error
            assert not (at.root / "a").exists()
