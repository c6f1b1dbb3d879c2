"""A repository that wants its programs run, and git with and without our care."""

import os
import pty
import shutil
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from mcp_toolserver.runtime.git.allowed_commands import GitInvocation
from mcp_toolserver.runtime.git.executable import argv_prefix, helper
from mcp_toolserver.runtime.git.hardening import environment
from mcp_toolserver.runtime.git.runner import Git, GitResult
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.sandbox.layers.environment import helper_environment
from tests.support.processes import FULL, PATIENCE, broker

GIT = shutil.which("git") or "git is not installed"

_EVIL = """#!/bin/sh
echo "$0 $*" >> '{marker}'
"""


@dataclass
class Lair:
    """A repository in which everything can be planted, with one commit and one changed file."""

    folder: Path
    environ: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        home = self.folder / "home"
        home.mkdir()
        who = "[user]\nname = n\nemail = n@example.org\n[init]\ndefaultBranch = main\n"
        (home / ".gitconfig").write_text(who, encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.environ = {**kept, "HOME": str(home), "TERM": "xterm"}
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
        folder.mkdir()
        self.git("init", "-q", cwd=folder)
        (folder / "file.txt").write_text("one\n", encoding="utf-8")
        (folder / "deep").mkdir()
        (folder / "deep" / "inner.txt").write_text("inner\n", encoding="utf-8")
        self.git("add", ".", cwd=folder)
        self.git("commit", "-qm", "first", cwd=folder)

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

    def git(self, *words: str, cwd: Path | None = None) -> str:
        """The user's own git, which must succeed."""
        done = self.naive(*words, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def piped(self, content: bytes, *words: str) -> str:
        """The user's own git, which reads `content`."""
        done = subprocess.run(
            [GIT, *words],
            cwd=self.repository,
            env=dict(self.environ),
            check=True,
            capture_output=True,
            input=content,
            timeout=PATIENCE,
        )
        return done.stdout.decode().strip()

    def naive(
        self, *words: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Git as anybody runs it."""
        return subprocess.run(
            [GIT, *words],
            cwd=cwd or self.repository,
            env={**self.environ, **(environ or {})},
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
        )

    def naive_on_terminal(self, *words: str) -> None:
        """Git as anybody runs it, at a terminal."""
        ours, theirs = pty.openpty()
        try:
            subprocess.run(
                [GIT, *words],
                cwd=self.repository,
                env=dict(self.environ),
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                timeout=PATIENCE,
            )
        finally:
            os.close(theirs)
            os.close(ours)

    def hardened(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        """Any subcommand, with the environment that our own git gets."""
        listing = self.naive("config", "--list", "--includes", "-z", cwd=cwd).stdout
        return subprocess.run(
            [*argv_prefix(GIT), *words],
            cwd=cwd or self.repository,
            env=helper_environment(self.environ, environment(listing)),
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
        )

    def ran(self) -> bool:
        """Whether the program has been run since the last time this was asked."""
        marked = self.marker.exists()
        self.marker.unlink(missing_ok=True)
        return marked


@dataclass
class Asked:
    """Our git, in a folder."""

    git: Git
    folder: Path

    async def __call__(
        self,
        subcommand: str,
        *options: str,
        revisions: Sequence[str] = (),
        paths: Sequence[str] = (),
        cwd: Path | None = None,
        timeout: float = PATIENCE,
        limit: int = 1 << 20,
    ) -> GitResult:
        query = GitInvocation(
            subcommand=subcommand, options=options, revisions=tuple(revisions), paths=tuple(paths)
        )
        held = os.open(cwd or self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with anyio.fail_after(3 * PATIENCE):
                where = await self.git.locate(cwd=held, timeout=timeout)
                return await self.git.ask(where, query, cwd=held, timeout=timeout, limit=limit)
        finally:
            os.close(held)


@asynccontextmanager
async def asking(
    lair: Lair, *, program: str = GIT, environ: Mapping[str, str] | None = None
) -> AsyncGenerator[Asked]:
    """Our git, run by a real broker whose server has `environ`."""
    with broker(FULL, helper(program), environ={**lair.environ, **(environ or {})}) as started:
        yield Asked(Git(Programs(started), program, str(lair.folder / "home")), lair.repository)
