"""One program behind its walls: made ready by its nanny, entered by the fork, taken down when all is gone."""

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from mcp_toolserver.runtime.sandbox import ahead, bubblewrap, enclosure, kernel, seccomp
from mcp_toolserver.runtime.sandbox.ahead import Ahead
from mcp_toolserver.runtime.sandbox.bubblewrap import Enclosure
from mcp_toolserver.runtime.sandbox.canary import missing_filter, prove
from mcp_toolserver.runtime.sandbox.charter import Behind, Charter, Helper
from mcp_toolserver.runtime.sandbox.comparison import after
from mcp_toolserver.runtime.sandbox.devices import fix_devices, reopen_nothing
from mcp_toolserver.runtime.sandbox.guard import Before, look, survey_roots
from mcp_toolserver.runtime.sandbox.mounts import mounts, scratch_folder
from mcp_toolserver.runtime.sandbox.survey import Survey
from mcp_toolserver.runtime.sandbox.trial import Trial
from mcp_toolserver.runtime.sandbox.walls import Proof, Walls

DEGRADED = (
    "Degraded: this ran behind Landlock alone, which protects neither .git nor the modes and times of files "
    "elsewhere; the operator allowed that with --allow-degraded."
)
CANARY_SECONDS = 5.0
_OUTPUT = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The roots as they were at start."""

    roots: Mapping[str, int]
    """Each by path, open: what is mounted later is what is there now, whatever the name then means."""
    surveys: Mapping[str, Survey]
    """What was found in them, which spares each command most of its own search."""
    devices: int = -1
    """What `fixed_devices` made, open in every fork."""


def ground(walls: Walls) -> Ground:
    """Open the roots of `walls`.

    Raises:
        OSError: one of them is no folder.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    roots = {root: os.open(root, flags) for root in walls.roots}
    return Ground(roots=roots, surveys=survey_roots(walls, roots))


@dataclass(frozen=True, kw_only=True)
class Entrance:
    """What a fork of the broker needs to go behind the walls, beside the descriptors."""

    enclosure: Enclosure = field(default_factory=Enclosure)
    scratch: str = ""
    """A private folder for temporary files, where the walls do not bring one."""
    devices: int = -1
    """See `Ground`."""
    is_behind: bool = False
    """Whether the fork went behind walls already, see `go_behind`."""
    folder: str = ""
    """Where the program starts then."""
    temporary: str = ""
    """Where it finds a place for temporary files, if anything else does not tell it."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What the program gets beside its own."""
        temporary = self.scratch or self.temporary
        return {"TMPDIR": temporary} if temporary else {}

    def enter(self, behind: Behind, cwd: int, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Go behind the walls, or name the program that does and then starts `argv` in the folder `cwd`.

        Raises:
            OSError, LockError: the walls cannot be built.
        """
        walls = behind.walls
        if self.is_behind:
            os.chdir(self.folder)
            reopen_nothing()
            return argv
        if behind.layer == "bubblewrap":
            fix_devices(self.devices)
            return (*self.enclosure.arguments(), *argv)
        if behind.layer == "landlock" and behind.helper and _reads_one_folder(behind):
            enclosure.lock_helper(cwd, (argv[0], *behind.helper.places))
        elif behind.layer == "landlock":
            enclosure.lock_command(
                roots=walls.roots,
                writes=(self.scratch,),
                hidden=(walls.state, *walls.hidden),
                writable_roots=walls.mode != "read-only",
                network=walls.network,
            )
        return argv


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """The walls of one program, as its nanny sees them."""

    behind: Behind
    entrance: Entrance = field(default_factory=Entrance)
    before: Before | None = None
    status: int = -1
    """A pipe in which bubblewrap says how far it got."""

    @classmethod
    def ready(cls, behind: Behind, on: Ground, cwd: int, standing: Ahead | None = None) -> "Confinement":
        """Make ready what a fork needs to start a program in the folder open as `cwd`, behind the walls
        `standing` if they are those that it needs.

        Raises:
            OSError: a descriptor or a folder cannot be made.
            Unprotectable: something that has to be protected cannot be; the text says what.
        """
        if behind.layer == "bubblewrap":
            return _enclosed(behind, on, cwd, standing)
        if behind.layer == "landlock" and not _reads_one_folder(behind):
            writes = behind.walls.mode != "read-only"
            before = look(behind.walls, on.roots, on.surveys, mounted=False) if writes else None
            entrance = Entrance(scratch=_scratch(behind.walls.state))
            return cls(behind=behind, entrance=entrance, before=before)
        return cls(behind=behind)

    def entered(self) -> None:
        """The fork has what it needs."""
        self.entrance.enclosure.close()

    def given_up(self) -> None:
        """Let go of everything, when no program came to run."""
        if self.entrance.scratch:
            shutil.rmtree(self.entrance.scratch, ignore_errors=True)
        if self.before is not None:
            self.before.close()
        if self.status >= 0:
            os.close(self.status)

    def taken_down(self, reason: str) -> dict[str, object]:
        """Look at what the program left, when all of it is gone: what to tell the server of it."""
        if self.entrance.scratch:
            shutil.rmtree(self.entrance.scratch, ignore_errors=True)
        notes = self._notes()
        if self.status >= 0 and reason == "exited" and not _was_started(self.status):
            return {"reason": "unwalled", "detail": "the walls around the command could not be built"}
        return {"notes": notes}

    def _notes(self) -> tuple[str, ...]:
        if self.before is None:
            return ()
        degraded = (DEGRADED,) if self.behind.layer == "landlock" else ()
        try:
            return (*degraded, *after(self.before, os.path.join(self.behind.walls.state, "quarantine")))
        finally:
            self.before.close()


def _enclosed(behind: Behind, on: Ground, cwd: int, standing: Ahead | None) -> Confinement:
    roots = {**on.roots, **_own_places(behind.helper)}
    before = look(replace(behind.walls, roots=tuple(roots)), roots, on.surveys)
    made = mounts(before)
    folder = os.readlink(f"/proc/self/fd/{cwd}")
    if standing is not None and behind.helper is None and standing.fits(made):
        entrance = Entrance(is_behind=True, folder=folder, temporary=scratch_folder(made))
        return Confinement(behind=behind, entrance=entrance, before=before)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    passed = {"--json-status-fd": writing}
    if behind.filtered:
        passed["--seccomp"] = seccomp.as_descriptor(_filter(behind))
    walls = bubblewrap.enclosure(before, made, behind.program, cwd=folder, passed=passed)
    entrance = Entrance(enclosure=walls, devices=on.devices)
    return Confinement(behind=behind, entrance=entrance, before=before, status=reading)


def _filter(behind: Behind) -> bytes:
    return seccomp.program(enclosure.command_filter(behind.walls.mode, behind.walls.network))


def go_behind(
    behind: Behind, namespaces: Sequence[int], hand_over: Callable[[int], object] | None = None
) -> None:
    """Go behind walls that stand, with the filter of `behind`. See `ahead.enter`."""
    ahead.enter(namespaces, hand_over)
    if behind.filtered:
        seccomp.load(_filter(behind))


def built_ahead(behind: Behind, on: Ground, charter: Charter) -> Ahead | None:
    """Walls for the next command; none where they cannot be built ahead.

    Raises:
        OSError, Unprotectable: they cannot be built at all now.
    """
    somewhere = next(iter(on.roots.values()))
    confinement = Confinement.ready(behind, on, somewhere)
    assert confinement.before is not None
    try:
        if not behind.ahead:
            return None
        return ahead.build(
            mounts(confinement.before),
            confinement.status,
            lambda: confinement.entrance.enter(behind, somewhere, (*charter.shell, ahead.PLACEHOLDER)),
            filtered=behind.filtered,
        )
    finally:
        confinement.entered()
        confinement.given_up()


def _reads_one_folder(behind: Behind) -> bool:
    return behind.helper is not None and behind.helper.reach == "folder"


def _own_places(helper: Helper | None) -> Mapping[str, int]:
    """A program of ours and what it reads, which may lie where commands see nothing."""
    places = () if helper is None else (helper.argv[0], *helper.places)
    return {place: os.open(place, os.O_PATH | os.O_CLOEXEC) for place in places}


def _scratch(state: str) -> str:
    parent = os.path.join(state, "scratch")
    os.makedirs(parent, mode=0o700, exist_ok=True)
    folder = os.path.join(parent, secrets.token_hex(16))
    os.mkdir(folder, 0o700)
    return folder


def _was_started(status: int) -> bool:
    """Whether bubblewrap got as far as to start its command: only then does it tell how that ended."""
    told = b""
    while data := os.read(status, _OUTPUT):
        told += data
    return any("exit-code" in json.loads(line) for line in told.splitlines())


# --- before there is a nanny -----------------------------------------------------------------------------


def proven(charter: Charter) -> Proof:
    """What this machine keeps of the walls of `charter`."""
    filtered = not missing_filter()

    def run(walls: Walls, trial: Trial, script: str) -> tuple[int, str]:
        behind = Behind(
            layer=trial.layer, walls=walls, program=trial.program, filtered=filtered, ahead=trial.ahead
        )
        return run_behind(behind, charter, script)

    return prove(charter.walls, run, abi=kernel.landlock_abi())


def run_behind(behind: Behind, charter: Charter, script: str) -> tuple[int, str]:
    """Run `script` as a command in the first root; its exit status and what it printed.

    Raises:
        OSError: no process can be started, or its walls cannot be built.
        Unprotectable: see `Confinement.ready`.
    """
    on = ground(behind.walls)
    cwd = os.open(behind.walls.roots[0], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    standing = built_ahead(behind, on, charter) if behind.ahead else None
    confinement = Confinement.ready(behind, on, cwd, standing)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        namespaces = standing.namespaces if standing and confinement.entrance.is_behind else ()
        _become(confinement, charter, script, _Places(cwd=cwd, output=writing, namespaces=namespaces))
    os.close(writing)
    confinement.entered()
    try:
        output = _collected(reading, time.monotonic() + CANARY_SECONDS)
    finally:
        # Bubblewrap takes all that is behind it along.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if standing is not None:
            standing.dismiss()
        for descriptor in (reading, cwd, *on.roots.values()):
            os.close(descriptor)
        confinement.taken_down("stopped")
    return os.waitstatus_to_exitcode(status), output.decode(errors="replace")


@dataclass(frozen=True, kw_only=True)
class _Places:
    """Where a script runs. All are open descriptors."""

    cwd: int
    output: int
    namespaces: tuple[int, ...]
    """Of walls that stand."""


def _become(confinement: Confinement, charter: Charter, script: str, at: _Places) -> NoReturn:
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        os.fchdir(at.cwd)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((nothing, at.output, at.output)):
            os.dup2(descriptor, number)
        if at.namespaces:
            go_behind(confinement.behind, at.namespaces)
        entrance = confinement.entrance
        argv = entrance.enter(confinement.behind, at.cwd, (*charter.shell, script))
        os.execve(argv[0], argv, {**charter.environment, **entrance.environment})  # noqa: S606  # as told
    except (OSError, enclosure.LockError) as error:
        os.write(at.output, str(error).encode())
    finally:
        os._exit(127)


def _collected(reading: int, deadline: float) -> bytes:
    """What comes through a pipe until it ends, or time does."""
    output = b""
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and len(output) < _OUTPUT:
        if not poller.poll(left * 1000):
            break
        data = os.read(reading, _OUTPUT)
        if not data:
            break
        output += data
    return output
