"""No call loses the user's text: what it may replace unseen, what is kept of it, and how it comes back."""

import hashlib
import os
import stat
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import Implementation

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.runtime.files.workspace_files import drops_most
from mcp_toolserver.stores.file_history import OWNERS, FileHistories, HistoryLimits
from mcp_toolserver.text.redact_secrets import is_secret_file
from tests.notebook.notebooks import made, written
from tests.protocol.resource_clients import Place, place
from tests.support import confinement
from tests.support.calling import handle, shown_path
from tests.support.confinement import AS_ROOT_IN_LONG, WORKSPACE_WRITE
from tests.support.live import text
from tests.support.workbench import Person, dispatcher, machine

TEXT = "".join(f"line {number} of the user\n" for number in range(20))
OTHER = "nothing of that\n"
HUNK = "@@ -1 +1 @@\n-line 0 of the user\n+0\n"
NONE_KEPT = HistoryLimits(total=0)


class Server:
    """The file tools on a real folder, for several sessions."""

    def __init__(self, folder: Path, limits: HistoryLimits | None = None) -> None:
        self.root, self.state = folder / "root", folder / "state"
        self.histories = FileHistories(str(self.state), limits)
        host = replace(machine(folder), histories=self.histories)
        self._dispatcher = dispatcher(host, ceiling=Permission.WORKSPACE_WRITE)

    async def result(self, tool: str, owner: str = LOCAL, /, **arguments: Any) -> Result:
        with anyio.fail_after(30):
            return await self._dispatcher.call(tool, arguments, Person(owner=owner))

    async def text(self, tool: str, owner: str = LOCAL, /, **arguments: Any) -> str:
        result = await self.result(tool, owner, **arguments)
        assert result.error is None, result.text
        return result.text

    async def refusal(self, kind: str, tool: str, owner: str = LOCAL, /, **arguments: Any) -> str:
        result = await self.result(tool, owner, **arguments)
        assert result.error == kind, result.text
        return result.text

    def file(self, name: str, content: str | bytes = TEXT) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def kept(self) -> list[Path]:
        """All contents that are kept, oldest first."""
        found = [path for path in (self.state / "undo").rglob("*") if path.is_file()]
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


async def test_a_file_that_was_not_read_keeps_its_text(server: Server) -> None:
    file = server.file("notes.md")
    before = file.stat()
    answer = await server.refusal("conflict", "write_file", path="notes.md", content=OTHER)
    assert "Read the file first" in answer
    assert "overwrite: true" in answer
    assert file.read_text(encoding="utf-8") == TEXT
    # The first read of a new file may set its time of access, and nothing else.
    states = {(*one[:7], one.st_mtime_ns, one.st_ctime_ns) for one in (before, file.stat())}
    assert len(states) == 1
    assert server.kept() == []


KNOWN: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("read_file", {}), ("head", {}), ("tail", {}), ("write_file", {"content": f"{TEXT}more\n"})),
    ("edit_file", {"old_string": "line 1 of", "new_string": "LINE 1 of"}),
    ("apply_patch", {"patch": f"--- a/notes.md\n+++ b/notes.md\n{HUNK}"}),
)


async def test_a_session_that_knows_the_file_or_says_so_replaces_all_of_it(server: Server) -> None:
    for owner, (tool, arguments) in enumerate(KNOWN):
        file = server.file("notes.md")
        path = {} if tool == "apply_patch" else {"path": "notes.md"}
        await server.text(tool, f"owner {owner}", **path, **arguments)
        await server.text("write_file", f"owner {owner}", path="notes.md", content=OTHER)
        assert file.read_text(encoding="utf-8") == OTHER
    for arguments in ({"overwrite": True}, {"expected_sha256": hashlib.sha256(TEXT.encode()).hexdigest()}):
        file = server.file("notes.md")
        await server.text("write_file", path="notes.md", content=OTHER, **arguments)
        assert file.read_text(encoding="utf-8") == OTHER


async def test_what_was_changed_since_or_read_by_another_or_only_listed_is_unread(server: Server) -> None:
    server.file("notes.md")
    await server.text("ls", path=".")
    await server.refusal("conflict", "write_file", path="notes.md", content=OTHER)
    await server.text("read_file", path="notes.md")
    await server.refusal("conflict", "write_file", "second", path="notes.md", content=OTHER)
    file = server.file("notes.md", TEXT + "and a line of today\n")
    await server.refusal("conflict", "write_file", path="notes.md", content=OTHER)
    assert "line of today" in file.read_text(encoding="utf-8")


async def test_a_new_file_needs_no_permission_and_half_may_go(server: Server) -> None:
    await server.text("write_file", path="new.md", content=TEXT)
    server.file("notes.md")
    await server.text("write_file", path="notes.md", content="".join(TEXT.splitlines(keepends=True)[10:]))
    server.file("notes.md")
    fewer = "".join(TEXT.splitlines(keepends=True)[11:])
    await server.refusal("conflict", "write_file", path="notes.md", content=fewer)


def test_a_loss_is_measured_in_whole_lines() -> None:
    kept = (
        *((b"", b""), (b"\n \n", b""), (b"a\nb\n", b"b\nx\n"), (b"a\r\n  b\r\n", b"b\na\n")),
        *((b"\0\1\2", b"\0\1\2\3"), (b"x" * 100, b"y" + b"x" * 100)),
    )
    dropped = ((b"a\nbb\n", b"a\n"), (b"a\na\na\n", b"a\n"), (b"\0\1\2", b"\0\3\2"))
    assert [pair for pair in kept if drops_most(*pair)] == []
    assert [pair for pair in dropped if not drops_most(*pair)] == []


async def test_other_hard_links_keep_the_old_content_and_each_tool_says_so(server: Server) -> None:
    for tool, arguments in (
        ("write_file", {"path": "notes.md", "content": OTHER, "overwrite": True}),
        ("edit_file", {"path": "notes.md", "old_string": "line 1 of", "new_string": "LINE 1 of"}),
        ("apply_patch", {"patch": f"--- a/notes.md\n+++ b/notes.md\n{HUNK}"}),
        ("NotebookEdit", {"path": "n.ipynb", "cell_number": 0, "new_source": "1"}),
    ):
        file = server.file("n.ipynb", written(made())) if tool == "NotebookEdit" else server.file("notes.md")
        before, other = file.read_bytes(), server.root / tool
        other.hardlink_to(file)
        assert "2 hard links" in await server.text(tool, **arguments)
        assert other.read_bytes() == before


async def test_a_replaced_content_is_read_and_restored_from_the_answer(server: Server) -> None:
    content = "é\r\n\0\n".encode() + b"\xff" * 100
    file = server.file("a.bin", content)
    answer = await server.text("write_file", path="a.bin", content=OTHER, overwrite=True)
    assert Path(shown_path(answer)).read_bytes() == content
    again = await server.text("write_file", path="a.bin", restore=handle(answer))
    assert file.read_bytes() == content
    # What the restoration replaced is kept in turn.
    await server.text("write_file", path="a.bin", restore=handle(again))
    assert file.read_text(encoding="utf-8") == OTHER


async def test_an_edit_is_undone(server: Server) -> None:
    file, notebook = server.file("notes.md"), server.file("n.ipynb", written(made()))
    edits = [{"old_string": "line 1 of", "new_string": "x"}, {"old_string": "line 2 of", "new_string": "y"}]
    for tool in ("edit_file", "MultiEdit"):
        answer = await server.text(tool, path="notes.md", edits=edits)
        await server.text("write_file", path="notes.md", restore=handle(answer))
        assert file.read_text(encoding="utf-8") == TEXT
    answer = await server.text("NotebookEdit", path="n.ipynb", cell_number=0, edit_mode="delete")
    await server.text("write_file", path="n.ipynb", restore=handle(answer))
    assert notebook.read_bytes() == written(made())


async def test_what_a_patch_deletes_or_moves_comes_back(server: Server) -> None:
    gone, moved = server.file("gone.md"), server.file("old.md", "old\n")
    answer = await server.text(
        "apply_patch",
        patch="*** Begin Patch\n*** Delete File: gone.md\n*** Update File: old.md\n*** Move to: new.md\n@@\n"
        "-old\n+new\n*** End Patch",
    )
    assert not gone.exists()
    deleted, renamed = (line for line in answer.splitlines() if line.startswith("- "))
    assert "at old.md" in renamed
    await server.text("write_file", path="gone.md", restore=handle(deleted))
    await server.text("write_file", path="old.md", restore=handle(renamed))
    assert gone.read_text(encoding="utf-8") == TEXT
    assert moved.read_text(encoding="utf-8") == "old\n"


async def test_nothing_is_kept_where_nothing_is_replaced_or_a_write_fails(server: Server) -> None:
    server.file("same.md")
    server.file("empty.md", "")
    for name, content in (("new.md", "x"), ("same.md", TEXT), ("empty.md", "x")):
        assert "ndo" not in await server.text("write_file", path=name, content=content)
    file = server.file("notes.md")
    file.chmod(0o444)
    await server.refusal("denied", "write_file", path="notes.md", content=OTHER, overwrite=True)
    patch = "*** Begin Patch\n*** Update File: notes.md\n@@\n-line 0 of the user\n+0\n*** End Patch"
    await server.refusal("denied", "apply_patch", patch=patch)
    assert file.read_text(encoding="utf-8") == TEXT
    assert server.kept() == []


async def test_a_content_goes_back_to_its_own_file_only_and_cannot_be_written(server: Server) -> None:
    file = server.file("notes.md")
    answer = await server.text("write_file", path="notes.md", content=OTHER, overwrite=True)
    undo, path = handle(answer), shown_path(answer)
    assert path.endswith("-notes.md")
    assert "7\tline 6 of the user" in await server.text("read_file", path=path)
    refused = await server.refusal("not_found", "write_file", path="elsewhere.md", restore=undo)
    assert "notes.md" in refused
    assert not (server.root / "elsewhere.md").exists()
    await server.refusal("denied", "write_file", path=path, content="x", overwrite=True)
    assert Path(path).read_text(encoding="utf-8") == TEXT
    await server.refusal("conflict", "write_file", path="notes.md", restore=undo, expected_sha256="0" * 64)
    assert file.read_text(encoding="utf-8") == OTHER


async def test_the_end_of_a_session_ends_its_undo_and_leaves_the_contents_to_the_user(server: Server) -> None:
    server.file("notes.md")
    answer = await server.text("write_file", "one", path="notes.md", content=OTHER, overwrite=True)
    server.histories.forget("one")
    await server.refusal("not_found", "write_file", "one", path="notes.md", restore=handle(answer))
    await server.refusal("denied", "read_file", "one", path=shown_path(answer))
    assert Path(shown_path(answer)).read_text(encoding="utf-8") == TEXT


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"

SECRETS = {
    **dict.fromkeys((".env", ".env.production", "id_ed25519", "server.pem", ".npmrc"), "A=1"),
    "notes.md": KEY,
    "config.py": f'TOKEN = "ghp_{"a" * 36}"',
}
NO_SECRETS = {".env.example": "A=1", "id_ed25519.pub": "", "main.py": "task-oriented work, sk- and eyJ"}


async def test_credentials_are_not_copied(server: Server) -> None:
    assert [name for name, content in SECRETS.items() if not is_secret_file(name, content.encode())] == []
    assert [name for name, content in NO_SECRETS.items() if is_secret_file(name, content.encode())] == []
    file = server.file(".env", "A=1\nB=2\n")
    answer = await server.refusal("conflict", "write_file", path=".env", content="A=1\nB=2\nC=3\n")
    assert "cannot be kept for undo" in answer
    assert file.read_text(encoding="utf-8") == "A=1\nB=2\n"
    answer = await server.text("edit_file", path=".env", old_string="B=2", new_string="B=3")
    assert "is not kept for undo" in answer
    patch = "*** Begin Patch\n*** Delete File: .env\n*** End Patch"
    assert "not kept for undo" in await server.text("apply_patch", patch=patch)
    assert server.kept() == []


async def test_text_that_cannot_be_kept_is_replaced_only_when_known(tmp_path: Path) -> None:
    for limits, why in (
        (NONE_KEPT, "is not kept for undo: the operator has switched undo off"),
        (HistoryLimits(reserve=1 << 60), "would stay free on the disk of the state folder"),
    ):
        server = Server(tmp_path, limits)
        file = server.file("notes.md")
        await server.refusal("conflict", "write_file", path="notes.md", content=f"{TEXT}more\n")
        assert file.read_text(encoding="utf-8") == TEXT
        await server.text("read_file", path="notes.md")
        assert why in await server.text("write_file", path="notes.md", content=OTHER)


@pytest.mark.parametrize("obstacle", ["file", "link", "shared"])
async def test_a_state_folder_that_is_not_private_keeps_nothing(
    server: Server, tmp_path: Path, obstacle: str
) -> None:
    server.state.mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    if obstacle == "file":
        (server.state / "undo").write_bytes(b"")
    elif obstacle == "link":
        (server.state / "undo").symlink_to(tmp_path / "elsewhere")
    else:
        (server.state / "undo").mkdir()
        (server.state / "undo").chmod(0o755)
    file = server.file("notes.md")
    await server.refusal("conflict", "write_file", path="notes.md", content=f"{TEXT}more\n")
    assert file.read_text(encoding="utf-8") == TEXT
    assert "not kept" in await server.text("write_file", path="notes.md", content=OTHER, overwrite=True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_everything_is_private(server: Server) -> None:
    server.file("notes.md")
    umask = os.umask(0)
    try:
        await server.text("write_file", path="notes.md", content=OTHER, overwrite=True)
    finally:
        os.umask(umask)
    (kept,) = server.kept()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    for folder in (kept.parent, kept.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_the_number_and_size_of_a_sessions_contents_are_bounded(tmp_path: Path) -> None:
    server = Server(tmp_path, HistoryLimits(count=3, of_owner=64 * 1024))
    for number in range(6):
        server.file(f"f{number}", f"{number}\n")
        await server.text("write_file", path=f"f{number}", content=OTHER, overwrite=True)
    assert sorted(path.read_text(encoding="utf-8") for path in server.kept()) == ["3\n", "4\n", "5\n"]
    server.file("large", "x" * 58_000)
    await server.text("write_file", path="large", content=OTHER, overwrite=True)
    assert [path.stat().st_size for path in server.kept()] == [58_000]
    server.file("larger", "x" * 64 * 1024)
    answer = await server.text("write_file", path="larger", content=OTHER, overwrite=True)
    assert "more than undo may take" in answer
    assert [path.stat().st_size for path in server.kept()] == [58_000]


async def test_a_sessions_own_versions_make_room_before_the_users_text(tmp_path: Path) -> None:
    server = Server(tmp_path, HistoryLimits(count=3))
    server.file("notes.md")
    first = handle(await server.text("write_file", path="notes.md", content="version 0\n", overwrite=True))
    for number in range(1, 10):
        await server.text("write_file", path="notes.md", content=f"version {number}\n")
    assert len(server.kept()) == 3
    await server.text("write_file", path="notes.md", restore=first)
    assert (server.root / "notes.md").read_text(encoding="utf-8") == TEXT


async def test_a_flood_of_one_session_takes_no_room_from_a_smaller_one(tmp_path: Path) -> None:
    server = Server(tmp_path, HistoryLimits(total=100_000, of_owner=90_000))
    server.file("notes.md")
    mine = handle(await server.text("write_file", "me", path="notes.md", content=OTHER, overwrite=True))
    for number in range(12):
        server.file("f", f"{number}" * 14_000)
        await server.text("write_file", "flood", path="f", content=OTHER, overwrite=True)
    assert sum(path.stat().st_size + 4096 for path in server.kept()) <= 100_000
    await server.text("write_file", "me", path="notes.md", restore=mine)


async def test_what_ended_sessions_left_goes_first(tmp_path: Path) -> None:
    server = Server(tmp_path, HistoryLimits(total=30_000))
    answer = ""
    for number in range(6):
        server.file("f", f"{number}" * 8_000)
        answer = await server.text("write_file", f"owner {number}", path="f", content=OTHER, overwrite=True)
        if number < 5:
            server.histories.forget(f"owner {number}")
    assert len(server.kept()) <= 2
    await server.text("write_file", "owner 5", path="f", restore=handle(answer))


async def test_the_sessions_and_the_files_that_count_as_read_are_bounded(server: Server) -> None:
    server.file("f")
    for owner in ("first", LOCAL):
        await server.text("read_file", owner, path="f")
    for number in range(5_000):
        server.histories.of(LOCAL).saw((number,))
    await server.refusal("conflict", "write_file", path="f", content=OTHER)
    for number in range(OWNERS):
        server.histories.of(f"owner {number}")
    await server.refusal("conflict", "write_file", "first", path="f", content=OTHER)


@pytest.mark.parametrize("obstacle", ["gone", "link", "fifo", "longer"])
async def test_a_kept_content_that_somebody_replaced_is_not_restored(
    server: Server, tmp_path: Path, obstacle: str
) -> None:
    file = server.file("notes.md")
    undo = handle(await server.text("write_file", path="notes.md", content=OTHER, overwrite=True))
    (kept,) = server.kept()
    (tmp_path / "secret").write_text(TEXT, encoding="utf-8")
    kept.unlink()
    if obstacle == "link":
        kept.symlink_to(tmp_path / "secret")
    elif obstacle == "fifo":
        os.mkfifo(kept)
    elif obstacle == "longer":
        kept.write_text(f"{TEXT}more", encoding="utf-8")
    await server.refusal("not_found", "write_file", path="notes.md", restore=undo)
    assert file.read_text(encoding="utf-8") == OTHER


async def test_many_writes_at_once_keep_every_version(server: Server) -> None:
    server.file("f", "start\n")
    answers: list[str] = []

    async def write(number: int) -> None:
        answers.append(
            await server.text("write_file", path="f", content=f"version {number}\n", overwrite=True)
        )

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(write, number)
    kept = {path.read_text(encoding="utf-8") for path in server.kept()}
    last = (server.root / "f").read_text(encoding="utf-8")
    assert kept | {last} == {"start\n", *(f"version {number}\n" for number in range(30))}
    assert len({handle(answer) for answer in answers}) == 30


def served(folder: Path, **settings: Any) -> AbstractAsyncContextManager[Place]:
    """A server that clients connect to in this process, with a file of the user's."""
    (folder / "root").mkdir(exist_ok=True)
    (folder / "root/notes.md").write_text(TEXT, encoding="utf-8")
    return place(folder, permission_mode=Permission.WORKSPACE_WRITE, **settings)


async def call(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text(result)
    return text(result)


async def refusal(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text(result)
    return text(result)


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_another_client_can_neither_read_nor_restore(tmp_path: Path, era: str) -> None:
    mine, theirs = (Implementation(name=name, version="1") for name in ("owner", "somebody else"))
    async with (
        served(tmp_path) as at,
        at.client(era, client_info=mine) as owner,
        at.client(era, client_info=theirs) as other,
    ):
        answer = await call(owner, "write_file", path="notes.md", content="gone\n", overwrite=True)
        path, undo = shown_path(answer), handle(answer)
        missing = os.path.dirname(os.path.dirname(path)) + "/000000000000/000000000000-notes.md"
        for tool in ("read_file", "head", "tail"):
            refused, unknown = [await refusal(other, tool, path=one) for one in (path, missing)]
            assert refused.replace(path, "") == unknown.replace(missing, "")
        await refusal(other, "ls", path=os.path.dirname(path))
        refused, unknown = [
            await refusal(other, "write_file", path="notes.md", restore=one) for one in (undo, "0" * 12)
        ]
        assert refused.replace(undo, "") == unknown.replace("0" * 12, "")
        await call(owner, "read_file", path=path)
        await call(owner, "write_file", path="notes.md", restore=undo)
        assert (at.root / "notes.md").read_text(encoding="utf-8") == TEXT


async def test_nothing_is_kept_when_the_operator_says_so(tmp_path: Path) -> None:
    async with served(tmp_path, undo_size=0) as at, at.client() as client:
        answer = await call(client, "write_file", path="notes.md", content="gone\n", overwrite=True)
    assert "the operator has switched undo off" in answer
    assert not (tmp_path / "state/undo").exists()


async def test_what_one_server_keeps_the_next_leaves_alone_and_does_not_show(tmp_path: Path) -> None:
    async with served(tmp_path) as at, at.client() as client:
        answer = await call(client, "write_file", path="notes.md", content="gone\n", overwrite=True)
    old = tmp_path / "state/undo/older"
    old.mkdir()
    moment = time.time() - 8 * 86400
    os.utime(old, (moment, moment))
    async with served(tmp_path) as at, at.client() as client:
        at.app.upkeep()
        assert not old.exists()
        await refusal(client, "read_file", path=shown_path(answer))
        await refusal(client, "write_file", path="notes.md", restore=handle(answer))
    assert Path(shown_path(answer)).read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_commands_see_nothing_that_is_kept_and_what_is_temporary_is_not(
    user: str, servers: Callable[[str, str], confinement.Server]
) -> None:
    server = servers(user, WORKSPACE_WRITE)
    server.bash(f"printf '{TEXT}' > notes.md; printf '{TEXT}' > /tmp/notes.md")
    assert server.call("write_file", path="notes.md", content="gone\n").is_error
    answer = server.call("write_file", path="notes.md", content="gone\n", overwrite=True).text
    assert "No such file" in server.bash(f"cat {shown_path(answer)} 2>&1 || true")
    assert "ndo" not in server.call("write_file", path="/tmp/notes.md", content="gone\n").text
    server.bash("rm notes.md /tmp/notes.md")
