"""Several files change together: all of them, or none and then nothing is left behind."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from mcp_toolserver.capabilities.files import CanonicalPath, Contents, FileChange
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, ToolError
from mcp_toolserver.runtime.files import transaction
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
from tests.support.calling import held, make


def change(path: str, content: bytes | None, like: str | None = None, **more: bool) -> FileChange:
    return FileChange(
        path=CanonicalPath(path), content=content, like=None if like is None else CanonicalPath(like), **more
    )


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    return make(tmp_path / "ws", {"a": b"1", "b": b"2", "sub/c": b"3"})


@pytest.fixture
def files(ws: Path) -> ConfinedFiles:
    return ConfinedFiles(Workspace([str(ws)]), may_write=True)


async def update(
    files: ConfinedFiles, *changes: FileChange, meanwhile: Callable[[], object] = lambda: None
) -> None:
    def decided(_: Contents) -> Sequence[FileChange]:
        meanwhile()
        return changes

    paths = dict.fromkeys(path for one in changes for path in (one.path, one.like) if path)
    with anyio.fail_after(10):
        await files.update_all(tuple(paths), decided)


def snapshot(ws: Path) -> dict[str, tuple[int, int, bytes]]:
    """Each file with its inode, mode and content: one that was restored is the very same file."""
    return {
        name: ((ws / name).stat().st_ino, (ws / name).stat().st_mode, content)
        for name, content in held(ws).items()
    }


def folders(ws: Path) -> set[str]:
    return {str(path.relative_to(ws)) for path in ws.rglob("*") if path.is_dir()}


@contextmanager
def unchanged(ws: Path) -> Iterator[None]:
    """Nothing is different afterwards, but for the file `late` of somebody else."""
    before, tree = snapshot(ws), folders(ws)
    yield
    (ws / "late").unlink(missing_ok=True)
    assert snapshot(ws) == before
    assert folders(ws) == tree


ALL = (change("a", b"one"), change("b", None), change("new/deep/d", b"four"), change("sub/c", b"three"))
LATER = {"a": b"one", "new/deep/d": b"four", "sub/c": b"three"}


async def test_a_file_keeps_its_mode_or_gets_that_of_another(ws: Path, files: ConfinedFiles) -> None:
    (ws / "a").chmod(0o640)
    (ws / "b").chmod(0o750)
    os.setxattr(ws / "b", "user.test", b"kept")
    await update(files, change("a", b"one"), change("b", None), change("moved", b"2", like="b"))
    # No second name of the old file stays.
    assert (ws / "a").stat().st_nlink == 1
    assert stat.S_IMODE((ws / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((ws / "moved").stat().st_mode) == 0o750
    assert os.getxattr(ws / "moved", "user.test") == b"kept"


async def test_who_may_read_may_run_if_that_is_asked(ws: Path, files: ConfinedFiles) -> None:
    for before, executable, after in ((0o640, True, 0o750), (0o755, False, 0o644), (0o755, None, 0o755)):
        (ws / "a").chmod(before)
        content = f"{before} {executable}".encode()
        await update(files, FileChange(path=CanonicalPath("a"), content=content, executable=executable))
        assert stat.S_IMODE((ws / "a").stat().st_mode) == after
    await update(files, change("run", b"#!/bin/sh\n", executable=True))
    assert os.access(ws / "run", os.X_OK)


async def test_without_hard_links_it_works_too(
    ws: Path, files: ConfinedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(transaction, "_link", no_links)
    taken = interfering("late", lambda: (ws / "late").write_bytes(b"theirs"))
    with unchanged(ws), taken, pytest.raises(Conflict):
        await update(files, *ALL, change("late", b"mine"))
    await update(files, *ALL)
    assert held(ws) == LATER


async def test_changes_of_the_same_files_wait_for_each_other(ws: Path, files: ConfinedFiles) -> None:
    def add(contents: Contents) -> Sequence[FileChange]:
        return [change(path, (content or b"") + b"+") for path, content in contents.items()]

    paths = [CanonicalPath("a"), CanonicalPath("b")]
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(files.update_all, paths if number % 2 else paths[::-1], add)
                tasks.start_soon(files.update, paths[0], lambda old: old + b"-")
    assert (ws / "b").read_bytes() == b"2" + b"+" * 20
    assert sorted((ws / "a").read_bytes()) == sorted(b"1" + b"+-" * 20)


@contextmanager
def interfering(moment: str, act: Callable[[], object]) -> Iterator[None]:
    """Do something just before the step for the path `moment` is put in place."""
    original = transaction._Prepared.commit

    def commit(self: "transaction._Prepared", *, alone: bool) -> None:
        if self.change.path == moment:
            act()
        original(self, alone=alone)

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(transaction._Prepared, "commit", commit)
        yield


async def test_when_the_last_fails_all_others_are_as_before_also_by_a_bug(
    ws: Path, files: ConfinedFiles
) -> None:
    failure = pytest.raises(Conflict, match=r"'late' .* No file was changed\.")
    taken = interfering("late", lambda: (ws / "late").write_bytes(b"theirs"))
    with unchanged(ws), taken, failure:
        await update(files, *ALL, change("late", b"mine"))
    with unchanged(ws), interfering("sub/c", lambda: 1 // 0), pytest.raises(ZeroDivisionError):
        await update(files, *ALL)


BLOCKED: dict[str, tuple[Callable[[Path], object], FileChange, type[ToolError]]] = {
    "read-only": (lambda ws: (ws / "sub/c").chmod(0o444), change("sub/c", b"x"), Denied),
    "read-only-to-delete": (lambda ws: (ws / "sub/c").chmod(0o444), change("sub/c", None), Denied),
    "too-large": (lambda _: None, change("big", b"x" * (10 * 1024 * 1024 + 1)), InvalidInput),
    "below-a-new-file": (lambda _: None, change("new/deep/d/e", b"x"), Conflict),
}


@pytest.mark.parametrize(
    ("prepare", "last", "kind"), [pytest.param(*case, id=name) for name, case in BLOCKED.items()]
)
async def test_what_cannot_be_done_leaves_nothing_done(
    ws: Path, files: ConfinedFiles, prepare: Callable[[Path], object], last: FileChange, kind: type[ToolError]
) -> None:
    prepare(ws)
    others = [one for one in ALL if one.path != last.path]
    with unchanged(ws), pytest.raises(kind):
        await update(files, *others, last)


@pytest.mark.parametrize("path", ["a", "b"])
async def test_a_file_that_somebody_changed_meanwhile_or_at_the_last_moment_is_theirs(
    ws: Path, files: ConfinedFiles, path: str
) -> None:
    def change_it(content: bytes) -> Callable[[], object]:
        return lambda: (ws / path).write_bytes(content)

    with pytest.raises(Conflict, match="meanwhile"):
        await update(files, *ALL, meanwhile=change_it(b"theirs!"))
    assert held(ws) == {"a": b"1", "b": b"2", "sub/c": b"3"} | {path: b"theirs!"}
    with interfering(path, change_it(b"theirs again")), pytest.raises(Conflict):
        await update(files, change("sub/c", b"x"), *(one for one in ALL if one.path == path))
    assert held(ws) == {"a": b"1", "b": b"2", "sub/c": b"3"} | {path: b"theirs again"}


async def test_a_file_that_is_changed_while_it_gets_its_second_name_is_theirs(
    ws: Path, files: ConfinedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = transaction._link

    def link(folder: int, name: str, other: str) -> None:
        original(folder, name, other)
        (ws / "a").write_bytes(b"theirs!")

    monkeypatch.setattr(transaction, "_link", link)
    with pytest.raises(Conflict, match="No file was changed"):
        await update(files, change("a", b"mine"))
    assert held(ws) == {"a": b"theirs!", "b": b"2", "sub/c": b"3"}


async def test_what_cannot_be_taken_back_is_reported_with_where_the_old_content_is(
    ws: Path, files: ConfinedFiles
) -> None:
    def meddle() -> None:
        (ws / "sub/c").unlink()
        (ws / "sub/c").write_bytes(b"theirs")
        (ws / "late").write_bytes(b"theirs")

    with interfering("late", meddle), pytest.raises(Conflict) as failed:
        await update(files, change("sub/c", b"three"), change("a", None), change("late", b"mine"))
    text = str(failed.value)
    assert "'late' was changed by somebody" in text
    assert "'sub/c' could not be restored" in text
    assert "No file was changed" not in text
    [kept] = [path for path in (ws / "sub").iterdir() if path.name.endswith(".old")]
    assert f"sub/{kept.name}" in text
    assert kept.read_bytes() == b"3"
    assert (ws / "a").read_bytes() == b"1"
    assert (ws / "sub/c").read_bytes() == b"theirs"


@pytest.mark.parametrize("path", ["a", "new"])
async def test_a_restored_name_that_is_taken_is_reported(ws: Path, files: ConfinedFiles, path: str) -> None:
    first = change("a", None) if path == "a" else change("new", b"mine")

    def meddle() -> None:
        (ws / path).unlink(missing_ok=True)
        (ws / path).write_bytes(b"theirs")
        (ws / "late").write_bytes(b"theirs")

    with interfering("late", meddle), pytest.raises(Conflict, match=f"'{path}' could not be restored"):
        await update(files, first, change("late", b"mine"))
    assert (ws / path).read_bytes() == b"theirs"


async def test_files_that_are_too_large_together_are_refused(ws: Path, files: ConfinedFiles) -> None:
    for number in range(7):
        with open(ws / f"{number}", "wb") as file:
            file.truncate(10 * 1024 * 1024)
    paths = [CanonicalPath(f"{number}") for number in range(7)]
    with pytest.raises(InvalidInput, match="together"):
        await files.update_all(paths, lambda _: ())
    await files.update_all(paths[:6], lambda _: ())


async def test_a_folder_that_is_swapped_while_one_is_made_in_it_is_a_conflict(
    ws: Path, files: ConfinedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Workspace.write_target

    def write_target(self: Workspace, path: CanonicalPath) -> object:
        found = original(self, path)
        (ws / "sub").rename(ws / "other")
        (ws / "sub").symlink_to("other")
        return found

    monkeypatch.setattr(Workspace, "write_target", write_target)
    with pytest.raises(Conflict):
        await files.make_folder(CanonicalPath("sub/new"))
    assert not (ws / "other/new").exists()
