"""What a server on stdio imports, and that the SDK is the SDK all the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.live import Setup, connected, text

NOT_ON_STDIO = ("mcp.client", "mcp.server.mcpserver", "mcp.server.sse")
ENGINES = tuple(
    f"mcp_toolserver.text.{name}"
    for name in ("calculator.", "documents.to_text", "edit.", "notebook.", "patch.plan", "tool_search")
)
"""What only calls of some tools need."""

LATER = """
from mcp_toolserver.protocol.stdio import lazy_sdk
lazy_sdk.load()
import sys
assert "mcp.client" not in sys.modules
import mcp, mcp.server
assert not hasattr(mcp, "__wrapped__") and "mcp.client" not in sys.modules
from mcp.server import MCPServer
assert mcp.Client.__module__ == "mcp.client.client"
assert mcp.server.MCPServer is MCPServer
assert not hasattr(mcp, "no_such_name")
"""


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/file.txt").write_text("content\n", encoding="utf-8")
    return Setup(root=tmp_path / "root", home=tmp_path)


LISTING = """
import json, os

leave, server, target = os._exit, os.getpid(), open(os.environ["MODULE_LIST"], "w", encoding="utf-8")

def end(status):
    if os.getpid() == server:
        import sys
        json.dump(list(sys.modules), target)
        target.close()
    leave(status)

os._exit = end
"""
"""Lists what the server has imported when it ends; its forks list nothing."""


@pytest.mark.parametrize("era", ["legacy", pytest.param("auto", marks=pytest.mark.long)])
async def test_a_server_on_stdio_imports_neither_a_client_nor_the_engines_of_unused_tools(
    setup: Setup, era: str
) -> None:
    site, listed = setup.home / "site", setup.home / "modules"
    site.mkdir()
    (site / "sitecustomize.py").write_text(LISTING, encoding="utf-8")
    environ = {"PYTHONPATH": str(site), "MODULE_LIST": str(listed)}
    there = Setup(root=setup.root, home=setup.home, environ=environ)
    async with connected(there, era=era, read_timeout_seconds=60) as client:
        assert (await client.list_tools()).tools
        assert "content" in text(await client.call_tool("read_file", {"path": "file.txt"}))
    loaded: list[str] = json.loads(listed.read_text(encoding="utf-8"))
    assert "mcp.server.lowlevel.server" in loaded
    assert not [name for name in loaded if name.startswith((*NOT_ON_STDIO, *ENGINES))]


def test_what_was_left_out_comes_when_it_is_asked_for() -> None:
    subprocess.run([sys.executable, "-c", LATER], check=True)
