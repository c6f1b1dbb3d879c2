"""Backups of git histories: what commands destroy is restored, and no repository reaches out of its roots."""

import json
import os
import subprocess
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client

from mcp_toolserver.stores.git_backups import PACK, BackupFolder, NotCopied, load, user_folder
from tests.support.confinement import git
from tests.support.live import Setup, connected, connected_to, text
from tests.support.named import file_of_tokens
from tests.support.process_layer import server_command

DESTROYED = {
    "removed": "rm -rf .git",
    "collected": "git reset -q --hard HEAD~2; git reflog expire --expire=now --all; git gc -q --prune=now",
    "branch": "git branch -D other; git reflog expire --expire=now --all; git gc -q --prune=now",
    "filtered": "FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch -f --msg-filter 'echo x' -- --all;"
    " rm -rf .git/refs/original .git/logs; git gc -q --prune=now",
}


def repository(at: Path) -> Path:
    """Three commits, a branch and a tag, a commit that only the reflog has, and a staged file."""
    at.mkdir(parents=True)
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
    return at


def history(at: Path) -> list[str]:
    """What a backup has to bring back."""
    words = ("for-each-ref refs/heads refs/tags", "log -g --format=%H %gs", "ls-files --stage")
    reads = [git(at, *one.split(" ", 2 if one.startswith("log") else -1)) for one in words]
    return [*reads, git(at, "symbolic-ref", "HEAD"), git(at, "cat-file", "-p", "HEAD:file")]


def program(setup: Setup, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*server_command(), *words, "--state-dir", str(setup.home / "state")]
    return subprocess.run(command, env=setup.environment, check=False, capture_output=True, encoding="utf-8")


def restore(setup: Setup, backup: str) -> str:
    done = program(setup, "history", "restore", backup)
    assert done.returncode == 0, done.stderr
    return done.stdout


def backups(setup: Setup, at: Path) -> list[str]:
    """Ids, oldest first."""
    user = user_folder(str(setup.home / "state"), "")
    return [one.id for one in BackupFolder(user, str(at / ".git")).backups]


async def bash(client: Client, script: str) -> str:
    return text(await client.call_tool("bash", {"command": script}))


@pytest.mark.parametrize("mode", ["workspace-write", "danger-full-access"])
async def test_what_a_command_destroys_is_restored(tmp_path: Path, mode: str) -> None:
    setup = Setup.below(tmp_path, mode, "--git", "writable")
    before = {name: history(repository(setup.root / name)) for name in DESTROYED}
    async with connected(setup) as client:
        for name, script in DESTROYED.items():
            await bash(client, f"cd {name}; {script}")
    for name, expected in before.items():
        at = setup.root / name
        is_gone = not (at / ".git/HEAD").exists()
        assert is_gone or history(at) != expected
        (backup,) = backups(setup, at)
        said = restore(setup, backup)
        assert history(at) == expected, name
        assert git(at, "fsck", "--full", "--strict") == ""
        assert ("Replaced files" in said) is not is_gone, said


async def test_shallow_clones_and_submodules_are_backed_up(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write", "--git", "writable")
    outside = repository(tmp_path / "outside")
    at = repository(setup.root / "one")
    git(at, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(outside), "sub")
    git(setup.root, "clone", "-q", "--depth=1", f"file://{outside}", "shallow")
    shallow, inner = setup.root / "shallow", at / "sub"
    tips = [git(one, "rev-parse", "HEAD") for one in (shallow, inner)]
    async with connected(setup) as client:
        said = await bash(client, f"rm -rf {at}/.git/modules/sub/objects/* {shallow}/.git/objects/*")
    assert said == "(no output)"
    user = user_folder(str(setup.home / "state"), "")
    for git_dir in (shallow / ".git", at / ".git/modules/sub"):
        restore(setup, BackupFolder(user, str(git_dir)).backups[0].id)
    for one, tip in zip((shallow, inner), tips, strict=True):
        assert git(one, "rev-parse", "HEAD") == tip
        assert git(one, "fsck") == ""


async def test_each_name_of_a_token_has_backups_of_its_own(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write", "--git", "writable")
    repository(setup.root / "one")
    names = file_of_tokens(setup.home, {"ann": {}, "ben": {}, "cleo": {"permission-mode": "read-only"}})
    with names.serving(setup) as url:
        for token in names.tokens.values():
            async with connected_to(url, "http", token=token) as client:
                await bash(client, "true")
    assert sorted(os.listdir(setup.home / "state/history")) == ["ann", "ben"]


async def test_what_a_restore_replaces_is_kept(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write", "--git", "writable")
    at = repository(setup.root / "one")
    async with connected(setup) as client:
        await bash(client, "true")
    (at / "file").write_text("later\n", encoding="utf-8")
    git(at, "commit", "-qam", "later")
    later, index = git(at, "rev-parse", "HEAD").strip(), (at / ".git/index").read_bytes()
    said = restore(setup, backups(setup, at)[0])
    kept = next(at.glob(".git/before-restore-*"))
    assert str(kept) in said
    assert (kept / "index").read_bytes() == index
    git(at, "reflog", "expire", "--expire=now", "--all")
    git(at, "gc", "-q", "--prune=now")
    assert git(at, "rev-parse", f"refs/{kept.name}/heads/main").strip() == later


async def test_each_session_adds_what_is_new_and_commands_do_not_see_it(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write", "--git", "writable")
    at, state = repository(setup.root / "one"), setup.home / "state"
    (at / "noise").write_bytes(os.urandom(1 << 20))
    git(at, "add", "noise")
    git(at, "commit", "-qm", "noise")
    for number in range(3):
        async with connected(setup) as client:
            seen = await bash(
                client, f"find {state} -name '*.zip'; touch {state}/history/x; echo {number} > one/n"
            )
            await bash(client, "git -C one -c user.name=a -c user.email=a commit -qm more --allow-empty")
        assert ".zip" not in seen
    assert not (state / "history/x").exists()
    first, *others = load(BackupFolder(user_folder(str(state), ""), str(at / ".git")).path)
    assert [other.base for other in others] == [first.id] * 2
    assert [os.path.getsize(one.path) >> 14 for one in (first, *others)] == [64, 0, 0]
    assert git(at, "rev-parse", "HEAD~1").strip() in others[-1].tips
    subprocess.run(["rm", "-rf", str(at / ".git")], check=True)
    restore(setup, others[-1].id)
    assert git(at, "fsck", "--full") == ""
    assert git(at, "log", "--format=%s").split("\n")[:3] == ["more", "more", "noise"]


def borrowed(at: Path, other: Path) -> None:
    (at / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n", encoding="utf-8")


def linked(name: str) -> Callable[[Path, Path], None]:
    def plant(at: Path, other: Path) -> None:
        subprocess.run(["rm", "-rf", str(at / ".git" / name)], check=True)
        (at / ".git" / name).symlink_to(other / ".git" / name)

    return plant


def piped(name: str) -> Callable[[Path, Path], None]:
    def plant(at: Path, _: Path) -> None:
        (at / ".git" / name).unlink(missing_ok=True)
        os.mkfifo(at / ".git" / name)

    return plant


def promised(at: Path, other: Path) -> None:
    """An object is missing that git would get by starting a program."""
    for name, value in (("promisor", "true"), ("url", str(other)), ("uploadpack", f"touch {at.parent}/ran;")):
        git(at, "config", f"remote.x.{name}", value)
    git(at, "config", "extensions.partialClone", "x")
    git(at, "config", "core.repositoryFormatVersion", "1")
    blob = git(at, "rev-parse", "HEAD:file").strip()
    (at / ".git/objects" / blob[:2] / blob[2:]).unlink()


def grafted(at: Path, _: Path) -> None:
    (at / ".git/info/grafts").write_text(git(at, "rev-parse", "HEAD"), encoding="utf-8")


HOSTILE: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "alternates": (borrowed, "objects/info/alternates lets git read other data"),
    "objects": (linked("objects"), "objects is a link"),
    "refs": (linked("refs/heads/main"), "refs/heads/main is a link"),
    "fifo": (piped("refs/heads/pipe"), "refs/heads/pipe is a link or a special file"),
    "index": (piped("index"), "index is a link or a special file"),
    "promisor": (promised, "git cannot read all of it"),
    "grafts": (grafted, "info/grafts lets git read other data"),
}


async def test_a_hostile_repository_is_named_and_nothing_of_it_runs_or_reaches_out(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "danger-full-access")
    other = repository(tmp_path / "outside")
    for name, (plant, _) in HOSTILE.items():
        plant(repository(setup.root / name), other)
    at = repository(setup.root / "programs")
    for name in (
        "core.fsmonitor",
        "core.hooksPath",
        "uploadpack.packObjectsHook",
        "core.alternateRefsCommand",
    ):
        git(at, "config", name, f"touch {setup.root}/ran;")
    async with connected(setup) as client:
        said, again = [await bash(client, "echo worked") for _ in range(2)]
    assert said.startswith("worked")
    assert again == "worked\n"
    assert "programs" not in said
    assert len(backups(setup, at)) == 1
    assert not (setup.root / "ran").exists()
    listed = program(setup, "history", "list", "--root", str(setup.root)).stdout
    doctor = json.loads(program(setup, "doctor", "--json", "--root", str(setup.root)).stdout)
    details = " ".join(finding["detail"] for finding in doctor["findings"])
    for name, (_, why) in HOSTILE.items():
        assert f"{setup.root}/{name}/.git" in listed
        assert why in listed, (name, listed)
        assert why in details, name
        assert backups(setup, setup.root / name) == []
    assert said.count("because") == 5
    assert "and 2 more" in said


async def test_a_repository_over_the_limit_is_named_and_its_older_backup_stays(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write", "--git", "writable", "--config", f"{tmp_path}/c.toml")
    (tmp_path / "c.toml").write_text("history-size = 1\n", encoding="utf-8")
    at, said = repository(setup.root / "one"), ""
    for _ in range(2):
        async with connected(setup) as client:
            said = await bash(client, "head -c 2000000 /dev/urandom > one/noise; git -C one add noise")
    assert "it needs more than the 0 MiB that history-size or the disk leaves" in said
    assert len(backups(setup, at)) == 1
    (tmp_path / "c.toml").write_text("history-size = 0\n", encoding="utf-8")
    async with connected(setup) as client:
        assert await bash(client, "true") == "(no output)"


async def test_interpreters_and_agents_of_reading_modes_are_told_apart(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write", "--git", "writable")
    at = repository(setup.root / "one")
    for flags in (("--git", "protected"), ("--permission-mode", "read-only")):
        async with connected(replace(setup, flags=flags)) as client:
            await bash(client, "true")
        assert backups(setup, at) == []
    (at / ".git/info/grafts").touch()
    async with connected(setup) as client:
        done = await client.call_tool("REPL", {"language": "python", "code": "print(1)"})
    assert "info/grafts" in text(done)
    (at / ".git/info/grafts").unlink()
    async with connected(setup) as client:
        await client.call_tool("REPL", {"language": "python", "code": "print(1)"})
    assert len(backups(setup, at)) == 1


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
    setup = Setup.below(tmp_path, "workspace-write", "--git", "writable")
    at = repository(setup.root / "one")
    async with connected(setup) as client:
        await bash(client, "true")
    (backup,) = backups(setup, at)
    before = history(at)
    (at / ".git/refs/heads/away").symlink_to(tmp_path / "outside")
    refused = program(setup, "history", "restore", backup)
    assert (refused.returncode, "is a link" in refused.stderr) == (2, True)
    (at / ".git/refs/heads/away").unlink()
    (path,) = (
        one.path
        for one in load(BackupFolder(user_folder(str(setup.home / "state"), ""), str(at / ".git")).path)
    )
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content[:-100] if name == PACK else content)
    refused = program(setup, "history", "restore", backup)
    assert (refused.returncode, "git index-pack" in refused.stderr) == (2, True)
    damaged = bytearray(Path(path).read_bytes())
    damaged[len(damaged) // 2 :: 7] = bytes(len(damaged[len(damaged) // 2 :: 7]))
    Path(path).write_bytes(damaged)
    assert program(setup, "history", "list").returncode == 0
    assert history(at) == before
    assert program(setup, "history", "restore", "no-such").returncode == 2
