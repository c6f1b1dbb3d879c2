"""Real brokers and real commands, and looking at what is left of them."""

import json
import os
import secrets
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.capabilities.processes import Command, JobQuery, JobState
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.runtime.host_services import Provide
from mcp_toolserver.runtime.processes.broker_client import Broker, BrokerPolicy
from mcp_toolserver.runtime.processes.commands import CallCommands, CommandLimits, Commands
from mcp_toolserver.runtime.providers import BackgroundJobs, CallJobs
from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.messages import Request, Script
from mcp_toolserver.runtime.sandbox.broker.policy import Helper
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import candidates
from mcp_toolserver.runtime.sandbox.layers.environment import command_environment
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.stores.saved_outputs import OutputStore
from mcp_toolserver.text.json_values import is_object
from mcp_toolserver.text.shell.command_output import explain
from mcp_toolserver.tools.agents.send_message import TOOL as SEND_MESSAGE
from mcp_toolserver.tools.shell.bash import TOOL as BASH
from mcp_toolserver.tools.tasks.task_output import TOOL as TASK_OUTPUT
from mcp_toolserver.tools.tasks.task_stop import TOOL as TASK_STOP
from tests import ROOT
from tests.support.broker_forks import start_broker
from tests.support.workbench import call as call
from tests.support.workbench import dispatcher, machine, required, with_services

FULL = "danger-full-access"
PATIENCE = 10.0
"""Seconds that a test waits for what must come."""


@contextmanager
def broker(
    mode: str = FULL,
    *helpers: Helper | tuple[str, ...],
    environ: Mapping[str, str] = os.environ,
    shell: tuple[str, ...] = (),
    bounds: CommandBounds | None = None,
    sandbox: SandboxSpec | None = None,
) -> Generator[Broker]:
    """A broker, not forked from the process that runs the tests, because that may have threads."""
    with TemporaryDirectory() as state, ExitStack() as stack:
        started = start_broker(
            BrokerPolicy(
                sandbox=sandbox or SandboxSpec(mode=mode, roots=(), home="/nonexistent", state=state),
                environment=command_environment(environ),
                helpers=tuple(one if isinstance(one, Helper) else Helper(argv=one) for one in helpers),
                shell=shell,
                bounds=bounds or CommandBounds(),
            )
        )
        stack.callback(started.close)
        yield started


def sandbox_in(folder: Path) -> SandboxSpec:
    """Of a broker that confines commands to reading the new folder `root` in `folder`."""
    (folder / "root").mkdir()
    return SandboxSpec(
        mode="read-only",
        roots=(os.path.realpath(folder / "root"),),
        home="/nonexistent",
        state=str(folder / "state"),
        programs=candidates(os.environ["PATH"], ()),
    )


@dataclass
class Asked:
    """A request at the broker, seen without the server's event loop."""

    control: socket.socket
    output: int
    words: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    unread: bytes = b""

    def next(self) -> dict[str, object]:
        """The next word of the supervisor; empty when there is none any more."""
        while b"\n" not in self.unread and (data := self.control.recv(4096)):
            self.unread += data
        line, _, self.unread = self.unread.partition(b"\n")
        message: object = json.loads(line or b"{}")
        assert is_object(message)
        self.words.append(message)
        return message

    def end(self) -> tuple[dict[str, object], str]:
        """The last word of the supervisor, and all output."""
        while self.next():
            pass
        read = b""
        while data := os.read(self.output, 1 << 20):
            read += data
        last = self.words[-2] if len(self.words) > 1 else {}
        return last, read.decode(errors="replace")

    def line(self) -> str:
        read = b""
        while not read.endswith(b"\n"):
            byte = os.read(self.output, 1)
            assert byte, f"the output ended with {read!r}"
            read += byte
        return read.decode().rstrip("\n")


@contextmanager
def asked(
    at: Broker, request: Request | str, *, cwd: str = "/", stdin: int | None = None
) -> Generator[Asked]:
    """A request; a string is a script that may take ten seconds."""
    if isinstance(request, str):
        request = Script(script=request, timeout=PATIENCE)
    output, writing = os.pipe()
    folder = os.open(cwd, os.O_RDONLY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        control = at.spawn(request, (folder, nothing if stdin is None else stdin, writing, writing))
    finally:
        for descriptor in (writing, folder, nothing):
            os.close(descriptor)
    control.settimeout(2 * PATIENCE)
    try:
        yield Asked(control, output)
    finally:
        control.close()
        os.close(output)


def outcome(at: Broker, request: Request | str, *, cwd: str = "/") -> tuple[dict[str, object], str]:
    """The supervisor's last word on a request, and the output."""
    with asked(at, request, cwd=cwd) as request_made:
        return request_made.end()


class Daemons:
    """Processes that a test starts and must see die. Each is a `sleep` of a length that nobody else uses."""

    def __init__(self) -> None:
        self.mark = f"9{secrets.randbelow(10**12):012d}"

    @property
    def script(self) -> str:
        """Starts four that do all they can to survive."""
        quiet = "</dev/null >/dev/null 2>&1"
        return (
            f"setsid -f sleep {self.mark} {quiet}\n"
            f"( (setsid sleep {self.mark} {quiet} &) & )\n"
            f"nohup sleep {self.mark} {quiet} & disown\n"
            f"(trap '' TERM HUP INT; exec setsid sleep {self.mark} {quiet}) &\n"
            "echo ready\n"
        )

    def alive(self) -> list[int]:
        """Those that run."""
        return [pid for pid in processes() if arguments(pid) == ["sleep", self.mark] and state(pid) != "Z"]


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def arguments(pid: int) -> list[str]:
    """The argument list of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")[:-1]
    except OSError:
        return []


def folder(pid: int) -> Path:
    """Where a process works, by the name it has there; no absolute path when it is gone."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return Path()


def status(pid: int) -> dict[str, str]:
    """What /proc/PID/status says; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def state(pid: int) -> str:
    """One letter, Z for a zombie; empty when the process is gone."""
    return status(pid).get("State", "")[:1]


def parent(pid: int) -> int:
    """0 for a process that is gone."""
    return int(status(pid).get("PPid", 0))


async def until(condition: Callable[[], object], seconds: float = 2 * PATIENCE) -> None:
    pause = 0.01
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(pause)
            # Conditions read /proc, which costs much where hundreds of processes run.
            pause = min(2 * pause, 0.16)


class Anywhere:
    """The folders that a test's commands may start in: all."""

    shown = None
    is_read_only = False
    keeps_git = False

    def hold_dir(self, path: CanonicalPath) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


@dataclass
class Bench:
    commands: Commands
    broker: Broker
    heard: list[str] = field(default_factory=list[str])

    @property
    def call(self) -> CallCommands:
        """What one call may do with them."""
        return CallCommands(commands=self.commands, folders=Anywhere())

    async def run(
        self, script: str, *, timeout: float | None = PATIENCE, background: bool = False, cwd: str = "/"
    ) -> JobState:
        """Run a command the way the bash tool does."""
        command = Command(script=script, cwd=CanonicalPath(cwd), timeout=timeout, background=background)
        with anyio.fail_after(3 * PATIENCE):
            return await self.call.run(command, self._report)

    async def ended(self, job: JobState) -> JobState:
        """All output of a background job, when it has ended."""
        with anyio.fail_after(3 * PATIENCE):
            offset = 0
            while True:
                page = await self.call.output(
                    JobQuery(handle=job.handle, offset=offset, limit=100_000, wait=1.0, until="output")
                )
                if not page.running:
                    return await self.call.output(JobQuery(handle=job.handle, offset=0, limit=1 << 20))
                offset = page.next_offset

    async def _report(self, message: str) -> None:
        self.heard.append(message)


@asynccontextmanager
async def bench(
    folder: Path, limits: CommandLimits | None = None, *, at: Broker | None = None
) -> AsyncGenerator[Bench]:
    """Commands with a state folder of their own, and a broker of their own unless `at` one that is shared."""
    outputs = OutputStore(str(folder / "state"))
    with nullcontext(at) if at else broker() as started:
        made = Bench(Commands(started, Anywhere(), outputs, limits), started)
        try:
            yield made
        finally:
            await made.commands.aclose()
            outputs.close()


def python(script: str, *arguments_of_it: str) -> list[str]:
    """How to run a Python script of the test's, which may import this package."""
    here = str(ROOT)
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r})\n{script}", *arguments_of_it]


@asynccontextmanager
async def served(
    folder: Path, limits: CommandLimits | None = None, *, bounds: CommandBounds | None = None
) -> AsyncGenerator[Dispatcher]:
    """The shell and task tools on the real machine, with `folder/root` as the one root."""
    host, outputs = machine(folder), OutputStore(str(folder / "outputs"))
    with broker(bounds=bounds) as started:
        commands = Commands(
            started,
            host.workspace,
            outputs,
            limits,
            explain=lambda output, status, _: explain(output, status, None),
        )
        within: Provide = lambda request: commands.for_call(request.workspace, request.scope)  # noqa: E731
        services = (Capability.PROCESS, Capability.JOBS, Capability.TASK_RUNS)
        permissions = {**host.permissions, **required(*services)}
        shell = with_services(replace(host, outputs=outputs), permissions, dict.fromkeys(services, within))
        jobs = BackgroundJobs({"bg_": within})
        shell = replace(shell, providers={**shell.providers, Capability.JOBS: partial(CallJobs, jobs)})
        tools = (
            Entry(BASH, toolset="shell"),
            Entry(TASK_OUTPUT, toolset="tasks"),
            Entry(TASK_STOP, toolset="tasks"),
            Entry(SEND_MESSAGE, toolset="agents"),
        )
        try:
            yield dispatcher(shell, *tools)
        finally:
            await commands.aclose()
            outputs.close()
