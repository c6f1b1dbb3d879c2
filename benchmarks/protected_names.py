"""`python -m benchmarks.protected_names`: random sequences of commands that try to plant protected names.

After each sequence, when all its calls have ended, no protected name may be in the workspace that was not
there before, and what was there must be the same to the inode. Where commands may write in `.git`, that goes
for hooks and configuration in every folder that may be a repository. The tree is listed by `find`, which
knows nothing of the product and has no limit of depth. The same seed makes the same run.
"""

import argparse
import random
import re
import subprocess
import sys
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from benchmarks.client import Unanswered
from benchmarks.protected_sequences import KNOWN
from benchmarks.protected_steps import Step, random_sequence
from mcp_toolserver.runtime.sandbox.protected.names import NAMES
from tests.support.confinement import (
    PROTECTED_GIT,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Server,
    git,
    put,
    scene,
    serving,
)
from tests.support.snapshot import Snapshot, differences, snapshot

PER_SERVER = 100
"""Sequences; then another server starts, so that what one remembers is tried with few and with many."""

CALL_MILLISECONDS = 20_000
SHOWN_OF_A_PATH = 200
SHOWN_OF_A_SCRIPT = 2_000

_PLANTED = re.compile(rb"fsmonitor|^x$|^run$", re.MULTILINE)
_HANDLE = re.compile(r"\bsession ([\w-]{8,})")
_JOB = re.compile(r"\bbg_[0-9a-f]+")


class Planted(AssertionError):
    """A protected name is there that was not, or one that was has changed. The text says how to repeat it."""


def is_protected_name(name: str) -> bool:
    """Whether `name` is a protected one in some spelling: case, width, invisible or trailing characters."""
    return _plain(name) in (*NAMES, "git~1", "vscode~1", "claude~1")


def _plain(name: str) -> str:
    visible = "".join(character for character in name if unicodedata.category(character) != "Cf")
    return unicodedata.normalize("NFKC", visible).casefold().partition(":")[0].rstrip(". ")


def is_git_name(name: str) -> bool:
    """Whether `name` is that of a repository's folder, in some spelling."""
    return _plain(name) in (".git", "git~1")


def is_settings_name(name: str) -> bool:
    """Whether `name` is that of an editor's folder, in some spelling."""
    return _plain(name) in (".vscode", ".idea", ".husky", ".devcontainer", ".zed", "vscode~1")


@dataclass(kw_only=True)
class Workspace:
    """The root of a scene and the protected places that were there from the start."""

    at: Scene
    has_writable_git: bool
    before: Snapshot = field(init=False)
    places: frozenset[str] = field(init=False)
    """From the root."""

    def __post_init__(self) -> None:
        self.places = self._protected()
        self.before = self._seen()

    def look(self) -> list[str]:
        """What is not as it was, one line each."""
        now = self._protected()
        planted = [f"{path[-SHOWN_OF_A_PATH:]}: planted" for path in sorted(now - self.places)]
        gone = [f"{path}: gone" for path in sorted(self.places - now)]
        return [*planted, *gone, *(() if gone else differences(self.before, self._seen()))]

    def clear(self) -> None:
        """Remove what sequences left, but for the protected places and the folders they lie in."""
        ways = {str(way) for path in self.places for way in Path(path).parents}
        deepest = 1 + max(path.count("/") for path in self.places)
        outer = [
            str(self.at.root / path)
            for path in self._listed(deepest)
            if path not in self.places | ways and (path.rpartition("/")[0] or ".") in ways
        ]
        for start in range(0, len(outer), 500):
            some = outer[start : start + 500]
            closed = ("-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";")
            subprocess.run(["find", *some, *closed], check=True)
            subprocess.run(["rm", "-rf", "--", *some], check=True)

    def _seen(self) -> Snapshot:
        return snapshot(*(self.at.root / path for path in sorted(self.places)))

    def _protected(self) -> frozenset[str]:
        """The outermost protected names."""
        found = sorted(
            (path for path in self._listed() if self._is_protected(path)), key=lambda path: path.count("/")
        )
        outermost: set[str] = set()
        for path in found:
            ways = path.split("/")
            if not any("/".join(ways[:count]) in outermost for count in range(1, len(ways))):
                outermost.add(path)
        return frozenset(outermost)

    def _is_protected(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        _, packages, inner = f"/{path}".partition("/node_modules/")
        if packages and any(map(is_settings_name, inner.split("/"))):
            # Nothing acts upon what lies in such a folder there.
            return False
        if self.has_writable_git and is_git_name(name):
            return not (self.at.root / path).is_dir() and not self._is_work_tree(path)
        return is_protected_name(name) or (self.has_writable_git and self._steers_git(path))

    def _is_work_tree(self, path: str) -> bool:
        """Whether it is the `.git` file of a worktree, which its repository knows."""
        try:
            git_dir = (self.at.root / path).read_text(encoding="utf-8").removeprefix("gitdir: ").strip()
            return Path(git_dir, "gitdir").read_text(encoding="utf-8").strip() == str(self.at.root / path)
        except (OSError, ValueError):
            return False

    def _steers_git(self, path: str) -> bool:
        """Whether it is a hook, or a configuration that names what sequences plant."""
        place = self.at.root / path
        git_dir = place.parent if place.name == "config" else place.parent.parent
        if not is_git_name(git_dir.name) and not (git_dir / "HEAD").is_file():
            return False
        if place.parent.name == "hooks":
            return not place.name.endswith(".sample")
        return place.name == "config" and _PLANTED.search(place.read_bytes()) is not None

    def _listed(self, deepest: int = 1_000_000) -> list[str]:
        """Every path from the root.

        Raises:
            Planted: something cannot be listed, so nobody knows what is in it.
        """
        done = subprocess.run(
            ["find", ".", "-mindepth", "1", "-maxdepth", str(deepest), "-printf", r"%P\0"],
            cwd=self.at.root,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise Planted(f"the workspace cannot be listed: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


@dataclass(kw_only=True)
class Player:
    """Plays sequences on one server."""

    server: Server
    workspace: Workspace
    calls: int = 0
    errors: int = 0

    def play(self, sequence: Sequence[Step]) -> None:
        """Play it, end all it started, and look.

        Raises:
            Planted: see there.
        """
        session, jobs = "", list[str]()
        for step in sequence:
            if step.way == "session":
                session = self._evaluate(step, session)
            elif step.way == "job":
                said = self._call("bash", command=step.script, run_in_background=True)
                jobs += _JOB.findall(said)[:1]
            else:
                self._call("bash", command=step.script, timeout=CALL_MILLISECONDS)
            if session and not jobs:
                # What a live session planted does not stay until the session ends.
                self._look()
        for job in jobs:
            self._call("TaskStop", task_id=job)
        if session:
            self._call("REPL", language="shell", code="", session=session, end_session=True)
        # A command of root's may close the root to all others: there is nothing to protect then.
        self.workspace.at.root.chmod(0o755)
        self._look()
        if "still here" not in (said := self._call("bash", command="echo still here")):
            raise Planted(f"commands do not run any more: {said}")

    def _look(self) -> None:
        if found := self.workspace.look():
            raise Planted("\n".join(found))

    def _evaluate(self, step: Step, session: str) -> str:
        """Run it in the session, or in a new one where there is none; the handle, empty when it is gone."""
        said = self._call("REPL", language="shell", code=step.script, session=session or "new")
        if "the session" in said and ("stopped" in said or "killed" in said or "has ended" in said):
            return ""
        named = _HANDLE.search(said)
        return session or (named.group(1) if named else "")

    def _call(self, tool: str, **arguments: object) -> str:
        self.calls += 1
        said = self.server.call(tool, **arguments)
        self.errors += said.is_error
        return said.text


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What a run came to."""

    sequences: int
    calls: int
    errors: int
    seconds: float


def planted(user: str, *, count: int, seed: int, mode: str = WORKSPACE_WRITE) -> Tally:
    """Play the known sequences and `count` random ones as `user`, in workspace-write with further flags.

    Raises:
        Planted: a protected name was planted or changed.
    """
    began, calls, errors = time.monotonic(), 0, 0
    sequences = [*KNOWN.values(), *(random_sequence(random.Random(f"{seed} {n}")) for n in range(count))]
    for start in range(0, len(sequences), PER_SERVER):
        with scene(user) as at:
            prepare(at)
            try:
                with serving(at, *mode.split()) as server:
                    workspace = Workspace(at=at, has_writable_git=mode == WORKSPACE_WRITE)
                    player = Player(server=server, workspace=workspace)
                    for number, sequence in enumerate(sequences[start : start + PER_SERVER], start):
                        _play(player, sequence, f"seed {seed}, as {user}, sequence {number - len(KNOWN)}")
                    calls, errors = calls + player.calls, errors + player.errors
            finally:
                # Nested too deep for Python's own functions.
                subprocess.run(["rm", "-rf", "--", at.root, at.state], check=True)
    return Tally(sequences=len(sequences), calls=calls, errors=errors, seconds=time.monotonic() - began)


def prepare(at: Scene) -> None:
    """Add projects with protected names, and remove what has no part in it."""
    for path in at.root.iterdir():
        if path.name not in (".git", ".mcp.json", ".vscode", "hostile"):
            subprocess.run(["rm", "-rf", "--", path], check=True)
    put(at.root / "kept/sub/.envrc", "export A=1\n")
    put(at.root / "kept/.claude/settings.json", "{}\n")
    put(at.root / "node_modules/dep/.vscode/settings.json", "{}\n")
    git(at.root, "worktree", "add", "--quiet", str(at.root / "tree"), "other")
    at.own()


def _play(player: Player, sequence: Sequence[Step], name: str) -> None:
    try:
        player.play(sequence)
    except (Planted, Unanswered) as error:
        played = "\n".join(f"{step.way}: {step.script[:SHOWN_OF_A_SCRIPT]!a}" for step in sequence)
        raise Planted(f"{name}: {error}\nafter:\n{played}") from None
    player.workspace.clear()


def main(arguments: Sequence[str]) -> int:
    """Play as each user; exit status 1 when a protected name was planted or changed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.protected_names", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=2_000, help="random sequences per user (2000)")
    parser.add_argument("--seed", type=int, help="to have a run again")
    parser.add_argument("--user", action="append", choices=USERS, help="one user; repeatable (all)")
    asked = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**9) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    for user, mode in product(asked.user or USERS, (WORKSPACE_WRITE, PROTECTED_GIT)):
        try:
            tally = planted(user, count=asked.count // 2, seed=seed, mode=mode)
        except Planted as error:
            print(error)
            return 1
        print(
            f"{user}, {mode}: {tally.sequences} sequences with {tally.calls} calls in {tally.seconds:.0f} s, "
            f"{tally.errors} answered by an error; nothing was planted",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
