"""Undo as clients have it: both generations of the protocol, several clients, rules, commands."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import Implementation

from mcp_toolserver.capabilities.permissions import Permission
from tests.protocol.resource_clients import Place, place
from tests.support.calling import handle, shown_path
from tests.support.confinement import AS_ROOT_IN_LONG, WORKSPACE_WRITE, Server
from tests.support.live import text

TEXT = "".join(f"line {number} of the user\n" for number in range(20))


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
    user: str, servers: Callable[[str, str], Server]
) -> None:
    server = servers(user, WORKSPACE_WRITE)
    server.bash(f"printf '{TEXT}' > notes.md; printf '{TEXT}' > /tmp/notes.md")
    assert server.call("write_file", path="notes.md", content="gone\n").is_error
    answer = server.call("write_file", path="notes.md", content="gone\n", overwrite=True).text
    assert "No such file" in server.bash(f"cat {shown_path(answer)} 2>&1 || true")
    assert "ndo" not in server.call("write_file", path="/tmp/notes.md", content="gone\n").text
    server.bash("rm notes.md /tmp/notes.md")
