"""Undo with a real server and client: both generations of the protocol, several clients, rules, commands."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client
from mcp_types import Implementation

from tests.support.calling import handle, shown_path
from tests.support.confinement import AS_ROOT_IN_LONG, WORKSPACE_WRITE, Server
from tests.support.live import Setup, SharedServers, connected, connected_to, text
from tests.support.processes import until

TEXT = "".join(f"line {number} of the user\n" for number in range(20))


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/notes.md").write_text(TEXT, encoding="utf-8")
    return Setup(root=tmp_path / "root", home=tmp_path, mode="workspace-write")


async def call(client: Client, tool: str, **arguments: object) -> str:
    """The text of a call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text(result)
    return text(result)


async def refusal(client: Client, tool: str, **arguments: object) -> str:
    """The text of a call that must fail."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text(result)
    return text(result)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_another_client_over_http_can_neither_read_nor_restore(shared: SharedServers, era: str) -> None:
    setup = shared.setup("workspace-write")
    name = f"undo-of-another-{era}.md"
    (setup.root / name).write_text(TEXT, encoding="utf-8")
    owner = await shared.client(setup, "http", era)
    answer = await call(owner, "write_file", path=name, content="gone\n", overwrite=True)
    path, undo = shown_path(answer), handle(answer)
    missing = os.path.dirname(os.path.dirname(path)) + f"/000000000000/000000000000-{name}"
    somebody = Implementation(name="somebody else", version="1")
    async with connected_to(shared.url(setup), "http", mode=era, client_info=somebody) as other:
        for tool in ("read_file", "head", "tail"):
            refused, unknown = [await refusal(other, tool, path=one) for one in (path, missing)]
            assert refused.replace(path, "") == unknown.replace(missing, "")
        assert "line" not in await refusal(other, "grep_search", pattern="user", path=path)
        await refusal(other, "ls", path=os.path.dirname(path))
        refused, unknown = [
            await refusal(other, "write_file", path=name, restore=one) for one in (undo, "0" * 12)
        ]
        assert refused.replace(undo, "") == unknown.replace("0" * 12, "")
    await call(owner, "read_file", path=path)
    await call(owner, "write_file", path=name, restore=undo)
    assert (setup.root / name).read_text(encoding="utf-8") == TEXT


async def test_what_rules_hide_is_not_replaced_and_nothing_is_kept_when_the_operator_says_so(
    setup: Setup,
) -> None:
    config = 'undo-size = 0\n[rules]\ndeny = ["read_file(hidden.md)"]\n'
    (setup.home / "config.toml").write_text(config, encoding="utf-8")
    (setup.root / "hidden.md").write_text(TEXT, encoding="utf-8")
    async with connected(replace(setup, flags=("--config", str(setup.home / "config.toml")))) as client:
        for arguments in ({"content": "gone\n", "overwrite": True}, {"restore": "0" * 12}):
            await refusal(client, "write_file", path="hidden.md", **arguments)
        patch = "*** Begin Patch\n*** Delete File: hidden.md\n*** End Patch"
        await refusal(client, "apply_patch", patch=patch)
        answer = await call(client, "write_file", path="notes.md", content="gone\n", overwrite=True)
    assert (setup.root / "hidden.md").read_text(encoding="utf-8") == TEXT
    assert "the operator has switched undo off" in answer
    assert not (setup.home / "state/undo").exists()


async def test_what_one_server_keeps_the_next_leaves_alone_and_does_not_show(setup: Setup) -> None:
    async with connected(setup) as client:
        answer = await call(client, "write_file", path="notes.md", content="gone\n", overwrite=True)
    old = setup.home / "state/undo/older"
    old.mkdir()
    moment = time.time() - 8 * 86400
    os.utime(old, (moment, moment))
    async with connected(setup) as client:
        await until(lambda: not old.exists())
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
