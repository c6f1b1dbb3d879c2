"""How a layer is probed: a script in it tries what the layer must allow and what it must prevent.

The process outside judges the result: it compares the files, watches the other end of the connection, and
searches the output for a secret word. It believes the script only where nobody else can see.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mcp_toolserver.runtime.sandbox.layers.spec import Check, Layer, SandboxSpec
from mcp_toolserver.runtime.sandbox.selftest.fixture import Fixture, Seen

NOTES = 300
"""Characters of a failed program's output that go into a reason."""

WRITTEN = "written"
MODE = 0o755


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
    """Whether this machine has what keeps a command from named pipes outside its roots."""
    brief: bool = False
    """Leave out what takes a program of its own to try."""

    @property
    def writes(self) -> bool:
        """Whether commands may write in the roots."""
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
    problem: str = ""
    """Why the layer is not good enough; empty when every check held."""

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
    """The first word of each line of its output, and the rest."""
    before: Seen
    after: Seen


def try_script(probe: Probe, run: Run, fixture: Fixture, script: str) -> Ended | str:
    """Run `script` on a fixture that no failed probe has changed; or say why it did not run to its end.

    It must print `root` with the fixture's token, and `end` as its last step.
    """
    before = fixture.seen()
    try:
        status, output = run(fixture.sandbox(probe.sandbox), probe, script)
    except Exception as error:  # noqa: BLE001  # whatever it is, this layer holds nothing
        return _one_line(f"it could not be started: {str(error) or type(error).__name__}")
    printed = dict(line.split(" ", 1) for line in output.splitlines() if " " in line)
    # Where the script did not come to its end, what it did not print proves nothing.
    if printed.get("root") != fixture.token or "end" not in printed:
        return _one_line(f"it ended with status {status}: {output or 'no output'}")
    return Ended(probe=probe, fixture=fixture, printed=printed, before=before, after=fixture.seen())


def outcome(checks: Iterable[Check]) -> Outcome:
    """The result of a probe whose script ran to its end."""
    made = tuple(checks)
    return Outcome(checks=made, problem="; ".join(_failure(one) for one in made if not one.held))


def _failure(check: Check) -> str:
    return f'it does not hold that "{check.name}": {check.seen}'


def _one_line(text: str) -> str:
    return " ".join(text.split())[:NOTES]


# --- checks of any layer ------------------------------------------------------------------------------------


def check(name: str, seen: str) -> Check:
    """Something that holds when nothing was seen against it."""
    return Check(name=name, held=not seen, seen=seen)


def unwritten(ended: Ended) -> str:
    if ended.after.get("root/new") == ended.before.get("root/new"):
        return "no file was made"
    return "" if ended.after["root/kept"][0] & 0o777 == MODE else "the mode of a file was not changed"


def changed(ended: Ended, folder: str) -> str:
    """What differs at and below `folder`, in words."""
    return _different(ended, folder, slice(None))


def written(ended: Ended, folder: str) -> str:
    """As `_changed`, of contents alone."""
    return _different(ended, folder, slice(-1, None))


def _different(ended: Ended, folder: str, part: slice) -> str:
    before, after = (
        {path: look[part] for path, look in seen.items() if f"{path}/".startswith(f"{folder}/")}
        for seen in (ended.before, ended.after)
    )
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return f"{', '.join(paths)} changed" if paths else ""


def secrets(ended: Ended) -> Iterator[Check]:
    names = {"state": "the server's own folder cannot be read", "hidden": "hidden files cannot be read"}
    for label, name in names.items():
        read = ended.fixture.secret in ended.printed.get(label, "")
        yield check(name, "it was read" if read else "")
