"""No spelling, link, special file or race lets a listing, a new folder, or files changed together out.

Every case runs with each engine that opens paths, and next to a control that must succeed.
"""

from collections.abc import Callable, Sequence

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
    Planted,
    Scene,
    error,
    hostile_folder,
    link,
    rounds,
    swapping,
)
from tests.sandbox.cases import collected


async def delete(scene: Scene, path: str) -> bool:
    """Delete a file; false when there is none."""
    workspace = scene.workspace()
    found = workspace.canonical(path)
    deleted: list[bool] = []

    def change(contents: Contents) -> Sequence[FileChange]:
        deleted.append(contents[found] is not None)
        return [FileChange(path=found, content=None)] if deleted[-1] else []

    with anyio.fail_after(5):
        await ConfinedFiles(workspace, may_write=True).update_all([found], change)
    return deleted[-1]


async def create(scene: Scene, path: str) -> None:
    """Put a file there together with another one."""
    workspace = scene.workspace()
    found, other = workspace.canonical(path), workspace.canonical("sub/other")
    changes = [FileChange(path=other, content=b"x"), FileChange(path=found, content=b"written")]
    with anyio.fail_after(5):
        await ConfinedFiles(workspace, may_write=True).update_all([found, other], lambda _: changes)


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


async def assert_control(scene: Scene) -> None:
    await create(scene, "sub/control")
    assert await delete(scene, "sub/control")


ONE_OF_EACH = [
    "../ws-evil/f", "/etc/passwd", "{ws}/../ws-evil/f", "sub/deep/../../f", "..\\ws-evil\\f", "f\0.txt",
    "missing/../../ws-evil/f", "f/x", "a" * 256, "{ws}//sub///../f", "\uff0e\uff0e\uff0fws-evil\uff0ff",
]  # fmt: skip
"""`test_escape_paths.py` proves every spelling; the verbs here share its `Workspace.canonical`."""


async def test_no_spelling_deletes_creates_makes_or_lists_anything_outside(scene: Scene) -> None:
    before = scene.outside()
    assert names(await listed(scene, ".")) == {"f", "sub", "deep", "g"}
    assert not await make(scene, ".")
    expectations = {spelling: expected for _, spelling, expected in SPELLINGS}
    for spelling in ONE_OF_EACH:
        path, expected = spelling.replace("{ws}", str(scene.ws)), expectations[spelling]
        if isinstance(expected, bytes):
            with pytest.raises(InvalidInput):
                await listed(scene, path)
            with pytest.raises(Conflict):
                await make(scene, path)
        elif expected is LITERAL:
            with pytest.raises(NotFound):
                await listed(scene, path)
            assert await make(scene, path)
            (scene.ws / path).rmdir()
        else:
            for verb in (listed, make, create, delete):
                with pytest.raises(error(expected)):
                    await verb(scene, path)
            continue
        await create(scene, path)
        assert await delete(scene, path)
        assert not await delete(scene, path)
        (scene.ws / "f").write_bytes(b"inside")
    assert scene.outside() == before
    await assert_control(scene)


async def test_nothing_is_listed_deleted_or_made_through_a_planted_object(
    scenes: Callable[[str], Scene],
) -> None:
    with collected() as case:
        for name, planted in PLANTED.items():
            scene = scenes(name)
            planted.make(scene)
            (scene.evil / "evil-name").write_bytes(b"")
            outside = scene.outside()
            with case(f"{name}, listed"):
                found = await listed(scene, ".")
                assert not {"evil-name", "passwd", "folder"} & names(found)
                assert set(found) <= {".", "sub", "sub/deep"}
            with case(f"{name}, made"):
                await _makes_nothing_outside(scenes(f"{name}-made"), planted)
            with case(f"{name}, deleted"):
                if planted.write is None:
                    await delete(scene, planted.path)
                else:
                    with pytest.raises(planted.write):
                        await delete(scene, planted.path)
                assert scene.outside() == outside
                await assert_control(scene)


async def _makes_nothing_outside(scene: Scene, planted: Planted) -> None:
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


async def test_a_link_to_a_folder_above_is_not_followed(scene: Scene) -> None:
    link("up", "..")(scene)
    link("sub/loop", ".")(scene)
    found = await listed(scene, ".")
    assert set(found) == {".", "sub", "sub/deep"}
    assert "ws-evil" not in names(found)
    with pytest.raises(Denied):
        await listed(scene, "up")


# --- races -----------------------------------------------------------------------------------------------


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


@pytest.mark.rounds
async def test_a_folder_swapped_with_a_link_never_has_files_changed_outside(scene: Scene) -> None:
    workspace = scene.workspace()
    files = ConfinedFiles(workspace, may_write=True)
    before = scene.outside()
    seen: set[str] = set()
    with swapping(*hostile_folder(scene)):
        for number in rounds(scene, seen, "done", "not done"):
            try:
                if number % 3 == 0:
                    found = workspace.canonical("d/f")
                    content = None if number % 2 else b"new"
                    change = FileChange(path=found, content=content)
                    await files.update_all([found], lambda now, one=change: [one] if now[one.path] else [])
                elif number % 3 == 1:
                    await files.make_folder(workspace.canonical(f"d/new/{number}"))
                else:
                    found = workspace.canonical(f"d/more/{number}")
                    change = FileChange(path=found, content=b"x")
                    await files.update_all([found], lambda _, one=change: [one])
                seen.add("done")
            except ToolError:
                seen.add("not done")
    assert scene.outside() == before


async def test_a_folder_moved_out_meanwhile_is_not_followed(scene: Scene) -> None:
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


# --- protected and hidden --------------------------------------------------------------------------------


def guarded(scene: Scene) -> Workspace:
    return Workspace(
        [str(scene.ws)],
        resolver=scene.resolver,
        hides=lambda spellings: spellings[0].startswith("secret"),
        protects=lambda path: "is protected." if "/.git" in path else None,
    )


GUARDED = {
    "PERS01-together": ".git/hooks/pre-commit",
    "protected-dots": "sub/../.git/config",
    "protected-by-link": "alias/config",
    "hidden": "secret/key",
    "hidden-by-link": "veil/key",
    "hidden-and-new": "secret/new",
}


async def test_what_is_protected_or_hidden_is_neither_deleted_made_nor_moved_onto(scene: Scene) -> None:
    for folder in (".git/hooks", "secret"):
        (scene.ws / folder).mkdir(parents=True)
    for path in (".git/config", ".git/hooks/pre-commit", "secret/key"):
        (scene.ws / path).write_bytes(b"kept")
    link("alias", ".git")(scene)
    link("veil", "secret")(scene)
    workspace = guarded(scene)
    files = ConfinedFiles(workspace, may_write=True)
    with collected() as case:
        for name, spelling in GUARDED.items():
            with case(name):
                path, free = workspace.canonical(spelling), workspace.canonical("f")
                for content in (None, b"new"):
                    changes = [FileChange(path=free, content=None), FileChange(path=path, content=content)]
                    with pytest.raises(Denied):
                        await files.update_all([free, path], lambda _, changes=changes: changes)
                with pytest.raises(Denied):
                    await files.make_folder(workspace.canonical(f"{spelling}.d/x"))
    assert (scene.ws / "f").read_bytes() == b"inside"
    assert (scene.ws / "secret/key").read_bytes() == b"kept"
    assert sorted(path.name for path in (scene.ws / "secret").iterdir()) == ["key"]
    assert sorted(path.name for path in (scene.ws / ".git").iterdir()) == ["config", "hooks"]
