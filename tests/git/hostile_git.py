"""A repository that wants its programs run, and git with and without our care."""

import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from mcp_toolserver.runtime.git.allowed_commands import GitInvocation
from mcp_toolserver.runtime.git.hardening import argv_prefix, environment, helper
from mcp_toolserver.runtime.git.runner import Git, GitResult
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.helper_launcher import Programs, Running
from mcp_toolserver.runtime.sandbox.broker.messages import Program
from mcp_toolserver.runtime.sandbox.layers.environment import helper_environment
from tests.support.processes import FULL, PATIENCE, broker

GIT = shutil.which("git") or "git is not installed"

_EVIL = """#!/bin/sh
echo "$0 $*" >> '{marker}'
"""

_USER = "[user]\nname = n\nemail = n@example.org\n[init]\ndefaultBranch = main\n"


@cache
def _template() -> "TemporaryDirectory[str]":
    """A repository with one commit, which every other one is a copy of."""
    made = TemporaryDirectory()
    folder = Path(made.name)
    (folder / ".gitconfig").write_text(_USER, encoding="utf-8")
    (folder / "repository/deep").mkdir(parents=True)
    (folder / "repository/file.txt").write_text("one\n", encoding="utf-8")
    (folder / "repository/deep/inner.txt").write_text("inner\n", encoding="utf-8")
    for words in ("init -q --template=", "add .", "commit -qm first"):
        command = [GIT, *words.split(" ")]
        subprocess.run(command, cwd=folder / "repository", env=user_environment(folder), check=True)
    (folder / "repository/.git/hooks").mkdir()
    return made


def user_environment(home: Path) -> dict[str, str]:
    """That of a user at a terminal, with this home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, "HOME": str(home), "TERM": "xterm"}


def _ended(
    argv: Sequence[str], cwd: Path, environ: Mapping[str, str], content: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """A program that has ended, after it read `content`."""
    return subprocess.run(
        argv, cwd=cwd, env=dict(environ), check=False, capture_output=True, input=content, timeout=PATIENCE
    )


@dataclass
class Lair:
    """A repository in which everything can be planted, with one commit and one changed file."""

    folder: Path
    environ: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        home = self.folder / "home"
        home.mkdir()
        (home / ".gitconfig").write_text(_USER, encoding="utf-8")
        self.environ = user_environment(home)
        self.evil.write_text(_EVIL.format(marker=self.marker), encoding="utf-8")
        self.evil.chmod(0o755)
        self.found(self.repository)
        self.write("file.txt", "one\ntwo\n")

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    @property
    def evil(self) -> Path:
        """A program that leaves a mark."""
        return self.folder / "evil.sh"

    @property
    def marker(self) -> Path:
        return self.folder / "marker"

    def found(self, folder: Path) -> None:
        """Make a repository with one commit."""
        shutil.copytree(Path(_template().name) / "repository", folder)

    def write(self, name: str, content: str) -> None:
        """Put a file into the work tree, with its parents."""
        path = self.repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def config(self, *settings: str, cwd: Path | None = None) -> None:
        """Set `name value` pairs in the repository's own configuration; {evil} is the program."""
        for setting in settings:
            name, _, value = setting.format(evil=self.evil).partition(" ")
            self.git("config", name, value, cwd=cwd)

    def commit(self) -> None:
        """Commit all there is."""
        self.git("add", "-A")
        self.git("commit", "-qm", "more")

    def branch(self, name: str, files: Mapping[str, str], start: str = "HEAD") -> None:
        """Commit these files on a new branch, which starts here unless told, and come back to main."""
        self.git("checkout", "-qb", name, start)
        for path, content in files.items():
            self.write(path, content)
        self.commit()
        self.git("checkout", "-q", "main")

    def branches(self, number: int) -> None:
        """So many more."""
        head = self.git("rev-parse", "HEAD").strip()
        lines = (f"create refs/heads/branch-{one} {head}\n" for one in range(number))
        self.piped("".join(lines).encode(), "update-ref", "--stdin")

    def git(self, *words: str, cwd: Path | None = None) -> str:
        """The user's own git, which must succeed."""
        done = self.naive(*words, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def piped(self, content: bytes, *words: str) -> str:
        """The user's own git, which reads `content`."""
        done = _ended([GIT, *words], self.repository, self.environ, content)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    def naive(
        self, *words: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Git as anybody runs it."""
        return _ended([GIT, *words], cwd or self.repository, {**self.environ, **(environ or {})})

    def hardened(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        """Any subcommand, with the environment that our own git gets."""
        listing = self.naive("config", "--list", "--includes", "-z", cwd=cwd).stdout
        own = helper_environment(self.environ, environment(listing))
        return _ended([*argv_prefix(GIT), *words], cwd or self.repository, own)

    def springs(self, *words: str, cwd: Path | None = None) -> bool:
        """Whether git as anybody runs it runs the program."""
        self.ran()
        self.naive(*words, cwd=cwd)
        return self.ran()

    def ran(self) -> bool:
        """Whether the program has been run since the last time this was asked."""
        marked = self.marker.exists()
        self.marker.unlink(missing_ok=True)
        return marked


class Counting(Programs):
    """Remembers the subcommands that are started."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.runs: list[str] = []

    @asynccontextmanager
    async def start(
        self, program: Program, *, cwd: int, stdin: int | None = None
    ) -> AsyncGenerator[Running, None]:
        self.runs.append(next(word for word in program.argv[1:] if not word.startswith("-")))
        async with super().start(program, cwd=cwd, stdin=stdin) as running:
            yield running


@dataclass
class Asked:
    """Our git, in a folder."""

    git: Git
    folder: Path
    counting: Counting

    async def __call__(
        self,
        subcommand: str,
        *options: str,
        revisions: Sequence[str] = (),
        paths: Sequence[str] = (),
        cwd: Path | None = None,
        timeout: float = PATIENCE,
    ) -> GitResult:
        query = GitInvocation(
            subcommand=subcommand, options=options, revisions=tuple(revisions), paths=tuple(paths)
        )
        held = os.open(cwd or self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with anyio.fail_after(3 * PATIENCE):
                where = await self.git.locate(cwd=held, timeout=timeout)
                return await self.git.ask(where, query, cwd=held, timeout=timeout, limit=1 << 20)
        finally:
            os.close(held)

    async def runs(self, folder: Path | None = None) -> list[str]:
        """What one status takes; it must succeed."""
        self.counting.runs.clear()
        assert (await self("status", "--short", cwd=folder)).status == 0
        return list(self.counting.runs)


def asker(lair: Lair, started: Broker, program: str = GIT, **options: int) -> Asked:
    """Our git, run by this broker, with nothing remembered; `options` say for how long it remembers."""
    counting = Counting(started)
    return Asked(Git(counting, program, str(lair.folder / "home"), **options), lair.repository, counting)


@asynccontextmanager
async def asking(
    lair: Lair, *, program: str = GIT, environ: Mapping[str, str] | None = None, **options: Any
) -> AsyncGenerator[Asked]:
    """Our git, run by a broker of its own whose server has `environ`."""
    with broker(FULL, helper(program), environ={**lair.environ, **(environ or {})}, **options) as started:
        yield asker(lair, started, program)
