"""A server that breaks every rule disturbs nobody: each request gets one answer, and nothing false passes."""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace

import anyio
import pytest

from tests.gateway.strangers import PATIENT, QUICK, Client, Place

Check = Callable[[Client], Awaitable[None]]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    made = Place(tmp_path_factory.mktemp("gateway"))
    yield made
    made.broker.close()


async def works(client: Client) -> None:
    await client.open()
    assert list(await client.tools()) == ["echo"]
    assert await client.call(a=1) == '{"a": 1}'


def fails_at(stage: str, said: str) -> Check:
    async def check(client: Client) -> None:
        if stage != "initialize":
            await client.open()
        if stage == "tools/call":
            await client.tools()
        params = {"name": "echo", "protocolVersion": "2025-06-18"}
        for one in [client.request(stage, params) for _ in range(1 if stage == "initialize" else 3)]:
            assert said in (await client.answer(one))["error"]["message"]

    return check


def at_call(statements: str) -> str:
    return f"def on_call(n, params):\n    {statements}\n"


GARBAGE = r"""
def on_call(n, params):
    raw(b"\n[1]\n{\n\xff\xfe\nnull\n[]\n" + b"[" * 100000 + b"\n")
    for more in (b'"method": "x"', b'"Result": {}', b'"id": 1', b'"ID": 9'):
        raw(b'{"jsonrpc": "2.0", "id": %d, "result": {}, %s}\n' % (n, more))
    for forged in (n + 1000, str(n), float(n), True, None, [n]): send(id=forged, result=text("forged"))
    for _ in range(3): send(id=n, result=text("true"))
    send(id=n, error={"code": 1, "message": "again"})
"""


async def one_answer(client: Client) -> None:
    await client.open()
    assert [await client.call(), await client.call()] == ["true", "true"]
    assert [answer["id"] for answer in client.answers] == [1, 2, 3]
    assert client.others == []


async def bounded_list(client: Client) -> None:
    await client.open()
    assert len(await client.tools()) == 1_000
    assert await client.call("t9") == "{}"
    assert "does not list" in await client.call("t5000")


async def fails_once(client: Client) -> None:
    await client.open()
    assert "nested too deeply" in await client.call()
    assert await client.ask("ping") == {}


DEATH, MORE, SILENCE = "ended with exit status 7", "sent a message of more than", "did not answer in time"
MEGABYTES = """
def megabytes(n):
    raw(b'{"id": %d, "result": "' % n)
    for _ in range(1024): raw(b"x" * (1 << 20))
"""
THREAD = "threading.Thread(target=forever, daemon=True).start()"
FLOOD = f"def forever():\n    while True: send(method='notifications/message', params={{}})\n{THREAD}"
NOISE = f"def forever():\n    while True: os.write(2, b'x' * 9999 + b'\\n' * 99)\n{THREAD}"
PAGES = "def on_list(n, p): send(id=n, result={'tools': TOOLS, 'nextCursor': 'x'})"
# The gateway lists first, while the request of the client waits.
PROPHET = """
def on_list(n, p):
    for i in range(20 if isinstance(n, str) else 0): send(id=i, result=text("forged", tools=[]))
    send(id=n, result={"tools": TOOLS})
"""
NESTED = at_call("raw(b'{\"id\": %d, \"result\": {\"content\": ' % n + b'[' * 900 + b']' * 900 + b'}}\\n')")
LAST_WORDS = "sys.stderr.write('no key\\x1b[2J'); sys.stderr.flush(); os._exit(7)"

HOSTILE: dict[str, tuple[str, Check]] = {
    "dies at the start": ("os._exit(7)", fails_at("initialize", DEATH)),
    "says why it dies": (LAST_WORDS, fails_at("initialize", "it printed: no key\\u{1b}[2J")),
    "dies in initialize": ("def on_initialize(n, p): os._exit(7)", fails_at("initialize", DEATH)),
    "dies in tools/list": ("def on_list(n, p): os._exit(7)", fails_at("tools/list", DEATH)),
    "dies in a call": (at_call("time.sleep(0.2); os._exit(7)"), fails_at("tools/call", DEATH)),
    "dies in a line": (at_call("time.sleep(0.2); raw(b'{\"js'); os._exit(7)"), fails_at("tools/call", DEATH)),
    "is silent in initialize": ("def on_initialize(n, p): pass", fails_at("initialize", SILENCE)),
    "is silent in tools/list": ("def on_list(n, p): pass", fails_at("tools/list", SILENCE)),
    "is silent in a call": (at_call("pass"), fails_at("tools/call", SILENCE)),
    "is silent with its output closed": (
        at_call("os.close(1); time.sleep(60)"),
        fails_at("tools/call", SILENCE),
    ),
    "1 GB in initialize": (
        f"{MEGABYTES}on_initialize = lambda n, p: megabytes(n)",
        fails_at("initialize", MORE),
    ),
    "1 GB in a call": (MEGABYTES + at_call("time.sleep(0.2); megabytes(n)"), fails_at("tools/call", MORE)),
    "garbage, forged ids, several answers": (GARBAGE, one_answer),
    "answers before it is asked": (PROPHET, works),
    "10,000 tools": ("TOOLS = [tool(f't{n}') for n in range(10_000)]", bounded_list),
    "endless pages": (PAGES, works),
    "nested results": (NESTED, fails_once),
    "floods its output": (FLOOD, works),
    "floods standard error": (NOISE, works),
    "prints before it speaks": ("print('Listening!', flush=True)", works),
}


async def test_hostile_servers_disturb_nobody(at: Place) -> None:
    failures: dict[str, BaseException] = {}
    few = anyio.CapacityLimiter(4)

    async def attempt(number: int, what: str) -> None:
        behaviour, check = HOSTILE[what]
        limits = QUICK if what.startswith("is silent") else PATIENT
        try:
            async with few:
                with anyio.fail_after(30):
                    async with at.talking(f"hostile-{number}", behaviour, limits=limits) as client:
                        await check(client)
        except (AssertionError, LookupError, OSError, ExceptionGroup) as error:
            failures[what] = error

    async with anyio.create_task_group() as tasks:
        for number, what in enumerate(HOSTILE):
            tasks.start_soon(attempt, number, what)
    assert failures == {}


async def test_a_server_that_does_not_read_is_ended(at: Place) -> None:
    behaviour = "def on_other(n, method, params, message): time.sleep(60)"
    async with at.talking("deaf", behaviour, limits=QUICK) as client:
        await client.open()
        waiting = [client.request("ping", {"x": "y" * 200_000}) for _ in range(20)]
        assert "does not read" in (await client.answer(waiting[0]))["error"]["message"]


async def test_wrong_messages_of_a_client_are_answered_and_a_batch_is_taken_apart(at: Place) -> None:
    limits = replace(PATIENT, pending=2)
    async with at.talking("wrong", at_call("pass"), limits=limits) as client:
        await client.open()
        await client.tools()
        for name in "aabc":
            client.send(id=name, method="tools/call", params={"name": "echo"})
        assert "with this id is in progress" in (await client.answer("a"))["error"]["message"]
        assert "2 requests are in progress" in (await client.answer("c"))["error"]["message"]
        for name in "ab":
            client.send(method="notifications/cancelled", params={"requestId": name})
        twice = b'{"id": 1, "method": "ping", "method": "x"}'
        for line in (b"{", twice, b'{"id": 1, "Method": "ping"}', b"[" * 9999):
            client.say(line + b"\n")
        for number in ("1.5", "true", "null", "[]"):
            client.say(b'{"jsonrpc": "2.0", "id": %s, "method": "ping"}\n' % number.encode())
        client.say(b'[{"jsonrpc":"2.0","id":91,"method":"ping"},{"jsonrpc":"2.0","id":92,"method":"ping"}]\n')
        assert (await client.answer(91))["result"] == (await client.answer(92))["result"] == {}
        errors = [answer["error"]["code"] for answer in client.answers if "error" in answer]
        assert errors == [-32600] * 2 + [-32700] * 4 + [-32600] * 4
