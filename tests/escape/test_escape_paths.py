"""No spelling, link, special file or race lets a file tool out of the workspace.

Every case runs with each engine that opens paths, and next to a control that must succeed, so that nothing is
refused merely because everything is.
"""

import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from mcp_toolserver.capabilities.files import Written
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, ToolError
from mcp_toolserver.runtime.files.path_resolver import Openat2, PathResolver, Walk
from mcp_toolserver.runtime.files.workspace import Workspace
from tests.support import extent

ENGINES: dict[str, Callable[[], PathResolver]] = {
    "openat2": Openat2,
    "walk": lambda: Walk(proc=True),
    "walk-without-proc": lambda: Walk(proc=False),
}

Refusal = type[ToolError]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """`ws` is the root; `ws-evil` and `outside` are its siblings and must never be reached."""

    base: Path
    resolver: PathResolver

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
            return await workspace.files(write=False).read(
                workspace.canonical(path), lambda file, _: file.read(1000)
            )

    async def write(self, path: str, *roots: str) -> Written:
        workspace = self.workspace(*roots)
        with anyio.fail_after(5):
            return await workspace.files(write=True).write(workspace.canonical(path), b"written")

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


@pytest.fixture(params=ENGINES)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    for folder in ("ws/sub/deep", "ws-evil"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ws/f").write_bytes(b"inside")
    (tmp_path / "ws/sub/deep/g").write_bytes(b"deep")
    (tmp_path / "ws-evil/f").write_bytes(b"evil")
    return Scene(base=tmp_path, resolver=ENGINES[request.param]())


# --- spellings -------------------------------------------------------------------------------------------

LITERAL = object()
"""A name like any other: not there to be read, and written inside the workspace."""

SPELLINGS: list[tuple[str, str, Refusal | bytes | object]] = [
    ("PATH01", "../ws-evil/f", Denied),
    ("PATH02", "sub/../../ws-evil/f", Denied),
    ("PATH03", "/etc/passwd", Denied),
    ("PATH06", "{ws}/../ws-evil/f", Denied),
    ("PATH08", "sub/deep/../../f", b"inside"),
    ("PATH09", "sub/deep/../../../../etc/passwd", Denied),
    ("PATH11", "..%252fws-evil", LITERAL),
    ("PATH12", "..\\ws-evil\\f", LITERAL),
    ("PATH16", "~root/.bashrc", LITERAL),
    ("PATH18", "file:///etc/passwd", LITERAL),
    ("PATH20", "f\0.txt", InvalidInput),
    ("PATH22", "\ud800", InvalidInput),
    ("PATH25", "x/" * 2000 + "f", InvalidInput),
    ("PATH26", "f/", InvalidInput),
    ("PATH26-dot", "f/.", InvalidInput),
    ("PATH27", "@/etc/passwd", LITERAL),
    ("PATH28", "@../../etc/passwd", InvalidInput),
    ("PATH29", "../x:1-5", Denied),
    ("PATH30", "/", Denied),
    ("PROC01", "/proc/self/environ", Denied),
    ("PROC02", f"/proc/{os.getpid()}/environ", Denied),
    ("PROC04", "/proc/self/cwd/../x", Denied),
    ("PROC09", "/proc/sys/kernel/core_pattern", Denied),
    ("PROC10", "/proc/sysrq-trigger", Denied),
    ("PROC13", "/dev/tty", Denied),
    ("prefix-sibling", "{ws}-evil/f", Denied),
    ("dots", "..", Denied),
    ("dots-slash", "../", Denied),
    ("dot-dots", "./../ws-evil/f", Denied),
    ("absolute-dots", "{ws}/sub/../../ws-evil/f", Denied),
    ("two-slashes-outside", "//etc/passwd", Denied),
    ("from-dev-fd", "/dev/fd/0", Denied),
    ("from-proc-cwd", "/proc/self/cwd/f", Denied),
    ("from-proc-root", "/proc/self/root/etc/passwd", Denied),
    ("parent-of-a-file", "f/../f", InvalidInput),
    ("below-a-file", "f/x", InvalidInput),
    ("missing-and-back-out", "missing/../../ws-evil/f", InvalidInput),
    ("missing-and-back", "missing/../f", InvalidInput),
    ("empty", "", InvalidInput),
    ("root", ".", InvalidInput),
    ("root-slash", "./", InvalidInput),
    ("root-absolute", "{ws}", InvalidInput),
    ("folder", "sub/..", InvalidInput),
    ("long-name", "a" * 256, InvalidInput),
    ("long-path", ("a" * 200 + "/") * 30 + "f", InvalidInput),
    ("line-feed", "f\n", InvalidInput),
    ("escape-sequence", "\x1b[2Jf", InvalidInput),
    ("absolute", "{ws}/f", b"inside"),
    ("absolute-slashes", "{ws}//sub///../f", b"inside"),
    ("two-slashes-inside", "/{ws}/f", b"inside"),
    ("slashes", "sub//deep///g", b"deep"),
    ("dot-components", "./sub/./deep/./g", b"deep"),
    ("trailing-space", "f ", LITERAL),
    ("trailing-dot", "f.", LITERAL),
    ("other-case", "F", LITERAL),
    ("fullwidth", "．．／ws-evil／f", LITERAL),
    ("overlong", "..%c0%afws-evil%c0%aff", LITERAL),
    ("percent", "%2e%2e/ws-evil/f", LITERAL),
    ("four-dots", "....//ws-evil/f", LITERAL),
    ("semicolon", "..;/ws-evil/f", LITERAL),
    ("home", "~", LITERAL),
    ("variable", "$HOME/x", LITERAL),
    ("drive", "C:\\ws-evil\\f", LITERAL),
    ("share", "\\\\host\\share", LITERAL),
    ("dash", "--output=x", LITERAL),
]

spellings = pytest.mark.parametrize(
    ("spelling", "expected"), [pytest.param(path, expected, id=name) for name, path, expected in SPELLINGS]
)


def error(expected: object) -> Refusal:
    """What a path of `SPELLINGS` is refused with."""
    assert isinstance(expected, type)
    assert issubclass(expected, ToolError)
    return expected


@spellings
async def test_a_spelling_reads_nothing_outside(scene: Scene, spelling: str, expected: object) -> None:
    """And what the workspace takes a path for, it takes for the same path again."""
    path = spelling.replace("{ws}", str(scene.ws))
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
    await scene.assert_control()


@spellings
async def test_a_spelling_writes_nothing_outside(scene: Scene, spelling: str, expected: object) -> None:
    path = spelling.replace("{ws}", str(scene.ws))
    before = scene.outside()
    if isinstance(expected, bytes) or expected is LITERAL:
        written = await scene.write(path)
        assert written.created == (expected is LITERAL)
    else:
        with pytest.raises(error(expected)):
            await scene.write(path)
    assert scene.outside() == before
    (scene.ws / "f").write_bytes(b"inside")
    await scene.assert_control()


def test_a_folder_outside_cannot_be_opened_for_a_command(scene: Scene) -> None:
    workspace = scene.workspace()
    for path in ("/", "..", "sub/../..", str(scene.evil)):
        with pytest.raises(Denied):
            workspace.canonical(path)
    os.close(workspace.open_dir(workspace.canonical("sub")))


# --- links and special files -----------------------------------------------------------------------------


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
    "LINK10-absolute": Planted(make=link("l", "/no/such/file"), path="l", read=Denied, write=Denied),
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
    "PROC03": Planted(make=link("l", "/proc/self/root/etc/passwd"), path="l", read=Denied, write=Denied),
    "circle": Planted(make=circle, path="a", read=InvalidInput, write=InvalidInput),
    "circle-folder": Planted(make=circle, path="a/x", read=InvalidInput, write=InvalidInput),
    "ladder": Planted(make=ladder, path="step50", read=InvalidInput, write=InvalidInput),
    "folder": Planted(make=lambda _: None, path="sub", read=InvalidInput, write=InvalidInput),
    "link-with-slash": Planted(make=link("l", "f"), path="l/", read=InvalidInput, write=InvalidInput),
    "link-to-the-root": Planted(make=link("l", "."), path="l/f", read=b"inside", write=None),
    "link-through-the-parent": Planted(make=link("l", "../ws/f"), path="l", read=Denied, write=Denied),
}

planted_cases = pytest.mark.parametrize(
    "planted", [pytest.param(planted, id=name) for name, planted in PLANTED.items()]
)


@planted_cases
async def test_a_planted_object_shows_nothing_outside(scene: Scene, planted: Planted) -> None:
    planted.make(scene)
    if isinstance(planted.read, bytes):
        assert await scene.read(planted.path) == planted.read
    else:
        with pytest.raises(planted.read):
            await scene.read(planted.path)
    await scene.assert_control()


@planted_cases
async def test_a_write_through_a_planted_object_changes_nothing_outside(
    scene: Scene, planted: Planted
) -> None:
    planted.make(scene)
    outside, links = scene.outside(), _links(scene.ws)
    if planted.write is None:
        await scene.write(planted.path)
        assert await scene.read(planted.path) == b"written"
    else:
        with pytest.raises(planted.write):
            await scene.write(planted.path)
    assert scene.outside() == outside
    assert _links(scene.ws) == links
    (scene.ws / "f").write_bytes(b"inside")
    await scene.assert_control()


def _links(folder: Path) -> dict[str, str]:
    return {str(path): os.readlink(path) for path in folder.rglob("*") if path.is_symlink()}


async def test_an_absolute_link_is_refused_with_its_target(scene: Scene) -> None:
    link("sub/l", "{ws}/f")(scene)
    with pytest.raises(Denied) as refusal:
        await scene.read("sub/l")
    assert "sub/l" in str(refusal.value)
    assert f"{scene.ws}/f" in str(refusal.value)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("zero", id="PROC14"),
        pytest.param("urandom", id="PROC14-urandom"),
        pytest.param("null", id="LINK18-device"),
        pytest.param("tty", id="PROC13-root"),
    ],
)
async def test_a_device_is_refused_without_being_opened(scene: Scene, name: str) -> None:
    with pytest.raises(InvalidInput):
        await scene.read(name, "/dev")
    with pytest.raises(InvalidInput):
        await scene.write(name, "/dev")
    await scene.assert_control()


@pytest.mark.parametrize("_id", [pytest.param("", id="PROC12")])
async def test_a_device_in_the_workspace_is_refused(scene: Scene, _id: str) -> None:
    for name, kind in (("block", stat.S_IFBLK), ("character", stat.S_IFCHR)):
        try:
            os.mknod(scene.ws / name, kind | 0o666, os.makedev(1, 3))
        except PermissionError:  # who is not root cannot plant one either
            continue
        with pytest.raises(InvalidInput):
            await scene.read(name)
        with pytest.raises(InvalidInput):
            await scene.write(name)
    await scene.assert_control()


@pytest.mark.parametrize(
    ("root", "path"),
    [
        pytest.param("/proc", "self/environ", id="PROC01-root"),
        pytest.param("/proc", "self/mounts", id="proc-mounts"),
        pytest.param("/sys", "kernel/uevent_seqnum", id="sysfs"),
    ],
)
async def test_files_that_the_kernel_makes_up_are_refused(scene: Scene, root: str, path: str) -> None:
    assert (Path(root) / path).exists()
    with pytest.raises(Denied):
        await scene.read(path, root)
    with pytest.raises(Denied):
        await scene.write(path, root)
    await scene.assert_control()


async def test_a_link_of_the_kernel_does_not_lead_out(scene: Scene) -> None:
    with pytest.raises(Denied):
        await scene.read("self/root/etc/passwd", "/proc")
    with pytest.raises(Denied):
        await scene.read(f"self/cwd/{Path.cwd().name}", "/proc")


@pytest.mark.parametrize("_id", [pytest.param("", id="LINK21")])
async def test_a_root_that_is_a_link_is_resolved_once(scene: Scene, _id: str) -> None:
    (scene.base / "root").symlink_to("ws")
    workspace = scene.workspace(str(scene.base / "root"))
    (scene.base / "root").unlink()
    (scene.base / "root").symlink_to("ws-evil")
    for path in ("f", f"{scene.base}/root/f", f"{scene.ws}/f"):
        found = workspace.canonical(path)
        content = await workspace.files(write=False).read(found, lambda file, _: file.read())
        assert (found, content) == ("f", b"inside")


# --- races -----------------------------------------------------------------------------------------------

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


def naive_read(ws: Path, path: str) -> bytes:
    """What must not be done: check the path, then open it."""
    real = os.path.realpath(ws / path)
    if not real.startswith(f"{ws}/"):
        raise PermissionError
    return Path(real).read_bytes()


def hostile_folder(scene: Scene) -> tuple[Path, Path]:
    """`ws/d` is a folder, `ws/l` a link out; both hold `f`."""
    (scene.ws / "d").mkdir()
    (scene.ws / "d/f").write_bytes(b"inside")
    (scene.ws / "l").symlink_to("../ws-evil")
    return scene.ws / "d", scene.ws / "l"


def rounds(scene: Scene, seen: set[str], *both: str) -> Iterator[int]:
    """Enough rounds, and more until the race has been both won and lost, for else it proves nothing."""
    enough = extent.rounds(2_000, 10_000) if isinstance(scene.resolver, Openat2) else 2_000
    for number in range(200_000):
        if number >= enough and seen.issuperset(both):
            return
        yield number
    raise AssertionError(f"the race only ever ended in {seen}")


@pytest.mark.rounds
@pytest.mark.parametrize("_id", [pytest.param("", id="RACE01")])
def test_a_folder_swapped_with_a_link_never_shows_a_file_outside(scene: Scene, _id: str) -> None:
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


@pytest.mark.parametrize("_id", [pytest.param("", id="RACE01-control")])
def test_the_same_race_defeats_a_check_before_the_open(tmp_path: Path, _id: str) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws-evil").mkdir()
    (tmp_path / "ws-evil/f").write_bytes(b"evil")
    scene = Scene(base=tmp_path, resolver=Openat2())
    with swapping(*hostile_folder(scene)):
        assert any(_naive_result(scene.ws) == b"evil" for _ in range(200_000))


def _naive_result(ws: Path) -> bytes:
    try:
        return naive_read(ws, "d/f")
    except OSError:
        return b""


@pytest.mark.rounds
@pytest.mark.parametrize("_id", [pytest.param("", id="RACE01-write")])
async def test_a_folder_swapped_with_a_link_never_gets_a_file_written_outside(scene: Scene, _id: str) -> None:
    workspace = scene.workspace()
    files = workspace.files(write=True)
    before = scene.outside()
    seen: set[str] = set()
    with swapping(*hostile_folder(scene)):
        for number in rounds(scene, seen, "written", "denied"):
            path = ("d/f", "d/new", "d/more/new")[number % 3]
            try:
                await files.write(workspace.canonical(path), b"%d" % number)
                seen.add("written")
            except ToolError as error:
                seen.add(error.kind)
    assert scene.outside() == before


@pytest.mark.rounds
@pytest.mark.parametrize("_id", [pytest.param("", id="RACE01-hidden")])
def test_a_swapped_link_never_reveals_what_a_rule_hides(scene: Scene, _id: str) -> None:
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


@pytest.mark.parametrize("_id", [pytest.param("", id="RACE04")])
async def test_parallel_edits_of_one_file_by_different_spellings_all_take_effect(
    scene: Scene, _id: str
) -> None:
    (scene.ws / "l").symlink_to("f")
    (scene.ws / "d").symlink_to("sub/..")
    (scene.ws / "f").write_bytes(b"")
    workspace = scene.workspace()
    spelt = ("f", "l", "d/f", f"{scene.ws}/f", "sub/../f")

    async def edit(number: int) -> None:
        path = workspace.canonical(spelt[number % len(spelt)])
        await workspace.files(write=True).update(path, lambda old: old + b"x")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(edit, number)
    assert (scene.ws / "f").read_bytes() == b"x" * 30


@pytest.mark.parametrize("_id", [pytest.param("", id="RACE05")])
async def test_a_temporary_name_that_was_guessed_fails_closed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, _id: str
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * 2 * size)
    (scene.ws / f".mcp-toolserver-{'0' * 32}.tmp").symlink_to("../ws-evil/f")
    before = scene.outside()
    with pytest.raises(Conflict):
        await scene.write("f")
    assert scene.outside() == before
    assert (scene.ws / "f").read_bytes() == b"inside"


@pytest.mark.parametrize("_id", [pytest.param("", id="RACE06")])
async def test_a_folder_moved_out_during_a_write_is_not_followed(scene: Scene, _id: str) -> None:
    workspace = scene.workspace()
    path = workspace.canonical("sub/deep/g")
    before = scene.outside()

    def move_out(content: bytes) -> bytes:
        (scene.ws / "sub").rename(scene.base / "moved")
        (scene.ws / "sub").symlink_to("../ws-evil")
        return content + b"!"

    with pytest.raises(Conflict):
        await workspace.files(write=True).update(path, move_out)
    (scene.ws / "sub").unlink()
    (scene.base / "moved").rename(scene.ws / "sub")
    assert scene.outside() == before
    assert (scene.ws / "sub/deep/g").read_bytes() == b"deep"
    assert (await workspace.files(write=True).update(path, lambda old: old + b"!")).after == b"deep!"


WRITER = """
import anyio, sys
from mcp_toolserver.runtime.files.workspace import Workspace

async def main():
    workspace = Workspace([sys.argv[1]])
    files, path = workspace.files(write=True), workspace.canonical("target")
    for number in range(1_000_000):
        await files.write(path, (b"a", b"b")[number % 2] * 1_000_000)
        print(number, flush=True)

anyio.run(main)
"""


@pytest.mark.parametrize("_id", [pytest.param("", id="RACE09")])
async def test_a_writer_killed_at_any_moment_leaves_the_old_or_the_new_content(
    tmp_path: Path, _id: str
) -> None:
    target = tmp_path / "target"
    for delay in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            for _ in range(delay * 10_000):  # kill it at another point of its next write each time
                pass
            writer.send_signal(signal.SIGKILL)
        content = target.read_bytes()
        assert len(content) == 1_000_000
        assert content in (b"a" * 1_000_000, b"b" * 1_000_000)


@pytest.mark.parametrize("_id", [pytest.param("", id="RACE09-sweep")])
async def test_a_write_leaves_temporary_files_alone_that_are_not_its_own(scene: Scene, _id: str) -> None:
    """Those of killed servers are removed by their record, see `test_startup_cleanup.py`."""
    old = scene.ws / f".mcp-toolserver-{'1' * 32}.tmp"
    fresh = scene.ws / f".mcp-toolserver-{'2' * 32}.tmp"
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    (scene.ws / f".mcp-toolserver-{'3' * 32}.tmp").symlink_to("../ws-evil/f")
    await scene.write("new")
    assert old.exists()
    assert fresh.exists()
    assert (scene.evil / "f").read_bytes() == b"evil"
