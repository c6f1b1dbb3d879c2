"""Collects the facts about this machine and these settings that the checks rate, and tests the sandbox."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from mcp_toolserver.app import confinement
from mcp_toolserver.app.agent_model import model_options
from mcp_toolserver.app.compose import host_facts
from mcp_toolserver.app.policy import rule_context
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import DESKTOP, Capability
from mcp_toolserver.commands.doctor import host
from mcp_toolserver.commands.doctor.host import Host, RootFacts
from mcp_toolserver.errors import SettingsError, ToolError
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.pipeline.stored_rights import wanted_mode
from mcp_toolserver.policy.rules import by_reach
from mcp_toolserver.runtime.cron.schedules import GRACE_SECONDS
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.files.path_resolver import Openat2, best_resolver
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.processes.broker_client import start_broker
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, find_shell, plan_for
from mcp_toolserver.runtime.sandbox.layers import landlock
from mcp_toolserver.runtime.sandbox.layers.process_locks import LockError, lock_server
from mcp_toolserver.runtime.sandbox.layers.spec import Check, Proof, with_tuples
from mcp_toolserver.runtime.tasks.runner import RECORDED
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.board import StoredBoard
from mcp_toolserver.stores.cron import StoredSchedules
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.git_backups import failures
from mcp_toolserver.stores.state_dir import state_folder
from mcp_toolserver.text.file_names import lies_in

READ_ONLY, WORKSPACE_WRITE, FULL = "read-only", "workspace-write", "danger-full-access"
MODES = (READ_ONLY, WORKSPACE_WRITE, FULL)
CONFINED = (READ_ONLY, WORKSPACE_WRITE)

COMMAND_PROGRAMS = ("rg", "git", "python3", "node")


@dataclass(frozen=True)
class LayerReport:
    """The tests of the layer that holds commands, or the server's process, in one mode."""

    layer: str
    held: bool
    checks: tuple[Check, ...]
    reasons: tuple[str, ...]

    @property
    def why_not(self) -> str:
        failed = (f'"{check.name}" does not hold' for check in self.checks if not check.held)
        return "; ".join(self.reasons or failed)


NO_SANDBOX = Proof(reasons=(f"there is no sandbox on {sys.platform}",))
NO_SERVER = LayerReport("none", held=False, checks=(), reasons=NO_SANDBOX.reasons)


@dataclass(frozen=True, kw_only=True)
class Facts:
    settings: Settings
    policy: BrokerPolicy
    """What commands get."""
    found: HostExecutables
    host: Host
    roots: tuple[RootFacts, ...]
    broker: bool
    openat2: bool
    abi: int
    """The version of Landlock; 0 is none."""
    errata: tuple[int, ...]
    filters: str
    """Why system calls cannot be filtered; empty when they can."""
    proofs: Mapping[str, Proof]
    """Proof of the command sandbox, by confined mode."""
    servers: Mapping[str, LayerReport]
    """Test results of the server's lock, by confined mode."""
    unprotectable: str
    """Why a root cannot be protected; empty when it can."""
    ripgrep_version: str
    git_version: str
    exposed: tuple[str, ...]
    """Files and folders of the server that other users can read or change."""
    desktop: Mapping[str, str] = field(default_factory=dict[str, str])
    """Available desktop features, each with its program."""
    no_desktop: Mapping[str, str] = field(default_factory=dict[str, str])
    """Unavailable desktop features, each with the reason."""
    command_programs: Mapping[str, str] = field(default_factory=dict[str, str])
    """What a command finds on its PATH: an absolute path, or empty, for each of `COMMAND_PROGRAMS`. Empty
    without a root, and where no command runs."""
    hiding_rules: tuple[str, ...] = ()
    """Deny rules that hide paths from tools, and in a confined mode from commands."""
    tool_rules: tuple[str, ...] = ()
    """Deny rules that bind only calls of the tool they name, and not what commands do."""
    upstreams: Mapping[str, str] = field(default_factory=dict[str, str])
    """Whether each upstream server could be reached: `connected`, or why not."""
    unused_rules: Mapping[str, str] = field(default_factory=dict[str, str])
    """Rules that can never decide anything, each with the reason."""
    invalid_projects: tuple[str, ...] = ()
    """What is wrong with the rules of projects."""
    hidden_git: Mapping[str, str] = field(default_factory=dict[str, str])
    """The `.git` folders that these rules hide from commands for their history, each with the reason."""
    no_backup: Mapping[str, str] = field(default_factory=dict[str, str])
    """The git folders in the roots whose history has no backup, each with the reason."""
    model: str = ""
    """The provider and the name of the model for agents, without address and key; empty without one."""
    waiting: Mapping[str, str] = field(default_factory=dict[str, str])
    """The tasks and schedules of this user that wait for a server, each with what it needs."""
    no_model: str = ""
    """Why the settings of the model are invalid; empty when they are valid."""

    @property
    def mode(self) -> str:
        """The configured one."""
        return self.policy.sandbox.mode

    @property
    def proof(self) -> Proof:
        """Of the configured mode."""
        return self.proofs.get(self.mode, NO_SANDBOX)


def examine(settings: Settings, found: HostExecutables, *, broker: bool) -> Facts:
    """Collect facts, and test the sandbox. Raises: SettingsError: a root or a temporary folder is missing."""
    policy = confinement.broker_policy(settings, found)
    policy = replace(policy, shell=policy.shell or find_shell(policy.environment.get("PATH", "")))
    linux = broker and sys.platform == "linux"
    abi = landlock.abi() if linux else 0
    facts = host_facts(settings, found, NO_SANDBOX if broker else None, server_lock=None)
    proofs = {mode: _proof(policy, mode) if broker else NO_SANDBOX for mode in CONFINED}
    model, no_model = _model(settings)
    filters = f"there are none on {sys.platform}"
    if linux:
        from mcp_toolserver.runtime.sandbox.layers.seccomp import missing_filter

        filters = missing_filter()
    hiding_rules, tool_rules = by_reach(settings.deny, rule_context(Registry(discover())))
    connects = settings.network != "none"
    places = (settings.token_file, state_folder(settings.state_dir))
    return Facts(
        settings=settings,
        policy=policy,
        found=found,
        host=host.look(),
        roots=tuple(map(host.root_facts, Workspace(settings.root).roots)),
        broker=broker,
        openat2=isinstance(best_resolver(), Openat2),
        abi=abi,
        errata=landlock.mended_errata() if abi else (),
        filters=filters,
        proofs=proofs,
        servers={mode: try_lock(mode, network=connects) if broker else NO_SERVER for mode in CONFINED},
        unprotectable=_unprotectable(policy) if linux else "",
        ripgrep_version=host.version(found.ripgrep, ("--no-config", "--version")),
        git_version=host.version(found.git),
        exposed=tuple(place for place in places if place and host.open_to_others(place)),
        desktop={_display_name(need): program for need, program in found.desktop.programs.items()},
        no_desktop={
            _display_name(need): why.text for need in DESKTOP if (why := need.unavailable(facts)) is not None
        },
        command_programs=_command_programs(policy, proofs.get(policy.sandbox.mode, NO_SANDBOX))
        if linux
        else {},
        hiding_rules=hiding_rules,
        no_backup={
            path: why
            for path, why in failures(state_folder(settings.state_dir)).items()
            if any(lies_in(root, path) for root in policy.sandbox.roots)
        },
        tool_rules=tool_rules,
        model=model,
        waiting=_waiting(settings),
        no_model=no_model,
    )


def _model(settings: Settings) -> tuple[str, str]:
    """The model for agents, and why there is none although it is configured."""
    try:
        options = model_options(settings)
    except SettingsError as error:
        return "", str(error)
    return (f"{options.provider}, {options.model}" if options else ""), ""


def _waiting(settings: Settings) -> Mapping[str, str]:
    database = Database(state_folder(settings.state_dir), Workspace(settings.root).roots)
    if not os.path.lexists(database.path):
        return {}
    board, late = StoredBoard(database), time.time() - GRACE_SECONDS

    async def read() -> dict[str, str]:
        due = [one for one in await StoredSchedules(board).due(late, (LOCAL,)) if one.catch_up]
        kinds = {one.handle: (one.job.kind, one.rights) for one in due}
        kinds |= {one.id: (one.runs or "command", one.rights) for one in await board.left(LOCAL)}
        return {
            name[:RECORDED]: f"needs {wanted_mode(rights).flag}{' and a model' if kind == 'prompt' else ''}"
            for name, (kind, rights) in kinds.items()
        }

    try:
        return anyio.run(read)
    except ToolError as error:
        return {"stored state": str(error)}
    finally:
        database.close()


def _display_name(need: Capability) -> str:
    """`desktop_open` is to open, among what a desktop can do."""
    return need.label.removeprefix("desktop_").replace("_", " ")


def _proof(policy: BrokerPolicy, mode: str) -> Proof:
    tried = replace(policy, sandbox=replace(policy.sandbox, mode=mode))
    if sys.platform != "linux":
        broker = start_broker(tried)
        try:
            return broker.proof
        finally:
            broker.close()
    # It needs what only Linux has.
    from mcp_toolserver.runtime.sandbox.layers.confinement import run_selftest

    return run_selftest(tried)


def _command_programs(policy: BrokerPolicy, proof: Proof) -> Mapping[str, str]:
    """Ask a command: what this process sees may be hidden from it."""
    from mcp_toolserver.runtime.sandbox.broker.messages import Script
    from mcp_toolserver.runtime.sandbox.layers.confinement import run_in_sandbox
    from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable

    script = "\n".join(f"echo {name} $(command -v {name})" for name in COMMAND_PROGRAMS)
    plan = plan_for(policy, proof, Script(script=script, timeout=None))
    if isinstance(plan, str) or not plan.sandbox.roots:
        return {}
    try:
        status, output = run_in_sandbox(plan, policy, script)
    except (OSError, Unprotectable):
        return {}
    lines = [line.partition(" ") for line in output.splitlines()]
    return {name: path for name, _, path in lines if name in COMMAND_PROGRAMS} if status == 0 else {}


def _unprotectable(policy: BrokerPolicy) -> str:
    """Why commands that write could not be kept from something in the real roots."""
    from mcp_toolserver.runtime.sandbox.layers.confinement import open_roots, protected_paths_now
    from mcp_toolserver.runtime.sandbox.protected.snapshot import take_snapshot
    from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable

    if policy.sandbox.mode != WORKSPACE_WRITE:
        return ""
    on = open_roots(policy.sandbox)
    try:
        take_snapshot(policy.sandbox, on.roots, protected_paths_now(policy.sandbox, on)).close()
    except Unprotectable as error:
        return str(error)
    finally:
        for root in on.roots.values():
            os.close(root)
    return ""


# --- the lock of the server process ----------------------------------------------------------------------


def try_lock(mode: str, *, network: bool = False) -> LayerReport:
    """Lock a fork of this process, which must have one thread, and try what a server must not be able to do.
    With `network` it may connect, as the web tools do."""
    try:
        temporary = TemporaryDirectory(prefix="mcp-toolserver-")
    except FileNotFoundError as error:
        raise SettingsError(
            f"the tests need a folder for temporary files ({error.strerror}). In a container with "
            "--read-only, add --tmpfs /tmp"
        ) from None
    with temporary as folder:
        base = os.path.realpath(folder)
        for name in ("state", "root", "outside"):
            os.mkdir(f"{base}/{name}")
        Path(base, "outside/kept").write_text("kept", encoding="utf-8")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, json.dumps(asdict(_tried(mode, base, network=network))).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
    if not said:
        return replace(NO_SERVER, reasons=("the process that was to be locked ended at once",))
    message = json.loads(said)
    message["checks"] = [Check(**check) for check in message["checks"]]
    return LayerReport(**with_tuples(message))


def _tried(mode: str, base: str, *, network: bool) -> LayerReport:
    reads = (f"{base}/state", f"{base}/root")
    writes = reads if mode == WORKSPACE_WRITE else reads[:1]
    try:
        if sys.platform == "darwin":
            from mcp_toolserver.runtime.sandbox.layers import seatbelt_server

            layer = "seatbelt"
            profile = seatbelt_server.ServerProfile(mode=mode, reads=reads, writes=writes, network=network)
            seatbelt_server.lock_server(profile)
        else:
            layer = "landlock"
            lock_server(mode=mode, reads=reads, writes=writes, network=network)
    except LockError as error:
        return replace(NO_SERVER, reasons=(str(error),))
    checks: list[Check] = []
    for name, may, what in _attempts(mode, base, network=network):
        held = _works(what) == may
        checks.append(Check(name=name, held=held, seen="" if held else "it did not" if may else "it could"))
    return LayerReport(layer, all(check.held for check in checks), tuple(checks), ())


def _attempts(mode: str, base: str, *, network: bool) -> Iterator[tuple[str, bool, Callable[[], object]]]:
    """Attempts: name, whether it must succeed, and the function."""
    writes = mode == WORKSPACE_WRITE
    root = "writes in the roots" if writes else "writes nothing in the roots"
    yield "writes in its own folder", True, lambda: Path(base, "state/new").write_bytes(b"new")
    yield root, writes, lambda: Path(base, "root/new").write_bytes(b"new")
    yield "writes nothing elsewhere", False, lambda: Path(base, "outside/new").write_bytes(b"new")
    yield "reads nothing elsewhere", False, lambda: Path(base, "outside/kept").read_bytes()
    if not writes and sys.platform == "darwin":
        # Behind Seatbelt, what may be written may change its mode too.
        yield "changes the mode of no file in the roots", False, lambda: os.chmod(f"{base}/root", 0o700)
    elif not writes:
        yield "changes the mode of no file", False, lambda: os.chmod(f"{base}/state", 0o700)
    yield "starts no program", False, lambda: subprocess.run(["/bin/sh", "-c", ":"], check=True)
    if network:
        yield "listens to nobody", False, lambda: socket.create_server(("127.0.0.1", 0)).close()
    if sys.platform == "darwin":
        # Seatbelt judges what a socket does; the lock itself tries that it connects to nobody.
        return
    if network:
        yield "opens no local socket", False, lambda: socket.socket(socket.AF_UNIX).close()
    else:
        yield "opens no socket", False, lambda: socket.socket().close()


def _works(attempt: Callable[[], object]) -> bool:
    with suppress(OSError):
        attempt()
        return True
    return False
