"""Backups of git histories: what commands destroy is restored, and no repository reaches out of its roots."""

import json
import os
import shutil
import subprocess
import time
import zipfile
from contextlib import AbstractAsyncContextManager, redirect_stdout
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mcp_toolserver.app import confinement
from mcp_toolserver.app.compose import application_of, build_application
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.commands.history import list_backups, restore
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.protocol.http.tokens import Grant
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.git_backups import PACK, BackupFolder, NotCopied, load, user_folder
from tests.git.hostile_git import GIT
from tests.support.broker_forks import start_broker
from tests.support.confinement import git, git_environment, put
from tests.support.process_layer import server_command
from tests.support.processes import call
from tests.support.workbench import Person
from tests.support.workshop import workshop

DESTROYED = {
    "removed": "rm -rf .git",
    "collected": "git reset -q --hard HEAD~2; git reflog expire --expire=now --all; git gc -q --prune=now",
    "branch": "git branch -D other; git reflog expire --expire=now --all; git gc -q --prune=now",
    "filtered": "FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch -f --msg-filter 'echo x' -- --all;"
    " rm -rf .git/refs/original .git/logs; git gc -q --prune=now",
}


@cache
def _template() -> "TemporaryDirectory[str]":
    """Three commits, a branch and a tag, a commit that only the reflog has, and a staged file."""
    made = TemporaryDirectory()
    at = Path(made.name)
    git(at, "init", "-q", "-b", "main")
    for number in range(3):
        (at / "file").write_text(f"{number}\n", encoding="utf-8")
        git(at, "add", "file")
        git(at, "commit", "-qm", f"commit {number}")
    git(at, "branch", "other", "HEAD~1")
    git(at, "checkout", "-q", "--detach")
    git(at, "commit", "-qm", "in the reflog only", "--allow-empty")
    git(at, "checkout", "-q", "main")
    git(at, "tag", "-a", "-m", "tag", "v1")
    (at / "staged").write_text("staged\n", encoding="utf-8")
    git(at, "add", "staged")
    return made


def repository(at: Path) -> Path:
    """A copy of the template."""
    return shutil.copytree(_template().name, at)


def history(at: Path) -> list[str]:
    """What a backup has to bring back."""
    words = ("for-each-ref refs/heads refs/tags", "log -g --format=%H %gs", "ls-files --stage")
    reads = [git(at, *one.split(" ", 2 if one.startswith("log") else -1)) for one in words]
    return [*reads, git(at, "symbolic-ref", "HEAD"), git(at, "cat-file", "-p", "HEAD:file")]


def program(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*server_command(), *words, "--state-dir", str(folder / "state")]
    return subprocess.run(command, check=False, capture_output=True, encoding="utf-8")


def restored(folder: Path, backup: str) -> str:
    """What a restore prints."""
    with redirect_stdout(StringIO()) as printed:
        assert restore(str(folder / "state"), backup, GIT) == 0
    return printed.getvalue()


def stored(folder: Path, at: Path) -> BackupFolder:
    """The backups of a git folder, oldest first."""
    return BackupFolder(user_folder(str(folder / "state"), ""), str(at))


def backups(folder: Path, at: Path) -> list[str]:
    return [one.id for one in stored(folder, at / ".git").backups]


def serving(
    folder: Path, mode: Permission = Permission.WORKSPACE_WRITE, **settings: Any
) -> AbstractAsyncContextManager[Dispatcher]:
    """A server on `folder/root`."""
    return workshop(folder, mode, found=HostExecutables(git=GIT), **settings)


async def bash(server: Dispatcher, script: str, session: str = "one") -> str:
    return (await call(server, "bash", Person(owner=session), command=script)).text


@pytest.mark.parametrize(
    "mode",
    [Permission.WORKSPACE_WRITE, pytest.param(Permission.DANGER_FULL_ACCESS, marks=pytest.mark.long)],
    ids=lambda one: one.flag,
)
async def test_what_a_command_destroys_is_restored(tmp_path: Path, mode: Permission) -> None:
    before = {name: history(repository(tmp_path / "root" / name)) for name in DESTROYED}
    async with serving(tmp_path, mode) as server:
        for name, script in DESTROYED.items():
            await bash(server, f"cd {name}; {script}")
    for name, expected in before.items():
        at = tmp_path / "root" / name
        is_gone = not (at / ".git/HEAD").exists()
        assert is_gone or history(at) != expected
        (backup,) = backups(tmp_path, at)
        said = restored(tmp_path, backup)
        assert history(at) == expected, name
        assert git(at, "fsck", "--full", "--strict") == ""
        assert ("Replaced files" in said) is not is_gone, said


async def test_shallow_clones_and_submodules_are_backed_up(tmp_path: Path) -> None:
    outside = repository(tmp_path / "outside")
    root = tmp_path / "root"
    at = repository(root / "one")
    git(at, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(outside), "sub")
    git(root, "clone", "-q", "--depth=1", f"file://{outside}", "shallow")
    shallow, inner = root / "shallow", at / "sub"
    tips = [git(one, "rev-parse", "HEAD") for one in (shallow, inner)]
    async with serving(tmp_path) as server:
        said = await bash(server, f"rm -rf {at}/.git/modules/sub/objects/* {shallow}/.git/objects/*")
    assert said == "(no output)"
    for git_dir in (shallow / ".git", at / ".git/modules/sub"):
        restored(tmp_path, stored(tmp_path, git_dir).backups[0].id)
    for one, tip in zip((shallow, inner), tips, strict=True):
        assert git(one, "rev-parse", "HEAD") == tip
        assert git(one, "fsck") == ""


async def test_each_name_of_a_token_has_backups_of_its_own(tmp_path: Path) -> None:
    at, write = repository(tmp_path / "root/one"), Permission.WORKSPACE_WRITE
    found = HostExecutables(git=GIT)
    settings = Settings(permission_mode=write, root=(str(at.parent),), state_dir=str(tmp_path / "state"))
    broker = start_broker(confinement.broker_policy(settings, found))
    app = build_application(settings, broker, found, held_by=None)
    for name, mode in {"ann": write, "ben": write, "cleo": Permission.READ_ONLY}.items():
        own = application_of(app, Grant(name=name, sha256=("a" * 64,), ceiling=mode, roots=()))
        await call(own.dispatcher, "bash", command="true")
        await own.end()
    await app.aclose()
    broker.close()
    assert sorted(os.listdir(tmp_path / "state/history")) == ["ann", "ben"]


async def test_what_a_restore_replaces_is_kept(tmp_path: Path) -> None:
    at = repository(tmp_path / "root/one")
    async with serving(tmp_path) as server:
        await bash(server, "true")
    (at / "file").write_text("later\n", encoding="utf-8")
    git(at, "commit", "-qam", "later")
    later, index = git(at, "rev-parse", "HEAD").strip(), (at / ".git/index").read_bytes()
    said = restored(tmp_path, backups(tmp_path, at)[0])
    kept = next(at.glob(".git/before-restore-*"))
    assert str(kept) in said
    assert (kept / "index").read_bytes() == index
    git(at, "reflog", "expire", "--expire=now", "--all")
    git(at, "gc", "-q", "--prune=now")
    assert git(at, "rev-parse", f"refs/{kept.name}/heads/main").strip() == later


async def test_each_session_adds_what_is_new_and_commands_do_not_see_it(tmp_path: Path) -> None:
    at, state = repository(tmp_path / "root/one"), tmp_path / "state"
    (at / "noise").write_bytes(os.urandom(1 << 20))
    git(at, "add", "noise")
    git(at, "commit", "-qm", "noise")
    async with serving(tmp_path) as server:
        for session in "abc":
            seen = await bash(server, f"find {state} -name '*.zip'; touch {state}/history/x", session)
            assert ".zip" not in seen
            await bash(
                server, "git -C one -c user.name=a -c user.email=a commit -qm more --allow-empty", session
            )
    assert not (state / "history/x").exists()
    first, *others = load(stored(tmp_path, at / ".git").path)
    assert [other.base for other in others] == [first.id] * 2
    assert [os.path.getsize(one.path) >> 14 for one in (first, *others)] == [64, 0, 0]
    assert git(at, "rev-parse", "HEAD~1").strip() in others[-1].tips
    subprocess.run(["rm", "-rf", str(at / ".git")], check=True)
    restored(tmp_path, others[-1].id)
    assert git(at, "fsck", "--full") == ""
    assert git(at, "log", "--format=%s").split("\n")[:3] == ["more", "more", "noise"]


HOSTILE = {
    "alternates": (
        "echo $OTHER/objects >objects/info/alternates",
        "objects/info/alternates lets git read other data",
    ),
    "objects": ("rm -r objects; ln -s $OTHER/objects objects", "objects is a link"),
    "refs": ("ln -sf $OTHER/refs/heads/main refs/heads/main", "refs/heads/main is a link"),
    "fifo": ("mkfifo refs/heads/pipe", "refs/heads/pipe is a link or a special file"),
    "index": ("rm index; mkfifo index", "index is a link or a special file"),
    # An object is missing that git would get by starting a program.
    "promisor": (
        (
            "id=$(git rev-parse HEAD:file); rm objects/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-);"
            ' for one in "remote.x.promisor true" "remote.x.url $OTHER" "extensions.partialClone x"'
            ' "core.repositoryFormatVersion 1"; do git config $one; done;'
            ' git config remote.x.uploadpack "touch $PWD/../../ran;"'
        ),
        "git cannot read all of it",
    ),
    "grafts": ("git rev-parse HEAD >info/grafts", "info/grafts lets git read other data"),
}
"""Scripts for the git folder, and why it has no backup. `$OTHER` is another one."""

PROGRAMS = ("core.fsmonitor", "core.hooksPath", "uploadpack.packObjectsHook", "core.alternateRefsCommand")


async def test_a_hostile_repository_is_named_and_nothing_of_it_runs_or_reaches_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    other = repository(tmp_path / "outside")
    environment = git_environment(OTHER=f"{other}/.git")
    for name, (script, _) in HOSTILE.items():
        folder = repository(root / name) / ".git"
        subprocess.run(["sh", "-ec", script], cwd=folder, env=environment, check=True)
    at = repository(root / "programs")
    for name in PROGRAMS:
        git(at, "config", name, f"touch {root}/ran;")
    async with serving(tmp_path, Permission.DANGER_FULL_ACCESS) as server:
        said, again = [await bash(server, "echo worked") for _ in range(2)]
    assert said.startswith("worked")
    assert again == "worked\n"
    assert "programs" not in said
    assert len(backups(tmp_path, at)) == 1
    assert not (root / "ran").exists()
    with redirect_stdout(StringIO()) as printed:
        list_backups(str(tmp_path / "state"), (str(root),))
    listed = printed.getvalue()
    config = put(tmp_path / "config.toml", "[rules]\ndeny = ['Read(programs/file)']\n")
    words = ("doctor", "--json", "--root", str(root), "--config", str(config))
    doctor = json.loads(program(tmp_path, *words).stdout)
    details = " ".join(finding["detail"] for finding in doctor["findings"])
    assert f"the rule Read(programs/file) hides {at}/file" in details
    for name, (_, why) in HOSTILE.items():
        assert f"{root}/{name}/.git" in listed
        assert why in listed, (name, listed)
        assert why in details, name
        assert backups(tmp_path, root / name) == []
    assert said.count("because") == 5
    assert "and 2 more" in said


async def test_a_repository_over_the_limit_is_named_and_its_older_backup_stays(tmp_path: Path) -> None:
    at = repository(tmp_path / "root/one")
    async with serving(tmp_path, history_size=1) as server:
        await bash(server, "head -c 2000000 /dev/urandom > one/noise; git -C one add noise")
        said = await bash(server, "true", "another")
    assert "it needs more than the 0 MiB that history-size or the disk leaves" in said
    assert len(backups(tmp_path, at)) == 1
    async with serving(tmp_path, history_size=0) as server:
        assert await bash(server, "true") == "(no output)"


async def test_interpreters_and_agents_of_reading_modes_are_told_apart(tmp_path: Path) -> None:
    at = repository(tmp_path / "root/one")
    async with serving(tmp_path, git="protected") as server:
        await bash(server, "true")
    async with serving(tmp_path, Permission.READ_ONLY) as server:
        await bash(server, "true")
    assert backups(tmp_path, at) == []
    (at / ".git/info/grafts").touch()
    said: list[str] = []
    async with serving(tmp_path) as server:
        for session in "ab":
            person = Person(owner=session)
            said.append((await call(server, "REPL", person, language="shell", code="true")).text)
            (at / ".git/info/grafts").unlink(missing_ok=True)
    assert ["info/grafts" in text for text in said] == [True, False]
    assert len(backups(tmp_path, at)) == 1


def test_old_and_unfinished_backups_go_but_not_what_newer_ones_need(tmp_path: Path) -> None:
    folder = BackupFolder(user_folder(str(tmp_path), "ann"), "/x/.git")
    for base in ("", "first", "first", "", "last"):
        known = {"first": 0, "last": 3}
        with folder.writing({"HEAD": b"x"}, (), folder.backups[known[base]].id if base else ""):
            pass
    with pytest.raises(NotCopied), folder.writing({"HEAD": b"x"}, (), ""):
        raise NotCopied("no")
    killed = Path(folder.path, "killed.zip.tmp")
    killed.touch()
    os.utime(killed, (0, 0))
    old = [replace(one, time=0.0) for one in folder.backups[:4]]
    folder.backups[:4] = old
    folder.prune(time.time() - 60)
    assert [one.id for one in folder.backups] == [old[3].id, folder.backups[-1].id]
    assert [one.id for one in load(folder.path)] == [one.id for one in folder.backups]
    assert len(os.listdir(folder.path)) == 2


async def test_a_damaged_backup_or_a_hostile_folder_is_refused(tmp_path: Path) -> None:
    at = repository(tmp_path / "root/one")
    async with serving(tmp_path) as server:
        await bash(server, "true")
    (backup,) = backups(tmp_path, at)
    before = history(at)
    (at / ".git/refs/heads/away").symlink_to(tmp_path / "outside")
    with pytest.raises(SettingsError, match="is a link"):
        restored(tmp_path, backup)
    (at / ".git/refs/heads/away").unlink()
    (path,) = (one.path for one in load(stored(tmp_path, at / ".git").path))
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content[:-100] if name == PACK else content)
    refused = program(tmp_path, "history", "restore", backup)
    assert (refused.returncode, "git index-pack" in refused.stderr) == (2, True)
    damaged = bytearray(Path(path).read_bytes())
    damaged[len(damaged) // 2 :: 7] = bytes(len(damaged[len(damaged) // 2 :: 7]))
    Path(path).write_bytes(damaged)
    assert list_backups(str(tmp_path / "state"), ()) == 0
    assert history(at) == before
    with pytest.raises(SettingsError, match="no-such"):
        restored(tmp_path, "no-such")
