"""Nothing that a command starts outlives its call, its client or its server, however that ends; what ran is
cancelled, written down and gone, and the process leaves.
"""

import contextlib
import os
import random
import re
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import anyio
import pytest

from mcp_toolserver.app.serve import run_until_shutdown
from tests.protocol.lines import Running, call, on_pipes, opening, running
from tests.support.extent import rounds
from tests.support.families import Family, lines, outcomes
from tests.support.live import MODES, TOKEN, Setup, SharedServers, connected_to
from tests.support.processes import until


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.below(tmp_path, "danger-full-access")


def on_a_terminal(setup: Setup) -> contextlib.AbstractContextManager[Running]:
    ours, theirs = os.openpty()
    return running(setup, (theirs, theirs), [ours])


@contextmanager
def over_http(setup: Setup, transport: str) -> Generator[Running]:
    token = setup.home / "token"
    token.write_text(TOKEN, encoding="utf-8")
    token.chmod(0o600)
    nothing = os.open(os.devnull, os.O_RDWR)
    flags = ("--transport", transport, "--port", "0", "--token-file", str(token))
    with running(setup, (nothing, nothing), [], *flags) as server:
        yield server


@pytest.mark.parametrize(
    ("end", "mode"),
    [(1, "danger-full-access"), (0, "workspace-write")],
    ids=["nobody-listens", "end-of-input-workspace-write"],
)
async def test_a_server_on_stdio_ends_with_all_that_it_started(end: int, mode: str, setup: Setup) -> None:
    family = Family()
    # In a sandbox without a handshake.
    era = "legacy" if mode == "danger-full-access" else "auto"
    with on_pipes(replace(setup, mode=mode)) as server:
        server.say(*opening(era))
        await server.first_answer()
        server.say(call("bash", era=era, command=family.command))
        await until(lambda: family.runs)
        server.close(server.ends[end])
        assert await server.ended() == 0
        assert "Traceback" not in server.said
    assert family.is_gone
    assert outcomes(setup.home) == [("bash", "cancelled")]
    assert list((setup.home / "state").glob("sessions/*")) == []


@asynccontextmanager
async def calling(server: Running, transport: str, era: str, family: Family) -> AsyncGenerator[None]:
    """A client over HTTP that waits for the end of this family."""
    await until(lambda: "listening on" in server.said)
    found = re.search(r"http://\S+", server.said)
    assert found

    async def talk() -> None:
        # The server goes away under it.
        with contextlib.suppress(Exception):
            async with connected_to(found[0], transport, mode=era) as client:
                await client.call_tool("bash", {"command": family.command})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk)
        await until(lambda: family.runs)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("transport", "era"), [("http", "auto"), pytest.param("sse", "legacy", marks=pytest.mark.long)]
)
async def test_a_server_over_http_ends_with_all_that_it_started(
    transport: str, era: str, setup: Setup
) -> None:
    family = Family()
    with over_http(setup, transport) as server:
        async with calling(server, transport, era, family):
            server.process.send_signal(signal.SIGINT)
            assert await server.ended() == 130
        assert "Traceback" not in server.said
    assert family.is_gone
    assert outcomes(setup.home) == [("bash", "cancelled")]


async def test_sessions_and_background_commands_end_with_the_call_in_flight(setup: Setup) -> None:
    families = [Family() for _ in range(3)]
    with on_pipes(setup) as server:
        server.say(*opening("legacy"))
        session, background, flight = (family.command for family in families)
        code = f"{session.removesuffix('wait')} true"
        server.say(
            call("REPL", 2, language="shell", code=code, session="new"),
            call("bash", 3, command=background, run_in_background=True),
            call("bash", 4, command=flight),
        )
        await until(lambda: all(family.runs for family in families))
        await until(lambda: len(lines(setup.home)) == 2)
        server.process.send_signal(signal.SIGTERM)
        assert await server.ended() == 143
    assert all(family.is_gone for family in families)
    assert sorted(outcomes(setup.home)) == [("REPL", "output"), ("bash", "cancelled"), ("bash", "output")]


async def test_a_server_at_a_terminal_ends_though_a_thread_waits_for_input(setup: Setup) -> None:
    family = Family()
    with on_a_terminal(setup) as server:
        server.say(*opening("legacy"), call("bash", command=family.command))
        await until(lambda: family.runs)
        assert "waiting for an MCP client" in server.said
        assert "mcp-toolserver setup CLIENT" in server.said
        server.process.send_signal(signal.SIGHUP)
        assert await server.ended() == 129
        assert "Traceback" not in server.said
    assert family.is_gone
    assert outcomes(setup.home) == [("bash", "cancelled")]


SWALLOWING = """
import os, signal, sys, weakref

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_IMPORT"]:
            class Weak: pass
            weak = Weak()
            reference = weakref.ref(weak, lambda _: os.kill(os.getpid(), signal.SIGINT))
            del weak

sys.meta_path.insert(0, Finder())
"""
"""Sends the process SIGINT where Python swallows exceptions; the import system runs such a callback too."""


async def test_an_interrupt_during_an_import_is_not_lost(setup: Setup) -> None:
    (setup.home / "site").mkdir()
    (setup.home / "site/sitecustomize.py").write_text(SWALLOWING, encoding="utf-8")
    environ = {"INTERRUPTED_IMPORT": "mcp_toolserver.app.compose", "PYTHONPATH": str(setup.home / "site")}
    with on_pipes(replace(setup, environ=environ)) as server:
        assert await server.ended() in (-signal.SIGINT, 128 + signal.SIGINT)
        assert server.said == ""
    assert outcomes(setup.home) == []


LATEST = 0.7
"""Seconds after the start of a server at which the last signals come."""

TEMPORARY = ("sessions/*", "scratch/*", "**/*.tmp", "**/.new-*")
"""What a server that has ended must not have left in its state folder."""


async def faults_of_a_start(base: Path, chosen: random.Random) -> list[str]:
    """Start a server in some mode, and send it a signal at some moment; what is wrong with its end."""
    number, delay = chosen.choice((signal.SIGINT, signal.SIGTERM)), chosen.uniform(0, LATEST)
    flags = chosen.choice(((), (), ("--transport", "http", "--port", "0")))
    (base / "tmp").mkdir()
    setup = replace(Setup.below(base, chosen.choice(MODES), *flags), environ={"TMPDIR": str(base / "tmp")})
    with on_pipes(setup) as server:
        # The moment of the signal is what varies here; nothing is waited for.
        await anyio.sleep(delay)
        server.process.send_signal(number)
        status = await server.ended()
    # Before the first line of the package, Python itself takes SIGINT, and may end with a traceback.
    by_python = number == signal.SIGINT and status == 1 and "mcp_toolserver" not in server.said
    is_right = status in (-number, 128 + number) or by_python
    left = [*(base / "tmp").iterdir(), *setup.root.iterdir()]
    left += [path for path in setup.home.iterdir() if path.name not in ("state", "stderr")]
    left += [path for pattern in TEMPORARY for path in (setup.home / "state").glob(pattern)]
    left += [path for path in base.rglob("*") if path.is_socket()]
    wrong = [] if is_right else [f"{number!r} after {delay}: {status}: {setup.command}: {server.said}"]
    return wrong + [str(path) for path in left]


@pytest.mark.rounds
async def test_a_signal_at_any_moment_of_the_start_ends_the_server_and_leaves_nothing_behind() -> None:
    chosen, places = random.Random(19), anyio.CapacityLimiter(2)
    faults: list[str] = []

    async def start() -> None:
        async with places:
            with tempfile.TemporaryDirectory(prefix="starts-", ignore_cleanup_errors=True) as base:
                faults.extend(await faults_of_a_start(Path(base), chosen))

    async with anyio.create_task_group() as tasks:
        for _ in range(rounds(4, 2_000)):
            tasks.start_soon(start)
    assert faults == []


def sleeps(pid: int) -> int:
    """How often threads of this process, all but its first, have waited for something."""
    others = (task for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid))
    texts = "".join((task / "status").read_text(encoding="utf-8") for task in others)
    return sum(map(int, re.findall(r"\nvoluntary_ctxt_switches:\s*(\d+)", texts)))


async def test_a_call_that_cannot_be_cancelled_does_not_hold_the_end_up(setup: Setup) -> None:
    todo = {"content": "look", "activeForm": "looking", "status": "in_progress"}
    with on_pipes(setup) as server:
        server.say(*opening("legacy"), call("TodoWrite", todos=[todo]))
        await until(lambda: len(lines(setup.home)) == 1)
        (store,) = (setup.home / "state").rglob("*.sqlite*")
        with contextlib.closing(sqlite3.connect(store)) as other:
            other.execute("BEGIN EXCLUSIVE")
            before = sleeps(server.process.pid)
            server.say(call("TodoWrite", 3, todos=[todo]))
            # The thread that waits for the lock looks again and again. An idle one sleeps on.
            await until(lambda: sleeps(server.process.pid) > before + 10)
            server.process.send_signal(signal.SIGTERM)
            assert await server.ended() == 143
    assert outcomes(setup.home) == [("TodoWrite", "output"), ("TodoWrite", "cancelled")]


class Left(BaseException):
    """Stands for the end of the process."""


def leave(status: int) -> NoReturn:
    raise Left(status)


class Stuck:
    """What is to be closed, gets another signal meanwhile, and is closed only when that is written down."""

    shutdown_timeout = 60.0

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.left = anyio.Event()

    async def aclose(self) -> None:
        self.seen.append("closing")
        os.kill(os.getpid(), signal.SIGINT)
        await self.left.wait()

    def record(self) -> None:
        self.seen.append("recorded")
        self.left.set()


async def test_a_second_signal_ends_the_process_at_once() -> None:
    async def for_ever(_: Callable[[], None]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep_forever()

    parts: Any = Stuck()
    ended = pytest.RaisesExc(Left, match="^143$")
    with anyio.fail_after(10), pytest.RaisesGroup(ended, allow_unwrapped=True, flatten_subgroups=True):
        await run_until_shutdown(for_ever, parts, leave)
    assert parts.seen == ["closing", "recorded"]


async def test_a_signal_that_the_parent_has_ignored_stays_ignored() -> None:
    class Nothing(Stuck):
        async def aclose(self) -> None: ...

    nothing: Any = Nothing()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def work(_: Callable[[], None]) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await anyio.sleep(0)

    try:
        assert await run_until_shutdown(work, nothing, leave) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


async def gone(family: Family) -> None:
    """Within a second, as promised."""
    await until(lambda: family.is_gone, seconds=1)


@pytest.mark.requirement("GR-67")
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("transport", "era"),
    [("stdio", "legacy"), ("http", "auto"), pytest.param("sse", "legacy", marks=pytest.mark.long)],
)
async def test_a_cancelled_call_takes_its_family_along(
    transport: str, era: str, shared: SharedServers
) -> None:
    family, setup = Family(), shared.setup("danger-full-access")
    client = await shared.client(setup, transport, era)
    before = Counter(outcomes(setup.home))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "bash", {"command": family.command})
        await until(lambda: family.runs, seconds=30)
        tasks.cancel_scope.cancel()
    await gone(family)
    assert "again" in str((await client.call_tool("bash", {"command": "echo again"})).content)
    recorded = Counter({("bash", "cancelled"): 1, ("bash", "output"): 1})
    await until(lambda: Counter(outcomes(setup.home)) - before == recorded)


async def test_a_server_that_is_killed_takes_every_family_along(setup: Setup) -> None:
    family = Family()
    with on_pipes(setup) as server:
        server.say(*opening("legacy"), call("bash", command=family.command))
        await until(lambda: family.runs, seconds=30)
        server.process.send_signal(signal.SIGKILL)
        await gone(family)
