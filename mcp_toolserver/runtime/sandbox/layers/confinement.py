"""Sets up, enters and tears down the sandbox of one program."""

import contextlib
import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from mcp_toolserver.runtime.sandbox.broker.policy import READ_ONLY, BrokerPolicy, SandboxPlan
from mcp_toolserver.runtime.sandbox.broker.temp_folder import scratch
from mcp_toolserver.runtime.sandbox.layers import (
    bubblewrap,
    kernel,
    landlock,
    namespaces,
    process_locks,
    seccomp,
)
from mcp_toolserver.runtime.sandbox.layers.environment import with_temporary
from mcp_toolserver.runtime.sandbox.layers.spec import CACHES_PATH, TEMPORARY, Proof, SandboxSpec
from mcp_toolserver.runtime.sandbox.mounts import mounts
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import HiddenPaths
from mcp_toolserver.runtime.sandbox.protected import snapshot
from mcp_toolserver.runtime.sandbox.protected.git_dir import git_folders, steering
from mcp_toolserver.runtime.sandbox.protected.snapshot import changes
from mcp_toolserver.runtime.sandbox.selftest.probe import Probe, Run
from mcp_toolserver.runtime.sandbox.selftest.selftest import prove
from mcp_toolserver.stores.disk import CACHES_FOLDER
from mcp_toolserver.text.file_names import lies_in

DEGRADED = (
    "Degraded: this ran behind Landlock alone, which protects neither .git nor the modes and times of files "
    "elsewhere; the operator allowed that with --allow-degraded."
)
PROBE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class RootHandles:
    """Open handles of the roots, taken at start."""

    roots: Mapping[str, int]
    """By path: what is mounted later is what is there now, whatever the name then means."""
    hidden: HiddenPaths = field(default_factory=HiddenPaths)
    """What rules hide from commands."""
    hides_sockets: bool = True
    """Whether sockets outside the roots are masked; the self-test leaves them."""
    working: tuple[str, ...] = ()
    """See `working_folders`."""


def open_roots(sandbox: SandboxSpec) -> RootHandles:
    """Raises: OSError: a root is no folder."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    roots = {root: os.open(root, flags) for root in sandbox.roots}
    return RootHandles(roots=roots)


def protected_paths_now(
    sandbox: SandboxSpec, root_handles: RootHandles
) -> tuple[snapshot.ProtectedPath, ...]:
    return snapshot.protected_paths_in(
        sandbox, root_handles.roots, snapshot.found_now(sandbox, root_handles.roots), set()
    )


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """What a fork of the broker needs to enter the sandbox."""

    bwrap_args: tuple[str | int, ...] = ()
    """See `bubblewrap.bwrap_args`."""
    sockets: tuple[str, ...] = ()
    """Those that bubblewrap masks."""
    inner: tuple[str, ...] = ()
    """What bubblewrap starts in the place of the command, whose arguments follow. See
    `bubblewrap.inner_prefix`."""
    scratch: str = ""
    """The folder for temporary files; empty where nothing confines the program."""
    caches: str = ""
    """That for package caches; empty where they are temporary too."""
    hidden: tuple[str, ...] = ()
    """Paths that Landlock hides from this command, in addition to those hidden from every command."""
    session: namespaces.SessionNamespaces | None = None
    """What the commands of a session share; without it, the command has a network and a temporary folder of
    its own."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those for bubblewrap. Their numbers may differ in the process that becomes it."""
        return tuple(word for word in self.bwrap_args if isinstance(word, int))

    def enter(self, plan: SandboxPlan, cwd: int, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Enter the sandbox, or name the program that does and then starts `argv` in the folder `cwd`.

        Raises:
            OSError, LockError: the sandbox cannot be set up.
        """
        sandbox = plan.sandbox
        if plan.layer == "bubblewrap":
            return (*self._enter_bubblewrap(has_network=sandbox.network), *self.inner, *argv)
        if plan.layer == "landlock" and plan.helper and plan.reads_one_folder:
            process_locks.lock_helper(cwd, (argv[0], *plan.helper.places))
        elif plan.layer == "landlock":
            process_locks.lock_command(
                sandbox.mode,
                roots=[root for root in plan.shown_roots if not sandbox.is_read_only(root)],
                writes=(self.scratch, *plan.writes),
                hidden=(sandbox.state, *sandbox.hidden, *self.hidden),
                network=sandbox.network,
            )
        return argv

    def _enter_bubblewrap(self, *, has_network: bool) -> tuple[str, ...]:
        has_network = has_network or (self.session is not None and self.session.network >= 0)
        # Sockets to mask are looked for with all rights of this user.
        arguments = bubblewrap.spelled(self.bwrap_args, self.sockets, isolates_network=not has_network)
        if self.session is None:
            namespaces.fix_devices()
        else:
            # Devices are fixed there.
            self.session.join()
        namespaces.reopen_null()
        return arguments


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """The sandbox of one program, as its supervisor sees them."""

    plan: SandboxPlan
    launch_plan: LaunchPlan = field(default_factory=LaunchPlan)
    before: snapshot.Snapshot | None = None
    status: int = -1
    """A pipe in which bubblewrap says how far it got."""
    undo: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Lets go of everything, when no program runs any more."""

    @classmethod
    def ready(
        cls,
        plan: SandboxPlan,
        root_handles: RootHandles,
        cwd: int,
        places: Iterable[snapshot.ProtectedPath],
        *,
        session: namespaces.SessionNamespaces | None = None,
    ) -> "Confinement":
        """Make ready what a fork needs to start a program in the folder open as `cwd`, kept from the
        protected `places`. Behind bubblewrap a command joins `session`, which stays the caller's to close.

        Raises:
            OSError: a descriptor or a folder cannot be made.
            Unprotectable: something that has to be protected cannot be; the text says what.
        """
        if plan.layer == "bubblewrap":
            joined = session if plan.helper is None else None
            return _in_bubblewrap(plan, root_handles, cwd, places, joined)
        if plan.layer != "landlock" or plan.reads_one_folder:
            return cls(plan=plan)
        with contextlib.ExitStack() as undo:
            before = None
            if plan.sandbox.mode != READ_ONLY:
                before = snapshot.take_snapshot(plan.sandbox, root_handles.roots, places, mounted=False)
                undo.callback(before.close)
            others = (root for root in plan.sandbox.roots if root not in plan.shown_roots)
            hidden = (*_hidden_now(plan, root_handles), *others)
            launch_plan = LaunchPlan(scratch=undo.enter_context(scratch(plan.sandbox.state)), hidden=hidden)
            return cls(plan=plan, launch_plan=launch_plan, before=before, undo=undo.pop_all())

    def close_descriptors(self) -> None:
        """The fork has what it needs."""
        for descriptor in self.launch_plan.descriptors:
            os.close(descriptor)

    def tear_down(self, reason: str) -> tuple[bool, tuple[str, ...]]:
        """Look at what the program left, when all of it is gone; returns whether it ran, and notes on it."""
        with self.undo:
            notes: tuple[str, ...] = ()
            if self.before is not None:
                degraded = (DEGRADED,) if self.plan.layer == "landlock" else ()
                notes = (*degraded, *changes(self.before))
            if self.status >= 0 and reason == "exited" and not _was_started(self.status):
                return False, ()
        return True, notes


def _in_bubblewrap(
    plan: SandboxPlan,
    root_handles: RootHandles,
    cwd: int,
    places: Iterable[snapshot.ProtectedPath],
    session: namespaces.SessionNamespaces | None,
) -> Confinement:
    # A program of ours and what it reads may lie where commands see nothing.
    own = () if plan.helper is None else map(os.path.realpath, (plan.helper.argv[0], *plan.helper.places))
    roots = {**root_handles.roots, **{place: os.open(place, os.O_PATH | os.O_CLOEXEC) for place in own}}
    # Before anything is opened that would have to be closed again.
    visibility = replace(_visibility(plan, root_handles), shares_temporary=session is not None)
    with contextlib.ExitStack() as undo:
        before = snapshot.take_snapshot(replace(plan.sandbox, roots=tuple(roots)), roots, places)
        undo.callback(before.close)
        made: mounts.Mounts = {**mounts.mounts(before, visibility), **_writable(plan, root_handles.roots)}
        lasting = undo.pop_all()
    folder = _name_inside(os.readlink(f"/proc/self/fd/{cwd}"), plan.sandbox.state)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    lasting.callback(os.close, reading)
    passed = {"--json-status-fd": writing}
    if plan.filtered:
        wanted = (
            process_locks.command_filter(plan.sandbox.mode, plan.sandbox.network)
            if plan.helper is None
            else process_locks.SYSTEM_HELPER_FILTER
        )
        passed["--seccomp"] = seccomp.as_descriptor(seccomp.program(wanted))
    is_held = plan.helper is None and landlock.abi() > 0
    caches = _package_caches(plan, made)
    launch_plan = LaunchPlan(
        bwrap_args=(
            *bubblewrap.bwrap_args(before, made, plan.program, cwd=folder, passed=passed),
            *(("--bind", caches, CACHES_PATH) if caches else ()),
        ),
        sockets=tuple(path for path, mount in made.items() if mount == "socket"),
        inner=bubblewrap.inner_prefix(made, scopes_sockets=plan.sandbox.network) if is_held else (),
        scratch=mounts.scratch_folder(made),
        caches=CACHES_PATH if caches else "",
        session=session,
    )
    return Confinement(plan=plan, launch_plan=launch_plan, before=before, status=reading, undo=lasting)


def _package_caches(plan: SandboxPlan, made: mounts.Mounts) -> str:
    """The folder with the package caches of the workspace, created if needed; empty for a command that may
    not write in the roots, and where it cannot be created or mounted."""
    is_free = made.get(os.path.dirname(CACHES_PATH)) == "scratch"
    if plan.helper or plan.sandbox.mode != snapshot.WRITING or not is_free or CACHES_PATH in made:
        return ""
    words = json.dumps([plan.user, *sorted(plan.shown_roots)])
    name = hashlib.sha256(words.encode()).hexdigest()[:16]
    folder = f"{plan.sandbox.state}/{CACHES_FOLDER}/{name}"
    files, new = f"{folder}/files", f"{folder}/{secrets.token_hex(8)}"
    try:
        # Commands cannot reach the outer folder, by whose time a start knows what is not used any more.
        if not os.path.isdir(files):
            os.makedirs(f"{new}/cargo", mode=0o700)
            # The user's mirrors.
            os.symlink(f"{plan.sandbox.home}/.cargo/config.toml", f"{new}/cargo/config.toml")
            with contextlib.suppress(OSError):
                os.rename(new, files)
        os.utime(folder)
    except OSError:
        return ""
    return files


def _writable(plan: SandboxPlan, roots: Mapping[str, int]) -> mounts.Mounts:
    """The mounts of what a helper may write: git folders, without what makes git run programs."""
    made: dict[str, mounts.Mount] = {}
    for place in plan.writes:
        made[place] = "writable"
        root = next(root for root in roots if lies_in(root, place))
        inner = steering(roots[root], os.path.relpath(place, root))
        # A link cannot be mounted; what it leads to outside of the git folder is read-only anyway.
        paths = (os.path.join(root, path) for path in inner)
        made |= {path: "read-only" for path in paths if not os.path.islink(path)}
    return made


def _name_inside(folder: str, state: str) -> str:
    """The name that a command has for `folder`, which may be the temporary folder of its session or in it."""
    own = namespaces.mount_point(state)
    return TEMPORARY + folder.removeprefix(own) if lies_in(own, folder) else folder


def _visibility(plan: SandboxPlan, root_handles: RootHandles) -> mounts.Visibility:
    if plan.helper is not None:
        # A program of ours leaves out by itself what is hidden, and has no sockets.
        return mounts.EVERYTHING
    # With the machine's network, the filter leaves a read-only command no local sockets.
    has_sockets = plan.sandbox.mode == snapshot.WRITING or not plan.sandbox.network or not plan.filtered
    return mounts.Visibility(
        roots=plan.roots,
        hidden=_hidden_now(plan, root_handles),
        hides_sockets=root_handles.hides_sockets and has_sockets,
        working=root_handles.working,
        interpreter=os.path.realpath(sys.base_prefix),
        prepared=plan.prepared,
    )


def _hidden_now(plan: SandboxPlan, root_handles: RootHandles) -> Mapping[str, bool]:
    if plan.helper:
        return {}
    found = root_handles.hidden.find(tuple(root_handles.roots), plan.shown_roots)
    return found | {path: os.path.isdir(path) for path in git_folders(plan.hidden_git)}


def _was_started(status: int) -> bool:
    """Whether bubblewrap got as far as to start its command: only then does it tell how that ended."""
    with os.fdopen(status, "rb", closefd=False) as lines:
        return any("exit-code" in json.loads(line) for line in lines)


# --- before there is a supervisor ------------------------------------------------------------------------


def run_selftest(broker_policy: BrokerPolicy) -> Proof:
    """Prove the sandbox of `broker_policy`."""
    return prove(broker_policy.sandbox, probe_runner(broker_policy), abi=landlock.abi())


def probe_runner(broker_policy: BrokerPolicy) -> Run:
    """Return what runs the script of a probe as a command of `broker_policy`."""
    filtered = not seccomp.missing_filter()

    def run(sandbox: SandboxSpec, probe: Probe, script: str) -> tuple[int, str]:
        plan = SandboxPlan(layer=probe.layer, sandbox=sandbox, program=probe.program, filtered=filtered)
        if not probe.shares_session:
            return run_in_sandbox(plan, broker_policy, script)
        # As the broker does it, once it knows what layer it uses.
        with contextlib.closing(namespaces.create_session(sandbox.state, network=sandbox.network)) as session:
            return run_in_sandbox(plan, broker_policy, script, session)

    return run


def run_in_sandbox(
    plan: SandboxPlan,
    broker_policy: BrokerPolicy,
    script: str,
    session: namespaces.SessionNamespaces | None = None,
) -> tuple[int, str]:
    """Run `script` as a command in the first root, one of `session` if given; its exit status and what it
    printed.

    Raises:
        OSError, Unprotectable: no process can be started, or its sandbox cannot be set up.
    """
    root_handles = replace(open_roots(plan.sandbox), hides_sockets=False)
    cwd = os.open(plan.sandbox.roots[0], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    places = protected_paths_now(plan.sandbox, root_handles)
    confinement = Confinement.ready(plan, root_handles, cwd, places, session=session)

    def become() -> NoReturn:
        """Replace the fork by the command, before subprocess would do it: entering gives what to start."""
        try:
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            os.fchdir(cwd)
            launch_plan = confinement.launch_plan
            argv = launch_plan.enter(plan, cwd, (*broker_policy.shell, script))
            environment = with_temporary(broker_policy.environment, launch_plan.scratch, launch_plan.caches)
            os.execve(argv[0], argv, environment)  # noqa: S606  # the request names it
        except (OSError, process_locks.LockError) as error:
            os.write(1, str(error).encode())
        finally:
            os._exit(127)

    try:
        with subprocess.Popen(
            broker_policy.shell,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=become,  # this process has one thread
        ) as process:
            confinement.close_descriptors()
            try:
                output, _ = process.communicate(timeout=PROBE_SECONDS)
            except subprocess.TimeoutExpired:
                # Bubblewrap takes all that is behind it along.
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
    finally:
        for descriptor in (cwd, *root_handles.roots.values()):
            os.close(descriptor)
        confinement.tear_down("stopped")
    return process.returncode, output.decode(errors="replace")
