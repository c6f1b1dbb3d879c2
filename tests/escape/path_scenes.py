"""Workspaces with siblings that no file tool may reach, and what a hostile repository may hold.

A scene is for one of the engines that open paths. `spelt` and `Planted` are tables for every tool.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from mcp_toolserver.capabilities.files import Written
from mcp_toolserver.errors import Denied, InvalidInput, NotFound, ToolError
from mcp_toolserver.runtime.files.path_resolver import Openat2, Walk
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
from tests.support import extent
from tests.support.cases import table

ENGINES: dict[str, Callable[[], Walk]] = {
    "openat2": Openat2,
    "walk": lambda: Walk(proc=True),
    "walk-without-proc": lambda: Walk(proc=False),
}

Refusal = type[ToolError]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """`ws` is the root; `ws-evil` and `outside` are its siblings and must never be reached."""

    base: Path
    resolver: Walk

    @property
    def ws(self) -> Path:
        return self.base / "ws"

    @property
    def evil(self) -> Path:
        return self.base / "ws-evil"

    def workspace(self, *roots: str) -> Workspace:
        return Workspace(roots or (str(self.ws),), resolver=self.resolver)

    async def read(self, path: str, *roots: str) -> bytes:
        workspace = self.workspace(*roots)
        with anyio.fail_after(5):
            return await ConfinedFiles(workspace, may_write=False).read(
                workspace.canonical(path), lambda file, _: file.read(1000)
            )

    async def write(self, path: str, *roots: str) -> Written:
        workspace = self.workspace(*roots)
        with anyio.fail_after(5):
            return await ConfinedFiles(workspace, may_write=True).write(workspace.canonical(path), b"written")

    def outside(self) -> dict[str, str]:
        """Everything that lies outside the root, with its content."""
        return {
            str(path): path.read_text(encoding="utf-8") if path.is_file() else path.lstat().st_mode.__str__()
            for path in self.base.rglob("*")
            if not path.is_relative_to(self.ws)
        }

    async def assert_control(self) -> None:
        assert await self.read("f") == b"inside"
        assert (await self.write("sub/control")).created
        (self.ws / "sub/control").unlink()


def built(base: Path, engine: str) -> Scene:
    """A new scene in a folder that may not be there yet."""
    for folder in ("ws/sub/deep", "ws-evil/folder"):
        (base / folder).mkdir(parents=True)
    (base / "ws/f").write_bytes(b"inside")
    (base / "ws/sub/deep/g").write_bytes(b"deep")
    (base / "ws-evil/f").write_bytes(b"evil")
    return Scene(base=base, resolver=ENGINES[engine]())


LITERAL = object()
"""A name like any other: not there to be read, and written inside the workspace."""

_EXPECTED = {
    "denied": Denied,
    "invalid": InvalidInput,
    "inside": b"inside",
    "deep": b"deep",
    "literal": LITERAL,
}

SPELLINGS: list[tuple[str, str, Refusal | bytes | object]] = [
    *(
        (name, json.loads(f'"{path}"'), _EXPECTED[expected])
        for name, expected, path in table(Path(__file__).with_name("path_spellings.txt"))
    ),
    ("PATH25", "x/" * 2000 + "f", InvalidInput),
    ("empty", "", InvalidInput),
    ("long-name", "a" * 256, InvalidInput),
    ("long-path", ("a" * 200 + "/") * 30 + "f", InvalidInput),
]


def error(expected: object) -> Refusal:
    """What a path of `SPELLINGS` is refused with."""
    assert isinstance(expected, type)
    assert issubclass(expected, ToolError)
    return expected


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Something in the workspace that a hostile repository may hold."""

    make: Callable[[Scene], object]
    path: str
    read: Refusal | bytes
    write: Refusal | None
    """None: allowed, without effect outside."""


def link(name: str, target: str) -> Callable[[Scene], object]:
    def make(scene: Scene) -> None:
        (scene.ws / name).symlink_to(target.replace("{ws}", str(scene.ws)))

    return make


def chain(scene: Scene) -> None:
    link("l1", "l2")(scene)
    link("l2", "sub/l3")(scene)
    link("sub/l3", "../../ws-evil/f")(scene)


def circle(scene: Scene) -> None:
    link("a", "b")(scene)
    link("b", "a")(scene)


def ladder(scene: Scene) -> None:
    """Links that lead to `f` over more steps than any system follows."""
    link("step0", "f")(scene)
    for number in range(50):
        link(f"step{number + 1}", f"step{number}")(scene)


def bind_socket(scene: Scene) -> None:
    here = os.open(scene.ws, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"/proc/self/fd/{here}/special")
    os.close(here)


def hard_link(scene: Scene) -> None:
    os.link(scene.evil / "f", scene.ws / "hard")


PLANTED = {
    "LINK02": Planted(make=link("l", "/etc/passwd"), path="l", read=Denied, write=Denied),
    "LINK03": Planted(make=link("l", "{ws}/f"), path="l", read=Denied, write=Denied),
    "LINK04": Planted(make=link("d", "../ws-evil"), path="d/f", read=Denied, write=Denied),
    "LINK04-new": Planted(make=link("d", "../ws-evil"), path="d/new/x", read=Denied, write=Denied),
    "LINK05": Planted(make=chain, path="l1", read=Denied, write=Denied),
    "LINK07": Planted(make=link("l", "f"), path="l", read=b"inside", write=None),
    "LINK07-up": Planted(make=link("sub/l", "../f"), path="sub/l", read=b"inside", write=None),
    "LINK07-folder": Planted(make=link("d", "sub/deep/"), path="d/g", read=b"deep", write=None),
    "LINK09": Planted(make=link("l", "../ws-evil/f"), path="l", read=Denied, write=Denied),
    "LINK10": Planted(make=link("l", "../ws-evil/new"), path="l", read=Denied, write=Denied),
    "LINK10-folder": Planted(make=link("d", "../gone"), path="d/x", read=Denied, write=Denied),
    "LINK10-inside": Planted(make=link("l", "sub/new"), path="l", read=NotFound, write=None),
    "LINK10-inside-folder": Planted(make=link("d", "sub/new"), path="d/x/y", read=NotFound, write=None),
    "LINK10-inside-and-back": Planted(
        make=link("l", "gone/../../ws-evil/f"), path="l", read=InvalidInput, write=InvalidInput
    ),
    "LINK14": Planted(make=hard_link, path="hard", read=b"evil", write=None),
    "LINK17": Planted(
        make=lambda scene: os.mkfifo(scene.ws / "special"),
        path="special",
        read=InvalidInput,
        write=InvalidInput,
    ),
    "LINK18": Planted(make=bind_socket, path="special", read=InvalidInput, write=InvalidInput),
    "circle": Planted(make=circle, path="a", read=InvalidInput, write=InvalidInput),
    "circle-folder": Planted(make=circle, path="a/x", read=InvalidInput, write=InvalidInput),
    "ladder": Planted(make=ladder, path="step50", read=InvalidInput, write=InvalidInput),
    "folder": Planted(make=lambda _: None, path="sub", read=InvalidInput, write=InvalidInput),
    "link-with-slash": Planted(make=link("l", "f"), path="l/", read=InvalidInput, write=InvalidInput),
    "link-to-the-root": Planted(make=link("l", "."), path="l/f", read=b"inside", write=None),
    "link-through-the-parent": Planted(make=link("l", "../ws/f"), path="l", read=Denied, write=Denied),
}


SWAPPER = """
import ctypes, sys
first, second = (name.encode() for name in sys.argv[1:])
rename = ctypes.CDLL(None, use_errno=True).renameat2
print("ready", flush=True)
while rename(-100, first, -100, second, 2) == 0:
    pass
"""


@contextmanager
def swapping(first: Path, second: Path) -> Iterator[None]:
    """Another process exchanges the two names, as fast as the kernel can."""
    command = [sys.executable, "-I", "-c", SWAPPER, str(first), str(second)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        try:
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == b"ready\n"
            yield
            assert attacker.poll() is None
        finally:
            attacker.kill()


def hostile_folder(scene: Scene) -> tuple[Path, Path]:
    """`ws/d` is a folder, `ws/l` a link out; both hold `f`."""
    (scene.ws / "d").mkdir()
    (scene.ws / "d/f").write_bytes(b"inside")
    (scene.ws / "l").symlink_to("../ws-evil")
    return scene.ws / "d", scene.ws / "l"


def rounds(scene: Scene, seen: set[str], *both: str) -> Iterator[int]:
    """Enough rounds, and more until the race has been both won and lost, for else it proves nothing."""
    enough = extent.rounds(300, 10_000 if isinstance(scene.resolver, Openat2) else 2_000)
    for number in range(200_000):
        if number >= enough and seen.issuperset(both):
            return
        yield number
    raise AssertionError(f"the race only ever ended in {seen}")
