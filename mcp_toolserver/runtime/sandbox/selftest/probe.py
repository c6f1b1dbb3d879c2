"""How a layer is probed: a script in it tries what the layer must allow and what it must prevent.

The script works on a fixture: a root, a folder outside of it, secrets, a listening socket. `selftest` adds
what is tried on Linux, `seatbelt_selftest` what is tried on macOS.

The process outside judges the result: it compares the files, watches the other end of the connection, and
searches the output for a secret word. It believes the script only where nobody else can see.
"""

import contextlib
import os
import shlex
import shutil
import socket
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mcp_toolserver.runtime.sandbox.layers.spec import Check, Layer, SandboxSpec

NOTES = 300
"""Characters of a failed program's output that go into a reason."""

WRITTEN = "written"
MODE = 0o755

Seen = Mapping[str, tuple[int, int, int, bytes]]
"""By path: mode, time of change, of what it holds and of what it is, and what it holds."""


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """The paths of the fixture."""

    base: str
    token: str
    """Written in the root: who says it has read there."""
    secret: str
    """Written where no command may read."""
    listener: socket.socket | None
    """None where this machine has no loopback."""
    pipe: int
    """Reads from the named pipe `outside/pipe`, as a program outside does."""
    local: socket.socket | None
    """Listens at `outside-socket`; None where no such socket can be made."""
    hidden: tuple[str, ...]
    """The names of what no command may read."""

    def at(self, name: str) -> str:
        return f"{self.base}/{name}"

    @property
    def port(self) -> int:
        """Where the listener listens, or 0."""
        return self.listener.getsockname()[1] if self.listener else 0

    def sandbox(self, sandbox: SandboxSpec) -> SandboxSpec:
        """`sandbox` with the paths of this fixture, and all protected names."""
        hidden = tuple(map(self.at, self.hidden))
        paths = {"roots": (self.at("root"),), "state": self.at("state"), "hidden": hidden}
        return replace(sandbox, **paths, writable_names=())

    def seen(self) -> Seen:
        return {
            os.path.join(top, name).removeprefix(f"{self.base}/"): _state_of(os.path.join(top, name))
            for top, folders, files in os.walk(self.base)
            for name in (*folders, *files)
        }

    def piped(self) -> bool:
        try:
            return os.read(self.pipe, 1) != b""
        except BlockingIOError:
            return False

    def visited(self, *, local: bool = False) -> bool:
        listener = self.local if local else self.listener
        if listener is None:
            return False
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@contextmanager
def make_fixture(state: str, *, hides_in_root: bool = False) -> Generator[Fixture]:
    """Create a fixture in the server's own folder, which no command sees, or else among the temporary files.

    With `hides_in_root` there is also a hidden file in the root, and a local socket outside of it.

    Raises:
        OSError: it cannot be made.
    """
    with contextlib.ExitStack() as undo:
        base = _private_folder(state)
        undo.callback(shutil.rmtree, base, ignore_errors=True)
        os.mkdir(f"{base}/outside", 0o700)
        os.mkfifo(f"{base}/outside/pipe", 0o600)
        pipe = os.open(f"{base}/outside/pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        undo.callback(os.close, pipe)
        fixture = Fixture(
            base=base,
            token=os.urandom(8).hex(),
            secret=os.urandom(8).hex(),
            listener=_listener(undo, socket.AF_INET, ("127.0.0.1", 0)),
            pipe=pipe,
            local=_listener(undo, socket.AF_UNIX, f"{base}/outside-socket") if hides_in_root else None,
            hidden=("hidden", "root/closed/secret") if hides_in_root else ("hidden",),
        )
        _fill(fixture)
        yield fixture


def _state_of(path: str) -> tuple[int, int, int, bytes]:
    found = os.lstat(path)
    content = Path(path).read_bytes() if stat.S_ISREG(found.st_mode) else b""
    return found.st_mode, found.st_mtime_ns, found.st_ctime_ns, content


def _private_folder(state: str) -> str:
    for place in (state, "/var/tmp", "/tmp"):  # noqa: S108  # a name nobody can guess, for this user alone
        folder = f"{place}/selftest-{os.urandom(8).hex()}"
        with contextlib.suppress(OSError):
            os.makedirs(place, mode=0o700, exist_ok=True)
            os.mkdir(folder, 0o700)
            return os.path.realpath(folder)
    raise OSError("no private folder can be made to test the sandbox in")


def _listener(
    undo: contextlib.ExitStack, family: int, address: str | tuple[str, int]
) -> socket.socket | None:
    """A socket that `undo` closes; None where none can be made, or its path is too long."""
    listener = None
    try:
        listener = undo.enter_context(socket.socket(family))
        listener.bind(address)
        listener.listen()
    except OSError:
        return None
    listener.setblocking(False)
    return listener


def _fill(fixture: Fixture) -> None:
    in_root = ("root/closed", "root/sub") if len(fixture.hidden) > 1 else ()
    for folder in ("root", "root/.git", "root/.git/hooks", "state", *in_root):
        os.mkdir(fixture.at(folder), 0o700)
    contents = {
        "root/kept": fixture.token,
        "root/.git/HEAD": "ref: refs/heads/main",
        "root/.git/config": "[core]",
        "root/.git/hooks/pre-commit": "#!/bin/sh",
        "outside/kept": "kept",
        "state/secret": fixture.secret,
        **dict.fromkeys(fixture.hidden, fixture.secret),
    }
    for name, content in contents.items():
        Path(fixture.at(name)).write_text(f"{content}\n", encoding="utf-8")


# --- a probe ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The layer to try."""

    sandbox: SandboxSpec
    layer: Layer
    program: str = ""
    filtered: bool = True
    """Whether this machine has filters for system calls at all."""
    shares_session: bool = False
    """Whether it is tried in namespaces as the commands of a session share them."""
    holds_pipes: bool = True
    """Whether there is what keeps a command from named pipes outside its roots."""
    brief: bool = False
    """Leave out what takes a program of its own to try."""

    @property
    def writes(self) -> bool:
        return self.sandbox.mode == "workspace-write"

    @property
    def isolated(self) -> bool:
        """Whether the layer has mounts, processes and a network of its own."""
        return self.layer == "bubblewrap"


Run = Callable[[SandboxSpec, Probe, str], tuple[int, str]]
"""Start a script for /bin/sh just as a command is started: the sandbox, what else is tried, the script.

It gives the exit status and the output; whatever it raises means that nothing ran."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a probe."""

    checks: tuple[Check, ...] = ()
    trouble: str = ""
    """Why the script did not run to its end."""

    @property
    def problem(self) -> str:
        """Why the layer is not good enough; empty when every check held."""
        failures = (f'it does not hold that "{one.name}": {one.seen}' for one in self.checks if not one.held)
        return self.trouble or "; ".join(failures)

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that did not hold; where there are none, the script did not run to its end."""
        return tuple(one.name for one in self.checks if not one.held) or ("the script runs to its end",)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A script that ran to its end."""

    probe: Probe
    fixture: Fixture
    printed: Mapping[str, str]
    """See `words_of`."""
    before: Seen
    after: Seen


def run_probe(
    probe: Probe,
    run: Run,
    attempts: Callable[[Probe, Fixture], Iterable[str]],
    checks: Callable[[Ended], Iterable[Check]],
    *,
    hides_in_root: bool = False,
) -> Outcome:
    """Try what is tried in any layer, and `attempts`, on a fixture of its own; judge by `checks` what came of
    it."""
    # What failed may have changed the fixture of another probe, so that this one would prove nothing.
    with make_fixture(probe.sandbox.state, hides_in_root=hides_in_root) as fixture:
        before = fixture.seen()
        try:
            lines = (*_common_attempts(probe, fixture), *attempts(probe, fixture), 'echo "end reached"')
            status, output = run(fixture.sandbox(probe.sandbox), probe, "\n".join(lines))
        except Exception as error:  # noqa: BLE001  # whatever it is, this layer holds nothing
            why = f"it could not be started: {str(error) or type(error).__name__}"
            return Outcome(trouble=_one_line(why))
        printed = words_of(output)
        # Where the script did not come to its end, what it did not print proves nothing.
        if printed.get("root") != fixture.token or "end" not in printed:
            return Outcome(trouble=_one_line(f"it ended with status {status}: {output or 'no output'}"))
        ended = Ended(probe=probe, fixture=fixture, printed=printed, before=before, after=fixture.seen())
        return Outcome(checks=tuple(checks(ended)))


def words_of(output: str) -> dict[str, str]:
    """The first word of each line, and the rest."""
    return dict(line.split(" ", 1) for line in output.splitlines() if " " in line)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:NOTES]


# --- what is tried in any layer --------------------------------------------------------------------------


def _common_attempts(probe: Probe, fixture: Fixture) -> tuple[str, ...]:
    root, outside, state, hidden = quoted(fixture)
    # Under Seatbelt, a command without TMPDIR has no temporary folder.
    temporary = "/nowhere" if probe.layer == "seatbelt" else "/tmp"  # noqa: S108  # the command's own
    place = f'"${{TMPDIR:-{temporary}}}"'
    scratch = f"{place}/{fixture.token}"
    return (
        "exec 2>/dev/null",
        reading(f"{root}/kept", "root"),
        f"echo {WRITTEN} >{scratch} && {reading(scratch, 'scratch')}",
        f"echo place {place}",
        f"echo {WRITTEN} >{root}/new",
        f"echo {WRITTEN} >{outside}/new",
        f"echo {WRITTEN} >>{outside}/kept",
        f"echo {WRITTEN} >{outside}/pipe",
        f"echo {WRITTEN} >>{root}/.git/config",
        f"echo {WRITTEN} >>{root}/.git/hooks/pre-commit",
        f"echo {WRITTEN} >{root}/.git/hooks/new",
        reading(f"{state}/secret", "state"),
        reading(hidden, "hidden"),
    )


def quoted(fixture: Fixture) -> Iterator[str]:
    """The root, the folder outside of it, the state folder and the hidden file, as a shell reads them."""
    return (shlex.quote(fixture.at(name)) for name in ("root", "outside", "state", "hidden"))


def reading(path: str, label: str) -> str:
    """What prints the first line of a file after `label`."""
    return f'read -r line <{path} && echo "{label} $line"'


def common_checks(ended: Ended) -> Iterator[Check]:
    """What came of what is tried in any layer, in files."""
    probe, printed = ended.probe, ended.printed
    yield check("files in the root can be read", "")
    read = printed.get("scratch") == WRITTEN
    yield check("temporary files can be written", "" if read else f"not in {printed.get('place')}")
    if probe.isolated:
        file = f"{printed.get('place')}/{ended.fixture.token}"
        shared = os.path.lexists(file)
        yield check("temporary files are the command's own", f"{file} was made" if shared else "")
    if probe.writes:
        yield check("files in the root can be written", _unwritten(ended))
    else:
        yield check("nothing in the root is changed", changed(ended, "root"))
    if probe.layer == "seatbelt" or (probe.writes and probe.isolated):
        yield check("hooks and configuration of git are not changed", changed(ended, "root/.git"))
    if probe.writes and probe.layer == "landlock":
        yield check("files outside of the root are not written", changed(ended, "outside", slice(-1, None)))
    else:
        yield check("nothing outside of the root is changed", changed(ended, "outside"))
    if probe.holds_pipes:
        piped = "it was" if ended.fixture.piped() else ""
        yield check("a named pipe outside of the root is not written", piped)
    yield from unread(ended, _SECRETS)


_SECRETS = {"state": "the server's own folder cannot be read", "hidden": "hidden files cannot be read"}


def unread(ended: Ended, names: Mapping[str, str]) -> Iterator[Check]:
    """That the secret was not printed after these labels, each with the name of its check."""
    for label, name in names.items():
        read = ended.fixture.secret in ended.printed.get(label, "")
        yield check(name, "it was read" if read else "")


def check(name: str, seen: str) -> Check:
    """Something that holds when nothing was seen against it."""
    return Check(name=name, held=not seen, seen=seen)


def _unwritten(ended: Ended) -> str:
    if ended.after.get("root/new") == ended.before.get("root/new"):
        return "no file was made"
    return "" if ended.after["root/kept"][0] & 0o777 == MODE else "the mode of a file was not changed"


def changed(ended: Ended, folder: str, part: slice = slice(None)) -> str:
    """What differs at and below `folder`, in words; `part` is of what `Seen` has."""
    before, after = (
        {path: look[part] for path, look in seen.items() if f"{path}/".startswith(f"{folder}/")}
        for seen in (ended.before, ended.after)
    )
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return f"{', '.join(paths)} changed" if paths else ""
