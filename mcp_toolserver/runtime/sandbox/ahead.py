"""Walls that stand before there is a command.

Bubblewrap takes longer to build them than most commands take to run. So it builds them around a placeholder
that only waits, and what is to become the command enters the namespaces of the placeholder. Walls that were
built ahead are used only if the same would be built now; else the command gets new ones.
"""

import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from mcp_toolserver.runtime.sandbox import kernel
from mcp_toolserver.runtime.sandbox.mounts import Mounts

SECONDS = 5.0
"""How long the placeholder is waited for."""

PLACEHOLDER = 'while read -r line; do echo "$line"; done </proc/self/status; echo; read -r _'
"""For the shell: it tells how it is held, and waits until nobody has the other end of its input."""

_ROOM = 1 << 16
_OTHERS = ("mnt", "pid", "ipc", "uts", "net", "cgroup")
_PARENT = 0xB702
"""NS_GET_PARENT of <linux/nsfs.h>: the namespace that one of users lies in."""

Identity = tuple[int, int] | None

View = tuple[Mounts, tuple[Identity, ...], bytes]
"""What walls are made of: what is mounted where, what lies in those places, and the mounts of the machine,
which the walls pass on."""


def view(made: Mounts) -> View:
    """What walls with the mounts `made` would be made of now."""
    return made, tuple(map(_identity, made)), Path("/proc/self/mountinfo").read_bytes()


def _identity(path: str) -> Identity:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# --- built by a nanny ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """A placeholder behind its walls. It ends with this process, whose child bubblewrap is."""

    bubblewrap: int
    view: View
    namespaces: tuple[int, ...]
    """Open, in the order in which they are entered."""
    held: tuple[int, ...]
    """The other end of the placeholder's input; and what lies in the places of `view`, so that nothing else
    can get its identity."""

    def fits(self, made: Mounts) -> bool:
        """Whether these are the walls that would be built now, and still stand."""
        return self.view == view(made) and os.waitpid(self.bubblewrap, os.WNOHANG) == (0, 0)

    def dismiss(self) -> None:
        """Take the walls down; no command came, or it needs others."""
        for descriptor in (*self.namespaces, *self.held):
            os.close(descriptor)
        _end(self.bubblewrap)


def build(made: Mounts, status: int, arguments: Callable[[], tuple[str, ...]], *, filtered: bool) -> Ahead:
    """Start bubblewrap around a placeholder, and wait for that.

    `arguments`, called in a fork, gives the argument list. Bubblewrap says on the pipe `status` which process
    is the first behind the walls. `filtered` tells whether it was given a filter for system calls.

    Raises:
        OSError: the placeholder did not come in time, or is not held.
    """
    with ExitStack() as undo:
        held = _held(made, undo)
        # Looked at before it is built, so that what changes meanwhile is seen as a change.
        seen = view(made)
        waits, waited_for = os.pipe2(os.O_CLOEXEC)
        undo.callback(os.close, waited_for)
        reading, says = os.pipe2(os.O_CLOEXEC)
        child = os.fork()
        if child == 0:
            _become_bubblewrap(arguments, waits, says)
        undo.callback(_end, child)
        os.close(waits)
        os.close(says)
        try:
            _check(_told(reading), filtered=filtered)
        finally:
            os.close(reading)
        namespaces = tuple(_namespaces(_first_inside(status), undo))
        undo.pop_all()
    return Ahead(bubblewrap=child, view=seen, namespaces=namespaces, held=(waited_for, *held))


def _held(made: Mounts, undo: ExitStack) -> list[int]:
    held: list[int] = []
    for path in made:
        with suppress(OSError):
            held.append(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
            undo.callback(os.close, held[-1])
    return held


def _become_bubblewrap(arguments: Callable[[], tuple[str, ...]], stdin: int, stdout: int) -> NoReturn:
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        nothing = os.open(os.devnull, os.O_WRONLY)
        for number, descriptor in enumerate((stdin, stdout, nothing)):
            os.dup2(descriptor, number)
        argv = arguments()
        os.execve(argv[0], argv, {})  # noqa: S606  # bubblewrap by absolute path
    except OSError:
        os._exit(127)


def _told(reading: int) -> Mapping[str, str]:
    """What the placeholder tells of itself: the lines of its /proc/self/status."""
    deadline = time.monotonic() + SECONDS
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    said = b""
    while not said.endswith(b"\n\n") and poller.poll(max(deadline - time.monotonic(), 0) * 1000):
        if not (data := os.read(reading, _ROOM)):
            break
        said += data
    lines = (line.partition(":") for line in said.decode(errors="replace").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _check(told: Mapping[str, str], *, filtered: bool) -> None:
    wanted = {"CapEff": "0" * 16, "NoNewPrivs": "1", **({"Seccomp": "2"} if filtered else {})}
    for name, value in wanted.items():
        if told.get(name) != value:
            raise OSError(f"{name} of the placeholder is {told.get(name, 'not told')}")


def _first_inside(status: int) -> int:
    return int(json.loads(os.read(status, _ROOM).splitlines()[0])["child-pid"])


def _namespaces(pid: int, undo: ExitStack) -> Iterator[int]:
    """Those of `pid` that are not ours. The rest belong to the outermost namespace of users, so that one is
    entered first, and those within it last."""
    ours = os.stat("/proc/self/ns/user").st_ino
    users = [_opened(f"/proc/{pid}/ns/user", undo)]
    while os.fstat(outer := fcntl.ioctl(users[0], _PARENT)).st_ino != ours:
        undo.callback(os.close, outer)
        users.insert(0, outer)
    os.close(outer)
    yield users[0]
    for kind in _OTHERS:
        if os.stat(f"/proc/{pid}/ns/{kind}").st_ino != os.stat(f"/proc/self/ns/{kind}").st_ino:
            yield _opened(f"/proc/{pid}/ns/{kind}", undo)
    yield from users[1:]


def _opened(path: str, undo: ExitStack) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    undo.callback(os.close, descriptor)
    return descriptor


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


# --- entered by a starter --------------------------------------------------------------------------------


def enter(namespaces: Sequence[int], hand_over: Callable[[int], object] | None = None) -> None:
    """Go behind walls that stand, and give up all powers of root.

    It returns in a fork, because a process cannot change its own process namespace. This process waits for
    the fork and ends as that does, with 128 and the number for a signal. With `hand_over`, which gets the
    number of the fork, it ends at once; the fork becomes a child of the subreaper above, and dies with that.

    Raises:
        OSError: the kernel refused.
    """
    for namespace in namespaces:
        kernel.setns(namespace)
    # It is not this process that is to be told of the end of a child.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    parent = os.pidfd_open(os.getpid())
    child = os.fork()
    if child and hand_over:
        hand_over(child)
        os._exit(0)
    if child:
        _end_as(child)
    if hand_over:
        # From behind the walls a process cannot ask whose child it is.
        select.select((parent,), (), ())
    os.close(parent)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    kernel.drop_capabilities()


def _end_as(child: int) -> NoReturn:
    # The command is left alone with its pipes, so that they end with it.
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)
