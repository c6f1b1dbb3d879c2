"""No spelling, link, special file or race lets a file tool out of the workspace.

Every case runs with each engine that opens paths, and next to a control that must succeed, so that nothing is
refused merely because everything is.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from mcp_toolserver.capabilities.files import Contents, FileChange, FolderContent, FolderQuery
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, ToolError
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
from tests.escape.path_scenes import (
    LITERAL,
    PLANTED,
    SPELLINGS,
    Scene,
    error,
    hostile_folder,
    link,
    rounds,
    swapping,
)
from tests.support.cases import collected

Scenes = Callable[[str], Scene]


async def test_a_spelling_reads_and_writes_nothing_outside(scenes: Scenes) -> None:
    """And what the workspace takes a path for, it takes for the same path again."""
    with collected() as case:
        for name, spelling, expected in SPELLINGS:
            with case(name):
                await _stays_inside(scenes(name), spelling, expected)


async def _stays_inside(scene: Scene, spelling: str, expected: object) -> None:
    path = spelling.replace("{ws}", str(scene.ws))
    before = scene.outside()
    if isinstance(expected, bytes):
        assert await scene.read(path) == expected
    else:
        with pytest.raises(error(NotFound if expected is LITERAL else expected)):
            await scene.read(path)
    workspace = scene.workspace()
    with suppress(ToolError):
        canonical = workspace.canonical(path)
        assert workspace.canonical(canonical) == canonical
        assert not canonical.startswith("/")
        assert ".." not in canonical.split("/")
    if isinstance(expected, bytes) or expected is LITERAL:
        written = await scene.write(path)
        assert written.created == (expected is LITERAL)
    else:
        with pytest.raises(error(expected)):
            await scene.write(path)
    assert scene.outside() == before
    (scene.ws / "f").write_bytes(b"inside")
    await scene.assert_control()


async def test_a_spelling_in_another_case_names_another_file(scene: Scene) -> None:
    """Not on a volume that ignores case: see `tests/macos/caseless_volume.py`."""
    await _stays_inside(scene, "F", LITERAL)


def test_a_folder_outside_cannot_be_opened_for_a_command(scene: Scene) -> None:
    workspace = scene.workspace()
    for path in ("/", "..", "sub/../..", str(scene.evil)):
        with pytest.raises(Denied):
            workspace.canonical(path)
    os.close(workspace.open_dir(workspace.canonical("sub")))


async def delete(scene: Scene, path: str) -> None:
    """Delete a file, if there is one."""
    workspace = scene.workspace()
    found = workspace.canonical(path)
    gone = FileChange(path=found, content=None)
    with anyio.fail_after(5):
        await ConfinedFiles(workspace, may_write=True).update_all(
            [found], lambda now: [gone] if now[found] is not None else []
        )


async def make(scene: Scene, path: str) -> bool:
    workspace = scene.workspace()
    with anyio.fail_after(5):
        return await ConfinedFiles(workspace, may_write=True).make_folder(workspace.canonical(path))


async def listed(of: Scene | Workspace, path: str, *, depth: int = 9) -> dict[str, FolderContent]:
    workspace = of.workspace() if isinstance(of, Scene) else of
    query = FolderQuery(path=workspace.canonical(path), depth=depth, hidden=True, limit=1_000, each=1_000)
    with anyio.fail_after(5):
        return dict(await ConfinedFiles(workspace, may_write=False).folders(query))


def names(found: dict[str, FolderContent]) -> set[str]:
    return {entry.name for content in found.values() for entry in content.entries}


async def test_a_planted_object_shows_and_changes_nothing_outside(scenes: Scenes) -> None:
    """It is read, written, listed, made a folder in, and deleted."""
    with collected() as case:
        for name, planted in PLANTED.items():
            with case(name):
                scene = scenes(name)
                planted.make(scene)
                (scene.evil / "evil-name").write_bytes(b"")
                outside, links = scene.outside(), _links(scene.ws)
                found = await listed(scene, ".")
                assert not {"evil-name", "passwd", "folder"} & names(found)
                assert set(found) <= {".", "sub", "sub/deep"}
                if isinstance(planted.read, bytes):
                    assert await scene.read(planted.path) == planted.read
                else:
                    with pytest.raises(planted.read):
                        await scene.read(planted.path)
                if planted.write is None:
                    await scene.write(planted.path)
                    assert await scene.read(planted.path) == b"written"
                else:
                    with pytest.raises(planted.write):
                        await scene.write(planted.path)
                assert _links(scene.ws) == links
                if planted.write is None:
                    await delete(scene, planted.path)
                else:
                    with pytest.raises(planted.write):
                        await delete(scene, planted.path)
                assert scene.outside() == outside
                (scene.ws / "f").write_bytes(b"inside")
                await scene.assert_control()
            with case(f"{name}, made"):
                scene = scenes(f"{name}-made")
                planted.make(scene)
                outside = scene.outside()
                try:
                    await make(scene, f"{planted.path}/new")
                except InvalidInput:  # a file, or too many links
                    assert planted.read is not Denied
                except ToolError:
                    assert planted.write is not None
                assert scene.outside() == outside
                assert await make(scene, "sub/control")


def _links(folder: Path) -> dict[str, str]:
    return {str(path): os.readlink(path) for path in folder.rglob("*") if path.is_symlink()}


async def test_an_absolute_link_is_refused_with_its_target(scene: Scene) -> None:
    link("sub/l", "{ws}/f")(scene)
    with pytest.raises(Denied) as refusal:
        await scene.read("sub/l")
    assert "sub/l" in str(refusal.value)
    assert f"{scene.ws}/f" in str(refusal.value)


async def test_a_device_is_refused_without_being_opened(scene: Scene) -> None:
    for name in ("zero", "urandom", "null", "tty"):
        with pytest.raises(InvalidInput):
            await scene.read(name, "/dev")
        with pytest.raises(InvalidInput):
            await scene.write(name, "/dev")
    await scene.assert_control()


async def test_files_that_the_kernel_makes_up_are_refused(scene: Scene) -> None:
    for root, path in (("/proc", "self/environ"), ("/proc", "self/mounts"), ("/sys", "kernel/uevent_seqnum")):
        assert (Path(root) / path).exists()
        with pytest.raises(Denied):
            await scene.read(path, root)
        with pytest.raises(Denied):
            await scene.write(path, root)
    for link_of_the_kernel in ("self/root/etc/passwd", f"self/cwd/{Path.cwd().name}"):
        with pytest.raises(Denied):
            await scene.read(link_of_the_kernel, "/proc")
    await scene.assert_control()


async def test_a_root_that_is_a_link_is_resolved_once(scene: Scene) -> None:
    (scene.base / "root").symlink_to("ws")
    workspace = scene.workspace(str(scene.base / "root"))
    (scene.base / "root").unlink()
    (scene.base / "root").symlink_to("ws-evil")
    for path in ("f", f"{scene.base}/root/f", f"{scene.ws}/f"):
        found = workspace.canonical(path)
        content = await ConfinedFiles(workspace, may_write=False).read(found, lambda file, _: file.read())
        assert (found, content) == ("f", b"inside")


@pytest.mark.rounds
def test_a_folder_swapped_with_a_link_never_shows_a_file_outside(scene: Scene) -> None:
    workspace = scene.workspace()
    seen: set[str] = set()
    with swapping(*hostile_folder(scene)):
        for _ in rounds(scene, seen, "inside", "denied"):
            seen.add(_read_now(workspace, "d/f"))
    assert "evil" not in seen


def _read_now(workspace: Workspace, path: str) -> str:
    try:
        fd = workspace.open_file(workspace.canonical(path))
    except ToolError as error:
        return error.kind
    with os.fdopen(fd, "rb") as file:
        return file.read().decode()


@pytest.mark.rounds
async def test_a_folder_swapped_with_a_link_never_gets_a_file_written_outside(scene: Scene) -> None:
    """Nor is one deleted or a folder made there."""
    workspace = scene.workspace()
    files = ConfinedFiles(workspace, may_write=True)
    before = scene.outside()
    seen: set[str] = set()
    with swapping(*hostile_folder(scene)):
        for number in rounds(scene, seen, "written", "denied"):
            try:
                if number % 4 == 0:
                    await files.make_folder(workspace.canonical(f"d/made/{number}"))
                elif number % 4 == 1:
                    path = workspace.canonical("d/f")
                    gone = FileChange(path=path, content=None)
                    await files.update_all([path], lambda now, gone=gone: [gone] if now[gone.path] else [])
                else:
                    path = ("d/f", "d/new", "d/more/new")[number % 3]
                    await files.write(workspace.canonical(path), b"%d" % number)
                seen.add("written")
            except ToolError as error:
                seen.add(error.kind)
    assert scene.outside() == before


@pytest.mark.rounds
def test_a_swapped_link_never_reveals_what_a_rule_hides(scene: Scene) -> None:
    (scene.ws / "secret").mkdir()
    (scene.ws / "secret/f").write_bytes(b"hidden")
    (scene.ws / "d").mkdir()
    (scene.ws / "d/f").write_bytes(b"inside")
    (scene.ws / "l").symlink_to("secret")
    workspace = Workspace([str(scene.ws)], resolver=scene.resolver, hides=lambda names: "secret/f" in names)
    seen: set[str] = set()
    with swapping(scene.ws / "d", scene.ws / "l"):
        for _ in rounds(scene, seen, "inside", "denied"):
            seen.add(_read_now(workspace, "d/f"))
    assert "hidden" not in seen


async def test_parallel_edits_of_one_file_by_different_spellings_all_take_effect(scene: Scene) -> None:
    (scene.ws / "l").symlink_to("f")
    (scene.ws / "d").symlink_to("sub/..")
    (scene.ws / "f").write_bytes(b"")
    workspace = scene.workspace()
    spelt = ("f", "l", "d/f", f"{scene.ws}/f", "sub/../f")

    async def edit(number: int) -> None:
        path = workspace.canonical(spelt[number % len(spelt)])
        await ConfinedFiles(workspace, may_write=True).update(path, lambda old: old + b"x")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(edit, number)
    assert (scene.ws / "f").read_bytes() == b"x" * 30


async def test_a_temporary_name_that_was_guessed_fails_closed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * 2 * size)
    (scene.ws / f".mcp-toolserver-{'0' * 32}.tmp").symlink_to("../ws-evil/f")
    before = scene.outside()
    with pytest.raises(Conflict):
        await scene.write("f")
    assert scene.outside() == before
    assert (scene.ws / "f").read_bytes() == b"inside"


async def test_a_folder_moved_out_during_a_change_is_not_followed(scene: Scene) -> None:
    workspace = scene.workspace()
    paths = [workspace.canonical("f"), workspace.canonical("sub/deep/g")]
    before = scene.outside()

    def move_out(_: Contents) -> Sequence[FileChange]:
        (scene.ws / "sub").rename(scene.base / "moved")
        (scene.ws / "sub").symlink_to("../ws-evil")
        return [FileChange(path=path, content=None) for path in paths]

    with pytest.raises(Conflict):
        await ConfinedFiles(workspace, may_write=True).update_all(paths, move_out)
    (scene.ws / "sub").unlink()
    (scene.base / "moved").rename(scene.ws / "sub")
    assert scene.outside() == before
    assert (scene.ws / "f").read_bytes() == b"inside"
    assert (scene.ws / "sub/deep/g").read_bytes() == b"deep"


async def test_a_link_to_a_folder_above_is_not_followed(scene: Scene) -> None:
    link("up", "..")(scene)
    link("sub/loop", ".")(scene)
    found = await listed(scene, ".")
    assert set(found) == {".", "sub", "sub/deep"}
    assert "ws-evil" not in names(found)
    with pytest.raises(Denied):
        await listed(scene, "up")


@pytest.mark.rounds
async def test_a_folder_swapped_with_a_link_is_never_listed_outside(scene: Scene) -> None:
    (scene.evil / "evil-name").write_bytes(b"")
    folder, other = hostile_folder(scene)
    (folder / "inside-name").write_bytes(b"")
    seen: set[str] = set()
    workspace = scene.workspace()
    with swapping(folder, other):
        for number in rounds(scene, seen, "inside-name", "not listed"):
            try:
                found = await listed(workspace, "d" if number % 2 else ".", depth=2)
            except ToolError:
                seen.add("not listed")
            else:
                seen |= names(found) & {"inside-name", "evil-name", "folder"}
    assert "evil-name" not in seen
    assert "folder" not in seen
