"""Several users of one server over HTTP, each with a token: what each may do, and what ends when it ends; and
what names change in single parts: the sandbox of commands, stored state and messages.
"""

import json
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_INFO_META_KEY, Implementation

from benchmarks.load import GROWTH, Load, measured, rows
from mcp_toolserver.app.compose import application_of
from mcp_toolserver.app.serve import Readiness, bind_http
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.protocol.client_identity import MAX_STATELESS
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.http.tokens import Grant, make_token, token_hash
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.runtime.processes.broker_client import BrokerPolicy
from mcp_toolserver.runtime.sandbox.broker.messages import Program, Script, decode, encode
from mcp_toolserver.runtime.sandbox.broker.policy import plan_for
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, SandboxSpec
from tests.protocol.resource_clients import background, commanding, listed, place
from tests.support.extent import rounds
from tests.support.families import lines
from tests.support.following import Follower, KnowsTasks
from tests.support.http_server import call, http_client, modern, open_session, sse_session
from tests.support.live import TOKEN, Setup, connected_to, serving, text
from tests.support.named import Names, file_of_tokens
from tests.support.processes import Daemons, until

# All tests but those that start one of their own share one server.
pytestmark = pytest.mark.xdist_group("test_named_tokens")

SERVED = "toolserver://config"


@dataclass
class Office:
    """A server with a folder for each of its users."""

    root: Path
    names: Names
    url: str
    home: Path

    def http(self, name: str, token: str = "") -> httpx.AsyncClient:
        """An HTTP client with the token of a name, or another token."""
        return http_client(self.url, token or self.names.tokens[name])

    def client(self, name: str, era: str = "legacy", **options: Any) -> Any:
        """The official client of a name."""
        return connected_to(self.url, "http", token=self.names.tokens[name], mode=era, **options)

    async def status(self, name: str, token: str = "") -> int:
        """How a call without a session is answered."""
        message, headers = modern("ls", path=".")
        async with self.http(name, token) as http:
            return (await http.post("/mcp", json=message, headers=headers)).status_code

    async def until_status(self, name: str, status: int) -> None:
        """Wait, bounded, until a call is answered with `status`."""
        with anyio.fail_after(10):
            while await self.status(name) != status:
                await anyio.sleep(0.02)

    def entries(self) -> list[dict[str, Any]]:
        """The audit log."""
        return [entry for entry in lines(self.home) if "tool" in entry]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Generator[Office]:
    """Ann writes in `a`, Ben reads in `b`, Cleo writes everywhere. Who is revoked or changed by one test is
    used by no other."""
    setup = Setup.below(tmp_path_factory.mktemp("office"), "workspace-write")
    for name in ("a", "b"):
        (setup.root / name).mkdir()
        (setup.root / name / "file").write_text(f"the text of {name}\n", encoding="utf-8")
    terms: dict[str, dict[str, Any]] = {
        "ann": {"roots": [str(setup.root / "a")]},
        "ben": {"permission-mode": "read-only", "roots": [str(setup.root / "b")]},
        "dora": {"roots": [str(setup.root / "a")]},
        "cleo": {"calls-per-minute": 3, "max-calls": 2},
        "revoked": {},
        "with-tasks": {},
        "changed": {"permission-mode": "read-only"},
        "rotated": {},
    }
    names = file_of_tokens(setup.home, terms)
    with names.serving(setup) as url:
        yield Office(root=setup.root, names=names, url=url, home=setup.home)


async def said(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a result, with `!` before that of an error."""
    result = await client.call_tool(tool, arguments)
    return ("!" if result.is_error else "") + text(result)


FEWER_FOLDERS = """
from mcp_toolserver.runtime.sandbox.protected import snapshot
snapshot.MOST_FOLDERS = 500
"""
"""The interpreter runs it before the server: as many as the server allows take minutes to make."""


@pytest.mark.long
async def test_what_one_name_fills_its_root_with_stops_no_command_of_another(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write")
    for name, count, inner in (("ann", 1_001, ""), ("ben", 1, ""), ("cleo", 401, "/.envrc")):
        for number in range(count):
            (setup.root / name / f"{number}{inner}").mkdir(parents=True)
    patch = setup.home / "patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(FEWER_FOLDERS, encoding="utf-8")
    terms = {name: {"roots": [str(setup.root / name)]} for name in ("ann", "ben", "cleo")}
    names = file_of_tokens(setup.home, terms)
    with names.serving(replace(setup, environ={"PYTHONPATH": str(patch)})) as url:
        for name, answer in (("ann", "folders"), ("ben", "worked"), ("cleo", "too many")):
            async with connected_to(url, "http", token=names.tokens[name]) as client:
                assert answer in await said(client, "bash", command="echo worked")


ROUNDS = rounds(5, 20)


@pytest.mark.rounds
async def test_modes_and_roots_hold_for_each_call_of_names_that_call_at_once(office: Office) -> None:
    def checks(name: str, mine: str, other: str) -> dict[tuple[str, str, str], Callable[[str], bool]]:
        reads = name == "ben"
        return {
            ("read_file", "path", "file"): lambda it: f"the text of {mine}" in it,
            ("read_file", "path", str(office.root / other / "file")): lambda it: it.startswith("!"),
            ("write_file", "path", "new"): lambda it: it.startswith("!") == reads == ("'ben'" in it),
            ("bash", "command", f"cat file; ls {office.root}; touch made"): lambda it: (
                f"the text of {mine}" in it
                and other not in it.split()
                and ("Read-only file system" in it) == reads
                and ("The token 'ben' is read-only" in it) == reads
                and "--permission-mode" not in it
            ),
        }

    rights = {"ann": checks("ann", "a", "b"), "ben": checks("ben", "b", "a")}
    wrong: list[tuple[str, str, str]] = []
    made = Counter[str]()
    earlier = len(office.entries())

    async def work(name: str, client: Client) -> None:
        for number in range(ROUNDS):
            for (tool, key, value), holds in rights[name].items():
                if tool == "bash" and number % 5:
                    continue
                more = {"content": "x"} if tool == "write_file" else {}
                answer = await said(client, tool, **{key: f"{value}{number}" if more else value}, **more)
                made[name] += 1
                if not holds(answer):
                    wrong.append((name, tool, answer))

    async with AsyncExitStack() as stack:
        clients = [
            (name, await stack.enter_async_context(office.client(name, era)))
            for name in rights
            for era in ("legacy", "auto")
        ]
        async with anyio.create_task_group() as group:
            for name, client in clients:
                group.start_soon(work, name, client)
    assert wrong == []
    assert (office.root / "a/made").exists()
    assert sorted(path.name for path in (office.root / "b").iterdir()) == ["file"]
    entries = office.entries()[earlier:]
    assert Counter(entry["user"] for entry in entries) == made
    assert {entry["mode"] for entry in entries if entry["user"] == "ben"} == {"read-only"}


@pytest.mark.requirement("GR-30")
async def test_each_name_sees_its_own_tools_mode_and_roots(office: Office) -> None:
    async with office.client("ann") as ann, office.client("ben") as ben:
        offered = [{tool.name for tool in (await one.list_tools()).tools} for one in (ann, ben)]
        assert "write_file" in offered[0] - offered[1]
        assert {"bash", "read_file"} <= offered[1]
        assert "that of the token 'ben'" in str(ben.instructions)
        assert "Permission mode: read-only" in str(ben.instructions)
        assert f"- {office.root}/b\n" in str(ben.instructions)
        assert f"{office.root}/a" not in str(ben.instructions)
        shown = (await ben.read_resource(SERVED)).contents[0]
        settings = json.loads(shown.text)  # type: ignore[union-attr]
        assert (settings["permission-mode"], settings["root"]) == ("read-only", [f"{office.root}/b"])
        assert [uri for uri in await listed(ben) if "/a" in uri] == []
        assert "!" in await said(ben, "read_file", path="../a/file")
        session = await said(ben, "REPL", language="shell", code="touch made; ls")
        assert "Read-only file system" in session
        await ann.call_tool("Config", {"setting": "model", "value": "mine"})
        assert "mine" in await said(ann, "Config", setting="model")
        assert "mine" not in await said(ben, "Config", setting="model")
        for client, folder in ((ann, "a"), (ben, "b")):
            skill = office.root / folder / ".agents/skills" / folder
            skill.mkdir(parents=True)
            (skill / "SKILL.md").write_text(f"Of {folder}.", encoding="utf-8")
            tools = (await client.list_tools(cache_mode="bypass")).tools
            (skills,) = [str(tool.description) for tool in tools if tool.name == "Skill"]
            assert skills.partition("words:")[2] == f"\n- {folder}: Of {folder}."


async def test_a_name_gets_nothing_from_the_package_caches_of_another(office: Office) -> None:
    seen: list[str] = []
    for name in ("ann", "dora", "ann"):
        async with office.client(name) as client:
            seen.append(await said(client, "bash", command="mkdir $UV_CACHE_DIR && echo new"))
    assert [one.startswith("new") for one in seen] == [True, True, False], seen


async def test_clients_that_share_a_token_share_its_limits_and_nothing_else(office: Office) -> None:
    async with office.client("cleo") as one, office.client("cleo") as other:
        await one.call_tool("TodoWrite", {"todos": [{"content": "mine"}]})
        assert "mine" not in await said(other, "TodoWrite", action="list")
        await other.call_tool("ls", {})
        with pytest.raises(MCPError, match="calls a minute"):
            await one.call_tool("ls", {})
    # Another name has a limit of its own.
    assert await office.status("ann") == 200


async def test_what_a_name_can_make_under_invented_client_names_is_limited(office: Office) -> None:
    async with office.http("ann") as http:

        async def ask(client: int, tool: str, **arguments: Any) -> str:
            message, headers = modern(tool)
            message["params"]["arguments"] = arguments
            message["params"]["_meta"][CLIENT_INFO_META_KEY] = {"name": f"client {client}", "version": "1"}
            return (await http.post("/mcp", json=message, headers=headers)).text

        for number in range(2):
            await ask(number, "TodoWrite", todos=[{"content": "mine"}])
        for number in range(2, MAX_STATELESS):
            await ask(number, "calculator", expression="1+1")
        assert "mine" in await ask(0, "TodoWrite", action="list")
        # One more, and the client that has asked for nothing the longest is forgotten.
        await ask(MAX_STATELESS, "calculator", expression="1+1")
        assert "mine" in await ask(0, "TodoWrite", action="list")
        assert "mine" not in await ask(1, "TodoWrite", action="list")


async def test_a_session_belongs_to_the_name_that_opened_it(office: Office) -> None:
    async with office.http("ann") as ann, office.http("ben") as ben:
        session = await open_session(ann)
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await ann.post("/mcp", json=call, headers=session)).status_code == 200
        refused = await ben.post("/mcp", json=call, headers=session)
        unknown = await ben.post("/mcp", json=call, headers={**session, "mcp-session-id": "0" * 32})
        assert (refused.status_code, refused.text) == (unknown.status_code, unknown.text)
        assert refused.status_code == 404
        assert (await ben.delete("/mcp", headers=session)).status_code == 404
        assert (await ann.post("/mcp", json=call, headers=session)).status_code == 200


async def test_revoking_a_name_ends_all_that_it_has_and_nothing_of_others(office: Office) -> None:
    running, kept, session, theirs = Daemons(), Daemons(), Daemons(), Daemons()
    name = "revoked"
    async with office.client(name) as client, office.client("ben") as ben, office.http(name) as http:
        await background(client, f"exec sleep {kept.mark}")
        code = {"language": "shell", "code": f"sleep {session.mark} &", "session": "new"}
        await client.call_tool("REPL", code)
        await background(ben, f"exec sleep {theirs.mark}")
        stateless, headers = modern("bash", command=f"exec sleep {running.mark}")
        answers: list[httpx.Response] = []

        async def call() -> None:
            answers.append(await http.post("/mcp", json=stateless, headers=headers))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            mine = (running, kept, session)
            await until(lambda: all(one.alive() for one in (*mine, theirs)))
            office.names.change(name)
            await until(lambda: not any(one.alive() for one in mine))
            with pytest.raises((MCPError, httpx.HTTPError)):
                await client.call_tool("ls", {})
        assert "the text" not in answers[0].text
        assert theirs.alive()
        assert "file" in await said(ben, "ls")
    await office.until_status(name, 401)


async def test_revoking_a_name_cancels_its_tasks(office: Office) -> None:
    running = [Daemons(), Daemons()]
    async with AsyncExitStack() as stack:
        for number, one in enumerate(running):
            info = Implementation(name=f"client {number}", version="1")
            options = {"client_info": info, "extensions": [KnowsTasks()]}
            client = await stack.enter_async_context(office.client("with-tasks", "auto", **options))
            await Follower(client).begun("bash", command=f"exec sleep {one.mark}")
        await until(lambda: all(one.alive() for one in running))
        office.names.change("with-tasks")
        await until(lambda: not any(one.alive() for one in running))


async def test_a_changed_name_begins_anew_and_a_later_end_changes_nothing(office: Office) -> None:
    async with office.http("changed") as http:
        session = await open_session(http)
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        office.names.change("changed", expires="2100-01-01T00:00:00Z")
        assert (await http.post("/mcp", json=call, headers=session)).status_code == 200
        office.names.change("changed", **{"permission-mode": "workspace-write"})
        with anyio.fail_after(10):
            while (await http.post("/mcp", json=call, headers=session)).status_code != 404:
                await anyio.sleep(0.02)
    async with office.client("changed") as client:
        assert not (await said(client, "write_file", path="new", content="x")).startswith("!")
    office.names.change("changed", **{"permission-mode": "danger-full-access"})
    # The mode is above that of the server, so the file is invalid.
    await office.until_status("ann", 503)
    office.names.change("changed")
    await office.until_status("ann", 200)


async def test_a_token_is_replaced_while_clients_work(office: Office) -> None:
    name, old, new = "rotated", office.names.tokens["rotated"], make_token()
    hashes = [token_hash(token.encode()) for token in (new, old)]
    running = Daemons()
    async with office.client(name) as client:
        await background(client, f"exec sleep {running.mark}")
        await until(running.alive)
        office.names.change(name, sha256=hashes)
        assert [await office.status(name, token) for token in (old, new)] == [200, 200]
        office.names.tokens[name] = new
        async with office.client(name) as other:
            office.names.change(name, sha256=hashes[0])
            assert [await office.status(name, token) for token in (old, new)] == [401, 200]
            assert not (await said(other, "ls")).startswith("!")
            with pytest.raises((MCPError, httpx.HTTPError)):
                await client.call_tool("ls", {})
        assert running.alive()


async def test_an_invalid_file_accepts_nobody_until_it_is_corrected(office: Office) -> None:
    running = Daemons()
    async with office.client("ann") as ann, office.http("ann") as http:
        await background(ann, f"exec sleep {running.mark}")
        await until(running.alive)
        office.names.write("[ann]\nsha256 = 1\n")
        await until(lambda: not running.alive())
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "not ready: tokens")
        assert await office.status("ann") == 503
        assert await office.status("ben") == 503
        assert await office.status("ann", "x" * 43) == 503
        office.names.save()
        await office.until_status("ann", 200)
        assert (await http.get("/readyz")).text == "ready"
        office.names.file.unlink()
        await office.until_status("ann", 503)
        office.names.save()
        await office.until_status("ann", 200)


@pytest.mark.long
async def test_the_older_transport_keeps_names_apart_as_well(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write")
    names = file_of_tokens(setup.home, {"ann": {}, "ben": {"permission-mode": "read-only"}})
    with names.serving(setup, "sse") as url:
        at = Office(root=setup.root, names=names, url=url, home=setup.home)
        async with at.http("ann") as ann, at.http("ben") as ben, sse_session(ann) as session:
            call = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
            assert (await ben.post(session.url, json=call)).status_code == 404
            assert await session.post(call) == 202
            assert (await session.answer())["id"] == 7
            names.change("ann")
            with pytest.raises(StopAsyncIteration):
                await session.answer()
            assert (await ann.post(session.url, json=call)).status_code == 401


@pytest.mark.long
async def test_calls_in_a_minute_are_bounded_over_http_by_a_flag(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "read-only", "--calls-per-minute", "2")
    with serving(setup, "http") as url:
        async with http_client(url, TOKEN) as http:
            session = await open_session(http)
            message = call("calculator", 1, expression="1+1")
            answers = [await http.post("/mcp", json=message, headers=session) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) in range(1, 31)


def test_contradictions_stop_the_start() -> None:
    for flags, why in (
        (("stdio",), "on stdio there is no token"),
        (("http", "--token-file", "x"), "not both"),
        (("http",), "cannot be read"),
    ):
        with pytest.raises(SettingsError, match=why):
            bind_http(load(["--tokens", "/absent.toml", "--transport", *flags], {}).settings)


@pytest.mark.long  # the short form of the benchmark; calls of many clients at once are checked above
def test_many_clients_of_both_eras_get_every_answer(tmp_path: Path) -> None:
    load = Load(clients=6, seconds=2.0, tree_files=50)
    figures = measured(load, tmp_path)
    assert figures.seen.errors == []
    assert all(len(seconds) > 1 for seconds in figures.seen.seconds)
    assert figures.memory_end <= GROWTH * figures.memory_warm
    assert len(rows(load, figures)) == 7


READ, WRITE, ALL = Permission


def grant(name: str, ceiling: Permission, *roots: str) -> Grant:
    return Grant(name=name, sha256=("a" * 64,), ceiling=ceiling, roots=roots)


def test_the_broker_refuses_to_run_read_only_what_nothing_confines() -> None:
    sandbox = SandboxSpec(mode="danger-full-access", roots=("/srv",), home="/root", state="/state")
    policy = BrokerPolicy(sandbox=sandbox, environment={})
    proof = Proof(commands="none", helpers="none")
    why = plan_for(policy, proof, Script(script="true", timeout=None, read_only=True))
    assert isinstance(why, str)
    assert "without a sandbox" in why
    with pytest.raises(ValueError, match="neither"):
        decode(encode(Script(script="true", timeout=None)).replace(b'"read_only": false', b'"read_only": 0'))
    assert isinstance(decode(encode(Program(argv=("/bin/true",), timeout=None))), Program)


async def test_a_name_below_full_access_has_no_commands_and_readiness_says_what_is_missing(
    tmp_path: Path,
) -> None:
    async with commanding(tmp_path) as at:
        for ceiling in (READ, WRITE):
            own = application_of(at.app, grant("ann", ceiling))
            offered = {entry.spec.name for entry in own.dispatcher.available}
            assert not offered & {"bash", "REPL"}
            assert "read_file" in offered
            assert Capability.PROCESS in own.dispatcher.host.unavailable
            await own.end()
        own = application_of(at.app, grant("ben", ALL))
        assert "bash" in {entry.spec.name for entry in own.dispatcher.available}
        assert own.dispatcher.policy.granted is ALL
        await own.end()
        readiness = Readiness(at.app, None)
        assert await readiness.unready() == []
        (tmp_path / "state").rename(tmp_path / "elsewhere")
        assert await readiness.unready() == ["state folder"]
        (tmp_path / "elsewhere").rename(tmp_path / "state")
        assert at.app.shared.broker is not None
        await anyio.to_thread.run_sync(at.app.shared.broker.close)
        assert await readiness.unready() == []
        again = Readiness(at.app, None)
        assert await again.unready() == ["broker"]


async def test_a_root_that_is_gone_leaves_no_root_and_what_is_granted_is_the_servers(tmp_path: Path) -> None:
    async with place(tmp_path, permission_mode=WRITE, granted=READ) as at:
        own = application_of(at.app, grant("ann", WRITE, f"{tmp_path}/root/gone"))
        assert own.dispatcher.policy.granted is READ
        assert own.roots == ()
        async with Client(ToolServer(Handlers(dispatcher=own.dispatcher, ask_seconds=1), "")) as client:
            answer = await client.call_tool("read_file", {"path": "a"})
            assert answer.is_error
            assert "none of the roots of its token" in str(answer.content)
    async with place(tmp_path, permission_mode=READ) as at:
        assert application_of(at.app, grant("ann", WRITE)).dispatcher.policy.ceiling is READ
