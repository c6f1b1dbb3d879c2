"""The workspace: canonical paths, narrower views, and writes that happen whole or not at all."""

import errno
import hashlib
import os
import resource
import stat
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import pytest

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import (
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    SettingsError,
    ToolError,
    Unavailable,
)
from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.descriptor_path import descriptor_path
from mcp_toolserver.runtime.files import path_resolver, transaction
from mcp_toolserver.runtime.files.libc import link_new, rename_new
from mcp_toolserver.runtime.files.os_errors import translate
from mcp_toolserver.runtime.files.path_resolver import (
    HOLD,
    Escape,
    Openat2,
    PathMoved,
    Walk,
)
from mcp_toolserver.runtime.files.transaction import temp_file
from mcp_toolserver.runtime.files.workspace import PathLocks, Workspace
from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
from tests.support.extent import rounds
from tests.support.snapshot import descriptors

ENGINES: dict[str, Callable[[], Walk]] = {
    "openat2": Openat2,
    "walk": lambda: Walk(proc=True),
    "walk-without-proc": lambda: Walk(proc=False),
}


@pytest.fixture(params=ENGINES)
def resolver(request: pytest.FixtureRequest) -> Walk:
    return ENGINES[request.param]()


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    (tmp_path / "ws/src").mkdir(parents=True)
    (tmp_path / "ws/f").write_bytes(b"old")
    (tmp_path / "ws/src/main.py").write_bytes(b"print()\n")
    return tmp_path / "ws"


@pytest.fixture
def workspace(ws: Path, resolver: Walk) -> Workspace:
    """The same by each engine."""
    return Workspace([str(ws)], resolver=resolver)


@pytest.fixture
def top(ws: Path) -> Iterator[int]:
    """The folder, open. A test closes all that it opens below."""
    opened = os.open(ws, HOLD)
    before = descriptors()
    yield opened
    assert descriptors() <= before
    os.close(opened)


@pytest.fixture
def files(ws: Path) -> ConfinedFiles:
    return ConfinedFiles(Workspace([str(ws)]), may_write=True)


def at(path: str) -> CanonicalPath:
    return CanonicalPath(path)


def whole(file: BinaryIO, _: int) -> bytes:
    return file.read()


def refused(kind: type[Exception], call: Callable[[Any], object], *given: object) -> None:
    for one in given:
        with pytest.raises(kind):
            call(one)


async def refuses(kind: type[Exception], *calls: Awaitable[object]) -> None:
    for call in calls:
        with pytest.raises(kind):
            await call


def no_left_overs(folder: Path) -> bool:
    return not [path for path in folder.rglob("*") if ".mcp-toolserver-" in path.name]


RESOLVED: dict[str, str | int] = {
    "f": "f",
    "src": "src",
    "f/": errno.ENOTDIR,
    "src/../f": "f",
    "src/..": ".",
    ".": ".",
    "new": errno.ENOENT,
    "": errno.ENOENT,
    "link": "f",
    "folder/main.py": "src/main.py",
    "folder/": "src",
    "dangling": errno.ENOENT,
    "f/..": errno.ENOTDIR,
    "circle": errno.ELOOP,
}


def test_every_engine_resolves_alike(ws: Path, resolver: Walk, top: int) -> None:
    (ws / "link").symlink_to("src/../f")
    (ws / "folder").symlink_to("src/.")
    (ws / "dangling").symlink_to("src/new")
    (ws / "circle").symlink_to("circle")
    found: dict[str, str | int | None] = {}
    for path in RESOLVED:
        try:
            one = resolver.resolve(top, path)
        except OSError as error:
            found[path] = error.errno
        else:
            found[path] = one.relative
            assert not os.get_inheritable(one.fd)
            os.close(one.fd)
    assert found == RESOLVED


def test_every_engine_refuses_to_leave(ws: Path, resolver: Walk, top: int) -> None:
    (ws / "out").symlink_to("..")
    (ws / "src/out").symlink_to("../../ws")
    (ws / "absolute").symlink_to(str(ws / "f"))
    for path in ("..", "src/../..", "out", "absolute", "src/out", "/", "/etc"):
        with pytest.raises(Escape) as refusal:
            resolver.resolve(top, path)
        assert refusal.value.link == ("absolute" if path == "absolute" else "")
        os.close(resolver.resolve(top, "f").fd)


def test_every_engine_knows_the_own_name_of_an_object(ws: Path, resolver: Walk, top: int) -> None:
    (ws / "link").symlink_to("f")
    (ws / "folder").symlink_to("src")
    (ws / "out").symlink_to("..")
    (ws / "absolute").symlink_to(str(ws / "f"))
    for path in (
        *("link", "folder/main.py", "folder/..", "out", "absolute"),
        *("./f", "src/../f", "src//main.py", "src/", "/f"),
    ):
        with pytest.raises(PathMoved):
            resolver.open_exact(top, path)
    with pytest.raises(FileNotFoundError):
        resolver.open_exact(top, "gone")
    for own in (".", "f", "src", "src/main.py"):
        os.close(resolver.open_exact(top, own))


@pytest.mark.usefixtures("workspace", "top")
def test_opening_below_a_folder_leaves_no_descriptor_behind(ws: Path, workspace: Workspace) -> None:
    (ws / "out").symlink_to("..")
    (ws / "link").symlink_to("src")
    for path in ("f", "link/main.py", "link/new/x", "out/x", "f/x", "gone/../x"):
        with suppress(ToolError):
            os.close(workspace.open_file(workspace.canonical(path)))


def test_a_name_that_looks_like_that_of_a_deleted_file_is_a_name(ws: Path, workspace: Workspace) -> None:
    (ws / "f (deleted)").write_bytes(b"")
    assert workspace.canonical("f (deleted)") == "f (deleted)"
    os.close(workspace.open_file(at("f (deleted)")))


def test_what_is_deleted_or_moved_out_once_it_is_open_is_not_found_inside(ws: Path) -> None:
    top, gone, moved = os.open(ws, HOLD), os.open(ws / "f", os.O_RDONLY), os.open(ws / "src", HOLD)
    (ws / "f").unlink()
    (ws / "src").rename(ws.parent / "src")
    with pytest.raises(FileNotFoundError):
        path_resolver._relative(top, gone)
    with pytest.raises(Escape):
        path_resolver._relative(top, moved)
    for fd in (top, gone, moved):
        os.close(fd)


def test_a_walk_refuses_trees_deeper_than_it_may_hold_open(ws: Path) -> None:
    deep = "/".join("d" * 300)
    os.makedirs(ws / deep)
    workspace = Workspace([str(ws)], resolver=Walk())
    refused(InvalidInput, workspace.canonical, deep)
    (ws / "link").symlink_to(deep)
    refused(InvalidInput, workspace.canonical, "link")
    assert workspace.canonical("d/d/d") == "d/d/d"


def test_paths_are_relative_to_the_first_root_and_absolute_in_others(tmp_path: Path, resolver: Walk) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(name.encode())
    workspace = Workspace([str(tmp_path / "one"), str(tmp_path / "two")], resolver=resolver)
    assert workspace.canonical(f"{tmp_path}/one/f") == "f"
    assert workspace.canonical(f"{tmp_path}/two//f") == f"{tmp_path}/two/f"
    assert workspace.canonical(f"{tmp_path}/two") == f"{tmp_path}/two"
    assert workspace.canonical(f"{tmp_path}/one/") == "."
    assert workspace.spellings(at("f")) == ("f", f"{tmp_path}/one/f")
    assert workspace.spellings(at(f"{tmp_path}/two/f")) == ("f", f"{tmp_path}/two/f")
    with pytest.raises(Denied) as refusal:
        workspace.canonical("/etc/passwd")
    assert f"{tmp_path}/two" in str(refusal.value)


async def test_a_root_that_is_the_whole_disk_works(ws: Path) -> None:
    workspace = Workspace(["/"])
    path = workspace.canonical(str(ws / "f"))
    assert path == str(ws / "f").lstrip("/")
    assert workspace.spellings(path) == (path, str(ws / "f"))
    assert await ConfinedFiles(workspace, may_write=False).read(path, whole) == b"old"
    assert workspace.canonical("/") == "."
    await refuses(
        NotFound, ConfinedFiles(workspace, may_write=False).read(workspace.canonical("/no-such-file"), whole)
    )


def test_a_root_that_is_renamed_stays_the_root(ws: Path, tmp_path: Path, workspace: Workspace) -> None:
    ws.rename(tmp_path / "moved")
    assert workspace.canonical("src/main.py") == "src/main.py"
    os.close(workspace.open_file(at("src/main.py")))


def test_roots_that_cannot_be_are_refused_at_the_start(ws: Path) -> None:
    (ws.parent / "alias").symlink_to("ws")
    for roots in (("ws", "ws/src"), ("ws/src", "ws"), ("ws", "ws"), ("ws/f",), ("gone",), ("ws", "alias")):
        refused(SettingsError, Workspace, [str(ws.parent / root) for root in roots])


def test_what_a_link_leads_to_must_have_a_name_that_can_be_sent(ws: Path, workspace: Workspace) -> None:
    os.mkdir(os.fsencode(ws) + b"/caf\xe9")
    os.symlink(b"caf\xe9", os.fsencode(ws) + b"/link")
    (ws / "line\nfeed").mkdir()
    (ws / "other").symlink_to("line\nfeed")
    refused(InvalidInput, workspace.canonical, "link", "link/new", "other")


def test_a_path_that_became_a_link_after_the_decision_is_refused(ws: Path, workspace: Workspace) -> None:
    path = workspace.canonical("src/main.py")
    (ws / "src").rename(ws / "other")
    (ws / "src").symlink_to("other")
    refused(Conflict, workspace.open_file, path)
    os.close(workspace.open_file(workspace.canonical("src/main.py")))


async def test_what_a_rule_hides_is_neither_read_nor_written(ws: Path, resolver: Walk) -> None:
    (ws / "secret").mkdir()
    (ws / "secret/key").write_bytes(b"key")
    (ws / "link").symlink_to("secret")
    workspace = Workspace(
        [str(ws)], resolver=resolver, hides=lambda names: any(name.startswith("secret/") for name in names)
    )
    files = ConfinedFiles(workspace, may_write=True)
    for spelling in ("secret/key", "link/key", "src/../secret/key", f"{ws}/secret/key"):
        path = workspace.canonical(spelling)
        await refuses(
            Denied, files.read(path, whole), files.write(path, b"new"), files.update(path, lambda old: old)
        )
        refused(Denied, workspace.open_file, path)
    await refuses(Denied, files.write(workspace.canonical("secret/new"), b""))
    assert (ws / "secret/key").read_bytes() == b"key"
    assert os.listdir(ws / "secret") == ["key"]
    assert await files.read(at("f"), whole) == b"old"


async def test_a_missing_file_is_answered_with_similar_names_that_no_rule_hides(ws: Path) -> None:
    (ws / "src/maim.py").write_bytes(b"")
    files = ConfinedFiles(Workspace([str(ws)], hides=lambda names: "src/maim.py" in names), may_write=True)
    for call in (files.read(at("src/mian.py"), whole), files.update(at("src/mian.py"), lambda old: old)):
        with pytest.raises(NotFound) as missing:
            await call
        assert "src/main.py" in str(missing.value)
        assert "src/maim.py" not in str(missing.value)
        assert str(ws) in str(missing.value)
    await refuses(NotFound, files.read(at("gone/mian.py"), whole))


async def test_the_servers_own_folder_is_read_but_never_written(ws: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    everybodys = Workspace([str(ws)])
    for without in (everybodys, replace(everybodys, readable=(str(own),))):
        refused(Denied, without.canonical, f"{own}/x.txt")
    own.mkdir()
    (own / "x.txt").write_bytes(b"long")
    workspace = replace(Workspace([str(ws)]), readable=(str(own),))
    path = workspace.canonical(f"{own}/x.txt")
    assert path == f"{own}/x.txt"
    assert workspace.spellings(path) == (path,)
    files = ConfinedFiles(workspace, may_write=True)
    assert await files.read(path, whole) == b"long"
    await refuses(Denied, files.write(path, b""), files.update(path, lambda _: b""))
    refused(Denied, workspace.canonical, f"{own}/../secret")
    assert workspace.canonical("f") == "f"
    inside = replace(Workspace([str(tmp_path)]), readable=(str(own),))
    for spelling in ("own/x.txt", f"{tmp_path}/own/x.txt", "own/new"):
        await refuses(Denied, ConfinedFiles(inside, may_write=True).write(inside.canonical(spelling), b""))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("one/a", "one/b", "two/c", "other"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "f").write_bytes(name.encode())
    return tmp_path


async def test_a_view_starts_in_the_part_that_the_client_works_in(tree: Path, resolver: Walk) -> None:
    view = Workspace([str(tree / "one"), str(tree / "two")], resolver=resolver).restricted_to(
        [str(tree / "one/a")]
    )
    assert view.canonical("f") == "f"
    assert await ConfinedFiles(view, may_write=False).read(at("f"), whole) == b"one/a"
    assert view.spellings(at("f")) == ("a/f", f"{tree}/one/a/f")
    refused(Denied, view.canonical, "../b/f", f"{tree}/one/b/f", f"{tree}/two/c/f", f"{tree}/other/f")


def test_a_view_never_holds_more_than_the_workspace(tree: Path) -> None:
    workspace = Workspace([str(tree / "one"), str(tree / "two")])
    assert workspace.restricted_to([str(tree)]).roots == workspace.roots
    assert workspace.restricted_to(["/"]).roots == workspace.roots
    assert workspace.restricted_to([str(tree / "two/c"), str(tree / "one")]).roots == (
        f"{tree}/two/c",
        f"{tree}/one",
    )
    view = workspace.restricted_to([str(tree / "one/a")])
    assert view.restricted_to([str(tree / "one")]).roots == view.roots
    assert view.restricted_to([str(tree / "one")]).spellings(at("f")) == ("a/f", f"{tree}/one/a/f")


def test_a_view_without_a_part_of_the_workspace_denies_everything(tree: Path) -> None:
    (tree / "one/out").symlink_to("../other")
    workspace = replace(Workspace([str(tree / "one")]), readable=(str(tree / "two"),))
    for scope in ([], *([str(tree / name)] for name in ("other", "gone", "one/a/f", "one/out"))):
        view = workspace.restricted_to(scope)
        refused(
            Denied, view.canonical, "f", ".", "a/f", f"{tree}/one/a/f", f"{tree}/other/f", f"{tree}/two/c/f"
        )
    assert workspace.canonical("a/f") == "a/f"


def test_what_a_view_found_out_about_a_path_binds_no_other_view(tree: Path) -> None:
    workspace = Workspace([str(tree / "one")], private=str(tree / "one/b"))
    mine = replace(workspace, readable=(str(tree / "one/b"),))
    path = mine.canonical(str(tree / "one/b/f"))
    assert mine.kind(path) == "file"
    refused(Denied, workspace.kind, path)
    with pytest.raises(Denied):
        workspace.restricted_to([str(tree / "one/a")]).kind(path)


def test_open_folders_of_clients_are_kept_and_forgotten(tree: Path) -> None:
    workspace = Workspace([str(tree / "one")])
    first = workspace.restricted_to([str(tree / "one/a")]).held
    assert workspace.restricted_to([str(tree / "one/a")]).held == first
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        (tree / f"one/n{number}").mkdir()
        workspace.restricted_to([str(tree / f"one/n{number}")])
    assert workspace.restricted_to([str(tree / "one/a")]).held != first
    assert len(os.listdir("/proc/self/fd")) <= before + 64


@pytest.mark.rounds
def test_several_threads_make_views_for_many_clients_at_once(tree: Path) -> None:
    workspace, count = Workspace([str(tree)]), rounds(150, 1_000)
    for number in range(200):
        (tree / f"n{number}").mkdir()

    def read(name: int) -> int:
        return len([workspace.restricted_to([f"{tree}/n{(name + number) % 200}"]) for number in range(count)])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert [*threads.map(read, range(8))] == [count] * 8
    finally:
        sys.setswitchinterval(interval)


def test_a_view_has_the_folders_that_are_there_by_now(tree: Path) -> None:
    workspace = Workspace([str(tree / "one")])
    scope = [str(tree / "one/a"), str(tree / "one/new"), str(tree / "link")]
    assert workspace.restricted_to(scope).roots == (f"{tree}/one/a",)
    (tree / "one/new").mkdir()
    assert workspace.restricted_to(scope).roots == (f"{tree}/one/a", f"{tree}/one/new")
    (tree / "link").symlink_to("one/b")
    assert workspace.restricted_to(scope).roots == (f"{tree}/one/a", f"{tree}/one/new", f"{tree}/one/b")


def test_one_file_has_one_spelling_in_a_view_of_nested_folders_or_of_one_named_through_a_link(
    tree: Path,
) -> None:
    workspace = Workspace([str(tree / "one")])
    inner_first = workspace.restricted_to([str(tree / "one/a"), str(tree / "one")])
    (tree / "one/link").symlink_to("a/f")
    assert {inner_first.canonical(path) for path in ("f", f"{tree}/one/a/f", f"{tree}/one/link")} == {"f"}
    assert inner_first.canonical(f"{tree}/one/b/f") == f"{tree}/one/b/f"
    (tree / "alias").symlink_to("one/a")
    view = workspace.restricted_to([str(tree / "alias")])
    assert (view.roots, view.canonical(f"{tree}/alias/f")) == ((f"{tree}/one/a",), "f")


async def test_a_view_shares_the_turns_of_its_workspace(tree: Path) -> None:
    workspace = Workspace([str(tree / "one")])
    both, view = (
        ConfinedFiles(one, may_write=True) for one in (workspace, workspace.restricted_to([f"{tree}/one/a"]))
    )
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(both.update, at("a/f"), lambda old: old + b"1")
                tasks.start_soon(view.update, at("f"), lambda old: old + b"2")
    assert sorted((tree / "one/a/f").read_bytes()) == sorted(b"one/a" + b"12" * 20)


async def test_turns_are_forgotten_when_nobody_waits() -> None:
    locks = PathLocks()
    async with locks.hold("a"):
        assert len(locks._locks) == 1
    with pytest.raises(RuntimeError):
        async with locks.hold("b"):
            raise RuntimeError
    with anyio.move_on_after(0):
        async with locks.hold("c"):
            await anyio.sleep_forever()
    assert len(locks._locks) == 0


async def test_a_new_file_gets_its_parents_and_the_usual_mode(ws: Path, files: ConfinedFiles) -> None:
    written = await files.write(at("new/deeper/f"), b"content")
    assert written.created
    assert (written.before, written.after, written.links) == (b"", b"content", 0)
    assert written.sha256 == hashlib.sha256(b"content").hexdigest()
    assert (ws / "new/deeper/f").read_bytes() == b"content"
    (ws / "plain").write_bytes(b"")
    assert (ws / "new/deeper/f").stat().st_mode == (ws / "plain").stat().st_mode
    assert no_left_overs(ws)


async def test_a_replaced_file_keeps_mode_owner_and_attributes(ws: Path, files: ConfinedFiles) -> None:
    os.chmod(ws / "f", 0o754)
    os.setxattr(ws / "f", "user.note", b"kept")
    before = (ws / "f").stat()
    written = await files.write(at("f"), b"new")
    after = (ws / "f").stat()
    assert (written.created, written.before, written.links) == (False, b"old", 1)
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert os.getxattr(ws / "f", "user.note") == b"kept"
    assert no_left_overs(ws)
    # A changed program does not keep the right to run as its owner.
    os.chmod(ws / "f", 0o6755)
    await files.write(at("f"), b"newer")
    before = (ws / "f").stat()
    assert stat.S_IMODE(before.st_mode) == 0o755
    # The same content is not written again.
    written = await files.write(at("f"), b"newer")
    assert (written.created, written.before, written.after) == (False, b"newer", b"newer")
    assert await files.update(at("f"), lambda old: old) == written
    after = (ws / "f").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


async def test_an_expected_hash_lets_only_the_known_content_be_replaced(
    ws: Path, files: ConfinedFiles
) -> None:
    known = hashlib.sha256(b"old").hexdigest()
    await refuses(
        Conflict,
        files.write(at("f"), b"new", expected_sha256="0" * 64),
        files.update(at("f"), lambda _: b"new", expected_sha256="0" * 64),
        files.write(at("gone/f"), b"new", expected_sha256=known),
    )
    await refuses(NotFound, files.update(at("gone"), lambda old: old))
    assert not (ws / "gone").exists()
    assert (ws / "f").read_bytes() == b"old"
    await files.write(at("f"), b"new", expected_sha256=known.upper())
    assert (ws / "f").read_bytes() == b"new"


MEANWHILE: dict[str, Callable[[Path], object]] = {
    "changed": lambda path: path.write_bytes(b"somebody else"),
    "removed": lambda path: path.unlink(),
    "moved": lambda path: path.replace(path.parent / "moved"),
    "became a link": lambda path: (path.unlink(), path.symlink_to("src/main.py")),
    "became a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_a_file_that_somebody_else_touches_meanwhile_is_left_alone(
    ws: Path, files: ConfinedFiles, meanwhile: str
) -> None:
    def change(old: bytes) -> bytes:
        MEANWHILE[meanwhile](ws / "f")
        return old + b"!"

    await refuses(Conflict, files.update(at("f"), change))
    assert (ws / "src/main.py").read_bytes() == b"print()\n"
    assert not (ws / "f").is_file() or (ws / "f").read_bytes() in (b"somebody else", b"print()\n")
    assert no_left_overs(ws)


@pytest.mark.parametrize("rename", [rename_new, link_new])
async def test_a_new_file_never_replaces_one_that_appeared_meanwhile(
    ws: Path, files: ConfinedFiles, rename: Callable[[int, str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def appears(*given: Any) -> object:
        (ws / "late").write_bytes(b"theirs")
        return temp_file(*given[:3], executable=None)

    with monkeypatch.context() as patching:
        patching.setattr(transaction, "temp_file", lambda *given, **_: appears(*given))
        await refuses(Conflict, files.write(at("late"), b"mine"))
    assert (ws / "late").read_bytes() == b"theirs"
    (ws / "late").unlink()
    folder = os.open(ws, os.O_RDONLY)
    (ws / "temporary").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        rename(folder, "temporary", "f")
    rename(folder, "temporary", "new")
    os.close(folder)
    assert (ws / "f").read_bytes() == b"old"
    assert sorted(os.listdir(ws)) == ["f", "new", "src"]


async def test_content_over_the_limit_is_neither_read_nor_written(ws: Path) -> None:
    files = ConfinedFiles(Workspace([str(ws)]), may_write=True, size_limit=10)
    await files.write(at("f"), b"x" * 10)
    await refuses(
        InvalidInput, files.write(at("f"), b"x" * 11), files.update(at("f"), lambda old: old + b"x")
    )
    assert (ws / "f").read_bytes() == b"x" * 10
    (ws / "big").write_bytes(b"x" * 11)
    await refuses(InvalidInput, files.write(at("big"), b"small"))
    assert (ws / "big").stat().st_size == 11


async def test_a_tool_that_did_not_declare_writing_cannot_write(ws: Path) -> None:
    files = ConfinedFiles(Workspace([str(ws)]), may_write=False)
    await refuses(
        RuntimeError,
        files.write(at("f"), b"new"),
        files.update(at("f"), lambda old: old),
        files.update_all((at("f"),), lambda _: ()),
        files.make_folder(at("new")),
    )
    assert await files.read(at("f"), whole) == b"old"
    assert sorted(os.listdir(ws)) == ["f", "src"]


@pytest.fixture
def small_files() -> Iterator[None]:
    """The system lets no file grow beyond 4 KiB, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files")
async def test_a_write_that_fails_half_way_leaves_nothing_behind(ws: Path, files: ConfinedFiles) -> None:
    await refuses(
        Unavailable, files.write(at("new/deeper/f"), b"x" * 100_000), files.write(at("f"), b"x" * 100_000)
    )
    assert sorted(path.name for path in ws.rglob("*")) == ["f", "main.py", "src"]
    assert (ws / "f").read_bytes() == b"old"
    assert (await files.write(at("new/deeper/f"), b"x")).created


async def test_a_cancelled_write_is_finished_first(ws: Path, files: ConfinedFiles) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(old: bytes) -> bytes:
        inside.set()
        assert go_on.wait(5)
        return b"new"

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(files.update, at("f"), slow)
            await anyio.to_thread.run_sync(inside.wait, 5)
            tasks.cancel_scope.cancel()
            go_on.set()
    assert (ws / "f").read_bytes() == b"new"
    assert no_left_overs(ws)


ANSWERS = {
    Unavailable: (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ETIMEDOUT, None),
    Denied: (errno.EROFS, errno.EPERM, errno.EACCES),
}


def test_what_the_system_answers_becomes_an_error_for_the_model() -> None:
    for kind, codes in ANSWERS.items():
        for code in codes:
            with pytest.raises(kind) as refusal, translate("some/path"):
                raise OSError(code, "text of the system", "other/path")
            assert "some/path" in str(refusal.value) or code == errno.EMFILE
            assert "text of the system" not in str(refusal.value)


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_a_folder_has_the_path_that_it_was_moved_to(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    with opened(folder) as descriptor:
        assert descriptor_path(descriptor) == str(folder)
        folder.rename(tmp_path / "new")
        assert descriptor_path(descriptor) == str(tmp_path / "new")


def test_a_removed_folder_has_no_path_although_another_has_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    with opened(folder) as descriptor:
        folder.rmdir()
        with pytest.raises(FileNotFoundError):
            descriptor_path(descriptor)
        (tmp_path / "a (deleted)").mkdir()
        with pytest.raises(FileNotFoundError):
            descriptor_path(descriptor)
    with opened(tmp_path / "a (deleted)") as descriptor:
        assert descriptor_path(descriptor) == str(tmp_path / "a (deleted)")
    with pytest.raises(FileNotFoundError):
        descriptor_path(1 << 20)


def test_an_anonymous_file_holds_what_was_written_and_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with os.fdopen(anonymous_file("content"), "w+b") as file:
        assert not os.get_inheritable(file.fileno())
        assert os.fstat(file.fileno()).st_nlink == 0
        file.write(b"one")
        file.seek(0)
        assert file.read() == b"one"
        assert os.listdir(tmp_path) == []
