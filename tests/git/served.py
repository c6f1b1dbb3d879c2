"""Hostile repositories below the root of a real server in its sandbox, and calls of git tools there."""

import os
import re
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.confinement import Said, Scene, Server, git, put

AUTHOR = ("--git-author", "U <u@example.org>")

HOOKS = (
    *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-checkout"),
    *("reference-transaction", "post-index-change", "post-rewrite", "pre-auto-gc", "fsmonitor-watchman"),
    "applypatch-msg",
)

PROGRAMS = (
    *("core.fsmonitor", "core.editor", "core.pager", "core.sshCommand", "core.askPass", "sequence.editor"),
    *("gpg.program", "gpg.openpgp.program", "gpg.ssh.program", "diff.external", "credential.helper"),
    *("filter.odd.clean", "filter.odd.smudge", "filter.odd.process", "diff.odd.textconv", "diff.odd.command"),
    *("merge.odd.driver", "alias.commit", "alias.add", "alias.branch", "trailer.x.command", "hook.x.command"),
    "uploadpack.packObjectsHook",
)

SETTINGS = (
    *("commit.gpgSign true", "tag.gpgSign true", "filter.odd.required true", "gc.auto 1"),
    *("commit.template more.inc", "rerere.enabled true", "maintenance.auto true"),
    *("hook.x.event pre-commit", "include.path ../more.inc"),
)

ASKED = (
    *(("git_status", {}), ("git_diff", {}), ("git_diff", {"commit": "HEAD~1"}), ("git_log", {})),
    *(("git_show", {}), ("git_show", {"path": "tracked"}), ("git_blame", {"path": "tracked"})),
    ("repo_overview", {}),
)
SHOWS = {"git_status": " M ", "git_diff": "+and changed", "git_log": "second", "git_blame": "tracked"}

ATTACKS = ("status", "commit -qam x", "branch x", "checkout feature", "worktree add -q x")
"""Commands of a user that run the programs of a planted repository."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A repository of the test's own, `own`, in the root of a server that tests share."""

    server: Server

    @property
    def scene(self) -> Scene:
        return self.server.scene

    @property
    def own(self) -> Path:
        return self.scene.root / "own"


@contextmanager
def repository_in(server: Server) -> Generator[Place]:
    """A new repository with history and one changed file, which goes with the test."""
    made = Place(server=server)
    build(made.scene)
    yield made
    shutil.rmtree(made.own)


def build(of: Scene) -> None:
    """Make the repository `own`: the hostile one of the scene before anything is planted there."""
    shutil.copytree(of.root / "hostile", of.root / "own", symlinks=True)
    for name in ("core.fsmonitor", "diff.external"):
        git(of.root / "own", "config", "--unset", name)
    of.own()


def planted(folder: Path) -> None:
    """Programs in every place where git looks for some while it reads or writes, a branch, and changes."""
    put(folder / "a.odd", "odd\n")
    git(folder, "add", "a.odd")
    git(folder, "commit", "--quiet", "--message=odd", "a.odd")
    git(folder, "checkout", "--quiet", "-b", "feature")
    put(folder / "plain", "feature\n")
    git(folder, "add", "plain")
    git(folder, "commit", "--quiet", "--message=feature", "plain")
    git(folder, "checkout", "--quiet", "main")
    program = f"{folder}/evil.sh"
    # The server's git may write in .git, and only there.
    put(Path(program), f"#!/bin/sh\ntouch {folder}/.git/evil-ran {folder}/evil-ran\n")
    put(folder / "more.inc", f"[core]\n\tfsmonitor = {program}\n\thooksPath = {folder}/more-hooks\n")
    for name in HOOKS:
        put(folder / ".git/hooks" / name, f"#!/bin/sh\nexec {program}\n").chmod(0o755)
        put(folder / "more-hooks" / name, f"#!/bin/sh\nexec {program}\n").chmod(0o755)
    programs = (f"{name} {'!' * name.startswith('alias.')}{program}" for name in PROGRAMS)
    with (folder / ".git/config").open("a", encoding="utf-8") as config:
        for setting in (*programs, *SETTINGS):
            name, _, value = setting.partition(" ")
            section, *middle, key = name.split(".")
            heading = " ".join((section, *(f'"{one}"' for one in middle)))
            config.write(f"[{heading}]\n\t{key} = {value}\n")
    put(folder / ".git/info/attributes", "*.odd filter=odd diff=odd merge=odd\n")
    put(folder / "new.txt", "new\n")
    os.utime(folder / "tracked", (1, 1))
    sprung(folder)


def sprung(folder: Path) -> bool:
    """Whether programs have left their mark since this was last asked."""
    marks = list(folder.rglob("evil-ran"))
    for mark in marks:
        mark.unlink()
    return bool(marks)


def naively(folder: Path, words: str) -> None:
    """Git as anybody runs it, whoever the folder belongs to, and whatever comes of it."""
    subprocess.run(
        ["git", "-c", "safe.directory=*", "-c", "commit.gpgSign=false", *words.split(" ")],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )


def done(said: Said) -> str:
    """The text of a call that succeeded."""
    assert not said.is_error, said.text
    return said.text


def refused(said: Said, why: str) -> None:
    assert said.is_error, said.text
    assert why in said.text


def ask_everything(server: Server) -> None:
    """Every question about the repository `own`, each answered."""
    for tool, arguments in ASKED:
        path = f"own/{arguments.get('path', '')}".rstrip("/")
        assert SHOWS.get(tool, "") in done(server.call(tool, **{**arguments, "path": path})), tool


def change_everything(server: Server) -> None:
    """Commit, amend, create, switch and restore, in `own` and in a worktree of it."""
    assert "A " in done(server.call("git_commit", message="one", paths=["own/new.txt"]))
    amended = server.call("git_commit", message="two", amend=True, paths=["own/tracked"])
    assert "not signed" in done(amended)
    done(server.call("git_branch", name="made", create=True, path="own"))
    assert "A " in done(server.call("git_branch", name="feature", path="own"))
    assert "Restored" in done(server.call("git_restore", paths=["own/plain"]))
    done(server.call("git_branch", name="main", path="own"))
    assert "two" in done(server.call("git_log", count=1, path="own"))
    said = done(server.call("EnterWorktree", name="x", path="own"))
    assert "a.odd" in said
    done(server.call("write_file", path="new", content="new\n"))
    done(server.call("git_commit", message="three", paths=["new"]))
    done(server.call("git_status"))
    refused(server.call("ExitWorktree", id=worktree_id(said), action="remove"), "three")
    done(server.call("ExitWorktree", id=worktree_id(said), action="remove", discard_changes=True))


@contextmanager
def worktree(server: Server, name: str = "x", path: str = "own") -> Generator[str]:
    """A worktree that a session enters, and that it removes at the end of the test; its id."""
    found = worktree_id(done(server.call("EnterWorktree", name=name, path=path)))
    yield found
    done(server.call("ExitWorktree", id=found, action="remove", discard_changes=True))


def worktree_id(said: str) -> str:
    """The id that an answer names."""
    found = re.search(r"\bworktree_[0-9a-f]{32}\b", said)
    assert found, said
    return found[0]
