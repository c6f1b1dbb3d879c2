"""`python -m benchmarks.fuzz`: random paths and random commands against a real, sandboxed server.

Afterwards nothing outside the root may have changed (in read-only, nothing inside it either), no answer may
contain outside content, no process may remain, and the server must still answer. The same seed repeats a run.

The commands are harmful, so the fuzzer first checks that the sandbox works. Every command changes into the
temporary scene folder or exits, and has its targets there, so a hole in the sandbox damages only that folder.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.client import Unanswered
from benchmarks.fuzz_ground import KEPT, Ground, ground
from benchmarks.hostile_commands import command
from benchmarks.hostile_paths import path
from tests.support.confinement import READ_ONLY, USERS, WORKSPACE_WRITE, Server, serving
from tests.support.snapshot import Snapshot, differences

MODES = (READ_ONLY, WORKSPACE_WRITE)
PATHS_PER_LOOK = 1_000
COMMANDS_PER_LOOK = 25
COMMAND_MILLISECONDS = 5_000
CALLS_SHOWN = 25
SHOWN_OF_A_CALL = 600


class Escaped(AssertionError):
    """Something got out. The text says what, and with which seed it can be had again."""


PATH_CALLS: tuple[Callable[[str], tuple[str, dict[str, object]]], ...] = (
    lambda p: ("read_file", {"path": p}),
    lambda p: ("write_file", {"path": p, "content": "written by the fuzzer"}),
    lambda p: ("edit_file", {"path": p, "old_string": "o", "new_string": "0", "replace_all": True}),
    lambda p: ("glob_search", {"pattern": "*", "path": p}),
    lambda p: ("glob_search", {"pattern": p}),
    lambda p: ("grep_search", {"pattern": ".", "path": p, "output_mode": "content"}),
    lambda p: ("grep_search", {"pattern": ".", "glob": p, "output_mode": "content"}),
)
STARTING = 40
"""Of so many paths one is also a folder to start a command in, which takes much longer."""


def fuzz_paths(run: "Run", count: int) -> None:
    """Random paths through every tool that takes one."""
    for number in range(count):
        made = path(run.chance, run.at)
        if number % STARTING == 0:
            run.send("bash", {"command": "pwd", "cwd": made})
        else:
            run.send(*PATH_CALLS[number % len(PATH_CALLS)](made), shows_nothing=True)
        if number % PATHS_PER_LOOK == PATHS_PER_LOOK - 1:
            run.look()
    run.look()


def fuzz_commands(run: "Run", count: int) -> None:
    """Random commands."""
    for number in range(count):
        run.send("bash", {"command": command(run.chance, run.at), "timeout": COMMAND_MILLISECONDS})
        if number % COMMANDS_PER_LOOK == COMMANDS_PER_LOOK - 1:
            run.look()
    run.look()


@dataclass(kw_only=True)
class Run:
    """One server and what was sent to it."""

    at: Ground
    server: Server
    seed: int
    chance: random.Random
    before: Snapshot
    sent: list[str] = field(default_factory=list[str])
    """Since the last look."""
    succeeded: int = 0
    refused: int = 0

    def send(self, tool: str, arguments: dict[str, object], *, shows_nothing: bool = False) -> None:
        """Make a call; that the server answers at all is what `look` asks."""
        self.sent.append(f"{tool} {arguments!a}")
        try:
            said = self.server.call(tool, **arguments)
        except Unanswered as error:
            if "silent" in str(error) or "ended" in str(error):
                raise self.escaped(f"no answer: {error}") from None
            self.refused += 1
            return
        self.refused += said.is_error
        self.succeeded += not said.is_error
        if shows_nothing and KEPT in said.text:
            raise self.escaped("an answer holds what lies outside")

    def look(self) -> None:
        """See that all is as it was, and put the root back."""
        if found := differences(self.before, self.at.watched(self.server.mode)):
            raise self.escaped("\n".join(found))
        if left := self.at.sleepers():
            raise self.escaped(f"processes are left: {left}")
        if self.server.bash("echo still here").strip() != "still here":
            raise self.escaped("the server does not answer as it should")
        self.sent.clear()
        if self.server.mode != READ_ONLY:
            self.at.renew()

    def escaped(self, what: str) -> Escaped:
        """The failure, with what to try again."""
        tried = "\n".join(call[:SHOWN_OF_A_CALL] for call in self.sent[-CALLS_SHOWN:])
        return Escaped(f"seed {self.seed}, {self.server.mode}: {what}\namong, at last:\n{tried}")


def prove(at: Ground, server: Server) -> None:
    """Check that the sandbox works before sending anything harmful.

    Raises:
        Escaped: it does not, or no command runs, which would prove nothing.
    """
    places = [at.scene.outside, at.unseen, at.scene.home, at.scene.root / ".git/hooks"]
    if server.mode == READ_ONLY:
        places.append(at.scene.root)
    for place in places:
        probe = place / "probe"
        server.call("write_file", path=str(probe), content="x")
        server.call("bash", command=f"echo x > '{probe}'")
        if probe.exists():
            raise Escaped(
                f"{server.mode}: the sandbox does not work, {probe} was written; nothing else was tried"
            )
    if server.call("bash", command="echo alive").text.strip() != "alive":
        raise Escaped(f"{server.mode}: commands do not run, so there is nothing to try")


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What a run came to."""

    mode: str
    succeeded: int
    refused: int
    seconds: float


def fuzzed(mode: str, *, paths: int, commands: int, seed: int, user: str = USERS[0]) -> Tally:
    """Send `paths` and `commands` to a server of its own.

    Raises:
        Escaped: something got out.
    """
    started = time.monotonic()
    with ground(user, seed) as at, serving(at.scene, mode) as server:
        prove(at, server)
        chance = random.Random(f"{seed} {mode}")
        run = Run(at=at, server=server, seed=seed, chance=chance, before=at.watched(mode))
        fuzz_paths(run, paths)
        fuzz_commands(run, commands)
        taken = time.monotonic() - started
        return Tally(mode=mode, succeeded=run.succeeded, refused=run.refused, seconds=taken)


def main(arguments: Sequence[str]) -> int:
    """Fuzz each mode; exit status 1 when something got out."""
    asked = _parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(10**9) if asked.seed is None else asked.seed
    print(f"seed {seed}, as {asked.user}", flush=True)
    for mode in asked.mode or MODES:
        try:
            tally = fuzzed(mode, paths=asked.paths, commands=asked.commands, seed=seed, user=asked.user)
        except Escaped as escaped:
            print(escaped)
            return 1
        print(
            f"{mode}: {asked.paths} paths and {asked.commands} commands in {tally.seconds:.0f} s; "
            f"{tally.succeeded} answered, {tally.refused} refused; nothing got out",
            flush=True,
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--paths", type=int, default=200_000, help="random paths for each mode (200000)")
    parser.add_argument("--commands", type=int, default=20_000, help="random commands for each mode (20000)")
    parser.add_argument("--seed", type=int, help="to have a run again")
    parser.add_argument("--mode", action="append", choices=MODES, help="one mode; repeatable (both)")
    parser.add_argument("--user", choices=USERS, default=USERS[0], help="who the server runs as")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
