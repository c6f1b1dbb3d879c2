"""One program behind its walls: made ready by its nanny, entered by the fork, taken down when all is gone."""

import contextlib
import fcntl
import json
import os
import secrets
import select
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from mcp_toolserver.runtime.sandbox import bubblewrap, enclosure, kernel, seccomp
from mcp_toolserver.runtime.sandbox.canary import missing_filter, prove
from mcp_toolserver.runtime.sandbox.charter import Behind, Charter, Helper
from mcp_toolserver.runtime.sandbox.comparison import after
from mcp_toolserver.runtime.sandbox.devices import fix_devices
from mcp_toolserver.runtime.sandbox.guard import Before, look, survey_roots
from mcp_toolserver.runtime.sandbox.survey import Survey
from mcp_toolserver.runtime.sandbox.walls import Layer, Proof, Walls

DEGRADED = (
    "Degraded: this ran behind Landlock alone, which protects neither .git nor the modes and times of files "
    "elsewhere; the operator allowed that with --allow-degraded."
)
CANARY_SECONDS = 5.0
_OUTPUT = 1 << 16

_HIGH = 64
"""Above every descriptor that a program is given by number."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The roots as they were at start."""

    roots: Mapping[str, int]
    """Each by path, open: what is mounted later is what is there now, whatever the name then means."""
    surveys: Mapping[str, Survey]
    """What was found in them, which spares each command most of its own search."""


def ground(walls: Walls) -> Ground:
    """Open the roots of `walls`.

    Raises:
        OSError: one of them is no folder.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    roots = {root: _high(os.open(root, flags)) for root in walls.roots}
    return Ground(roots=roots, surveys=survey_roots(walls, roots))


def _high(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(descriptor)
    return moved


@dataclass(kw_only=True)
class Confinement:
    """The walls of one program."""

    behind: Behind
    cwd: int
    """The folder that it is started in, open."""
    before: Before | None = None
    filter: int = -1
    """Open on the seccomp filter, for bubblewrap."""
    status: tuple[int, int] = (-1, -1)
    """A pipe in which bubblewrap says how far it got."""
    scratch: str = ""
    """A private folder for temporary files, where the walls do not bring one."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the program gets beside its own."""

    @classmethod
    def ready(cls, behind: Behind, on: Ground, cwd: int) -> "Confinement":
        """Make ready what the fork needs.

        Raises:
            OSError: a descriptor or a folder cannot be made.
            Unprotectable: something that has to be protected cannot be; the text says what.
        """
        made = cls(behind=behind, cwd=cwd)
        if behind.layer == "bubblewrap":
            roots = {**on.roots, **_own_places(behind.helper)}
            made.before = look(replace(behind.walls, roots=tuple(roots)), roots, on.surveys)
            if behind.filtered:
                rules = enclosure.command_filter(behind.walls.mode, behind.walls.network)
                made.filter = _high(seccomp.as_descriptor(seccomp.program(rules)))
            reading, writing = os.pipe2(os.O_CLOEXEC)
            made.status = (_high(reading), _high(writing))
        if behind.layer == "landlock" and not _reads_one_folder(behind):
            made.scratch = _scratch(behind.walls.state)
            made.environment = {"TMPDIR": made.scratch}
            if behind.walls.mode != "read-only":
                made.before = look(behind.walls, on.roots, on.surveys, mounted=False)
        return made

    @property
    def blame(self) -> str:
        """What it means that the program of `enter` cannot be started: that program is bubblewrap, or not."""
        return "unwalled" if self.behind.layer == "bubblewrap" else "failed"

    def enter(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """In the fork: go behind the walls, or name the program that does and then starts `argv`."""
        walls = self.behind.walls
        if self.before is not None and self.behind.layer == "bubblewrap":
            folder = os.readlink(f"/proc/self/fd/{self.cwd}")
            fix_devices()
            inside = bubblewrap.arguments(
                self.before,
                self.behind.program,
                cwd=folder,
                seccomp=self.filter if self.behind.filtered else None,
                status=self.status[1],
            )
            return (*inside.arguments, *argv)
        if self.behind.layer == "landlock" and self.behind.helper and _reads_one_folder(self.behind):
            enclosure.lock_helper(self.cwd, (argv[0], *self.behind.helper.places))
        elif self.behind.layer == "landlock":
            enclosure.lock_command(
                roots=walls.roots,
                writes=(self.scratch,),
                hidden=(walls.state, *walls.hidden),
                writable_roots=walls.mode != "read-only",
                network=walls.network,
            )
        return argv

    def entered(self) -> None:
        """In the nanny: the fork has its own."""
        for descriptor in (self.filter, self.status[1]):
            if descriptor >= 0:
                os.close(descriptor)

    def taken_down(self, reason: str) -> dict[str, object]:
        """Look at what the program left, when all of it is gone: what to tell the server of it."""
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)
        notes = self._notes()
        if self.status[0] >= 0 and reason == "exited" and not _was_started(self.status[0]):
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


def _reads_one_folder(behind: Behind) -> bool:
    return behind.helper is not None and behind.helper.reach == "folder"


def _own_places(helper: Helper | None) -> Mapping[str, int]:
    """A program of ours and what it reads, which may lie where commands see nothing."""
    places = () if helper is None else (helper.argv[0], *helper.places)
    return {place: _high(os.open(place, os.O_PATH | os.O_CLOEXEC)) for place in places}


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

    def run(walls: Walls, layer: Layer, program: str, script: str) -> tuple[int, str]:
        behind = Behind(layer=layer, walls=walls, program=program, filtered=filtered)
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
    confinement = Confinement.ready(behind, on, cwd)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _become(confinement, charter, script, writing)
    os.close(writing)
    confinement.entered()
    try:
        output = _collected(reading, time.monotonic() + CANARY_SECONDS)
    finally:
        # Bubblewrap takes all that is behind it along.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        for descriptor in (reading, cwd, *on.roots.values()):
            os.close(descriptor)
        confinement.taken_down("stopped")
    return os.waitstatus_to_exitcode(status), output.decode(errors="replace")


def _become(confinement: Confinement, charter: Charter, script: str, output: int) -> NoReturn:
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        os.fchdir(confinement.cwd)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((nothing, output, output)):
            os.dup2(descriptor, number)
        argv = confinement.enter((*charter.shell, script))
        os.execve(argv[0], argv, {**charter.environment, **confinement.environment})  # noqa: S606  # as told
    except (OSError, enclosure.LockError) as error:
        os.write(output, str(error).encode())
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
