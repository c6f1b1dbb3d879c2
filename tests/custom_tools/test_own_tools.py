"""Tools of the operator's own: where they may come from, and what a real server lets them do."""

import json
import os
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from mcp_toolserver.app.compose import build_application
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.custom_tools.load import load_custom_tools
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.runtime.executables import HostExecutables
from tests.support.live import Setup, connected, text

SHOUT = """
from mcp_toolserver.custom_tools import define_tool

print("loading")
TOOLS = [define_tool("shout", "Say it loudly.", lambda args, _: args["word"].upper(),
                     {"type": "object", "properties": {"word": {"type": "string"}}}, is_read_only=True)]
"""

NATIVE = """
from mcp_toolserver.tool_spec import Args, Output, Runtime, ToolSpec
from mcp_toolserver.tool import Capability, Field, Permission, WorkspacePath

class Count(Args):
    path: WorkspacePath = Field(description="File")

async def run(args: Count, rt: Runtime) -> Output:
    return Output(str(await rt.fs.read(args.path, lambda file, size: size)))

TOOL = ToolSpec(name="count_bytes", description="Count the bytes of a file.", permission=Permission.READ_ONLY,
                needs=frozenset({Capability.FS_READ}), args=Count, run=run, kind="read",
                subjects=lambda args: (args.path,))
"""

OWN_CLASS = """
class Own:
    name, description, input_schema = "own", "Do nothing.", {"type": "object"}
    execute = check_permissions = is_read_only = lambda *_: True

TOOLS = [Own()]
"""


def written(folder: Path, content: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return str(path)


def names(entries: Sequence[Entry]) -> list[str]:
    return [entry.spec.name for entry in entries]


def test_a_file_gives_what_it_assigns_and_prints_nothing_to_a_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [written(tmp_path, SHOUT), written(tmp_path, NATIVE, "native.py")]
    entries = load_custom_tools(files, (), ())
    assert names(entries) == ["shout", "count_bytes"]
    assert {entry.toolset for entry in entries} == {"user"}
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "loading\n")


USELESS = (
    ("x = (", "SyntaxError"),
    ("raise SystemExit(0)", "SystemExit"),
    ("x = 1", "assigns nothing to TOOLS"),
    ("TOOLS = [1]", "int is not a tool"),
    (OWN_CLASS, "Own is not a tool"),
    (SHOUT.replace('"shout"', '"no name"'), "cannot be loaded"),
    (NATIVE.replace("FS_READ", "FS_WRITE"), "does not cover fs_write"),
    (NATIVE.replace("permission=Permission.READ_ONLY,", ""), "give `permission`"),
    (NATIVE.replace('"Count the bytes of a file."', '""'), "characters"),
    ("from mcp_toolserver.tools.search.call_tool import TOOL", "call others"),
)


def test_a_file_without_tools_stops_the_start(tmp_path: Path) -> None:
    for content, says in USELESS:
        with pytest.raises(SettingsError, match=says):
            load_custom_tools([written(tmp_path, content)], (), ())


def test_a_file_that_others_may_write_or_that_is_none_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, SHOUT)
    for mode in (0o664, 0o646):
        os.chmod(path, mode)
        with pytest.raises(SettingsError, match="nobody else"):
            load_custom_tools([path], (), ())
    os.mkfifo(tmp_path / "fifo")
    os.truncate(written(tmp_path, "", "long.py"), 11 * 1024 * 1024)
    for name, says in (("none.py", "cannot be read"), ("fifo", "regular file"), ("long.py", "too large")):
        with pytest.raises(SettingsError, match=says):
            load_custom_tools([str(tmp_path / name)], (), ())


def test_a_file_inside_a_root_is_refused_also_by_a_link_in_or_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    inside, outside = written(root, SHOUT), written(tmp_path, SHOUT)
    (root / "link.py").symlink_to(outside)
    (tmp_path / "link.py").symlink_to(inside)
    for path in (inside, str(root / "link.py"), str(tmp_path / "link.py")):
        config = written(tmp_path, f"tool-files = [{json.dumps(path)}]", "c.toml")
        with pytest.raises(SettingsError, match="inside the root"):
            load(["--config", config, "--root", str(root)], {})
    config = written(tmp_path, f"tool-files = [{json.dumps(outside)}]", "c.toml")
    assert load(["--config", config, "--root", str(root)], {}).settings.tool_files == (outside,)


def test_a_sandbox_for_commands_lowers_no_permission_of_own_tools(tmp_path: Path) -> None:
    native = NATIVE.replace("FS_READ", "PROCESS").replace("READ_ONLY", "DANGER_FULL_ACCESS")
    (entry,) = load_custom_tools([written(tmp_path, native)], (), ())
    assert entry.spec.level({Capability.PROCESS: Permission.READ_ONLY}) is Permission.DANGER_FULL_ACCESS


def test_no_flag_and_no_variable_adds_tools() -> None:
    for argv, environ in ((["--tool-files", "/x"], {}), ([], {"MCP_TOOLSERVER_TOOL_FILES": "/x"})):
        with pytest.raises(SettingsError):
            load(argv, environ)


def package(folder: Path, module: str, *, offers: str = "", name: str = "acme") -> None:
    """An installed distribution, as far as Python sees."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(SHOUT, encoding="utf-8")
    info = folder / f"{module}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n", encoding="utf-8")
    value = offers or f"{module}:TOOLS"
    (info / "entry_points.txt").write_text(f"[mcp_toolserver.tools]\n{name} = {value}\n", encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A folder that Python looks for packages in."""
    folder = tmp_path / "site"
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]


def test_only_a_package_that_is_named_gives_tools_and_is_imported(installed: Path) -> None:
    package(installed, "acme_one")
    assert load_custom_tools((), (), ()) == ()
    with pytest.raises(SettingsError, match="there are: acme"):
        load_custom_tools((), ["other"], ())
    with pytest.raises(SettingsError, match="inside a root"):
        load_custom_tools((), ["acme"], [str(installed)])
    assert "acme_one" not in sys.modules
    assert names(load_custom_tools((), ["acme"], ())) == ["shout"]
    assert "acme_one" in sys.modules
    package(installed, "acme_two")
    with pytest.raises(SettingsError, match="2 installed packages"):
        load_custom_tools((), ["acme"], ())


def test_a_module_inside_a_root_is_refused_although_its_package_is_elsewhere(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(installed, "acme_six")
    root = tmp_path / "root"
    root.mkdir()
    (installed / "acme_six.py").rename(root / "acme_six.py")
    monkeypatch.syspath_prepend(root)
    with pytest.raises(SettingsError, match="inside a root"):
        load_custom_tools((), ["acme"], [str(root)])
    assert "acme_six" not in sys.modules


@pytest.mark.parametrize("offers", ["nowhere_at_all:TOOLS", "acme_seven:MISSING", "acme_seven.deeper:TOOLS"])
def test_a_package_that_does_not_hold_what_it_offers_stops_the_start(offers: str, installed: Path) -> None:
    package(installed, "acme_seven", offers=offers)
    with pytest.raises(SettingsError, match="cannot be loaded"):
        load_custom_tools((), ["acme"], ())


REACHING = """
import os, socket, subprocess
from mcp_toolserver.custom_tools import define_tool

def write(args, context):
    with open(args["path"], "w", encoding="utf-8") as file:
        file.write("x")
    return "written"

def run(context):
    return subprocess.run(["true"]).returncode

PATH = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = [
    define_tool("own_write", "Write a file.", write, PATH, is_read_only=True),
    define_tool("own_run", "Run a program.", run, is_read_only=True),
    define_tool("own_dear", "Declares nothing.", run),
    define_tool("own_print", "Print.", lambda context: print("to the client"), is_read_only=True),
]
"""


def setup(folder: Path, mode: str, content: str = REACHING, *flags: str) -> Setup:
    root, home = folder / "root", folder / "home"
    root.mkdir()
    home.mkdir()
    config = written(home, f"tool-files = [{json.dumps(written(home, content))}]", "c.toml")
    return Setup(root=root, home=home, mode=mode, flags=("--config", config, *flags))


async def test_in_workspace_write_its_code_can_write_the_roots_and_nothing_else(tmp_path: Path) -> None:
    setting = setup(tmp_path, "workspace-write", REACHING, "--network", "none")
    async with connected(setting) as client:
        inside, outside = setting.root / "x", tmp_path / "x"
        assert not (await client.call_tool("own_write", {"path": str(inside)})).is_error
        assert (await client.call_tool("own_write", {"path": str(outside)})).is_error
        # Its code is said to reach out exactly where the server can.
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}["own_write"]
        assert hints is not None
        assert hints.open_world_hint is False
    assert inside.read_text(encoding="utf-8") == "x"
    assert not outside.exists()


GIVING = """
from mcp_toolserver.custom_tools import Image, ResourceLink, ToolResult, define_tool

async def count(given, context):
    await context.report(f"call {context.call_id}")
    seen = context.state.get("seen", 0) + 1
    return ToolResult(output=f"seen {seen}", error="no" if given.get("fails") else None,
                      images=[Image(data=b"dot", mime_type="image/png")],
                      resources=[ResourceLink(uri="file:///map.svg", name="map")],
                      state_update={"seen": seen})

TOOLS += [define_tool("count", "Count.", count, {"type": "object", "properties": {"fails": {}}},
                     is_read_only=True, is_open_world=False)]
"""


@pytest.mark.requirement("SW-37", "SW-45", "SW-46", "SW-49", "DA-39", "DA-41", "DA-42")
async def test_a_read_only_server_gives_what_its_code_returns_and_keeps_it_from_writing_and_starting(
    tmp_path: Path,
) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    setting = setup(tmp_path, "read-only", REACHING + GIVING)
    async with connected(setting) as client:
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        assert "own_dear" not in hints
        found = [one and one.open_world_hint for one in (hints["own_write"], hints["count"])]
        assert found == [True, False]
        for path in (setting.root / "x", tmp_path / "x", Path.home() / "x-of-a-test"):
            result = await client.call_tool("own_write", {"path": str(path)})
            assert result.is_error, path
            assert not path.exists()
        assert (await client.call_tool("own_run", {})).is_error
        assert "requires danger-full-access" in text(await client.call_tool("own_dear", {}))
        assert not (await client.call_tool("own_print", {})).is_error
        for fails, says in ((False, "seen 1"), (True, "no"), (False, "seen 2")):
            result = await client.call_tool("count", {"fails": fails}, progress_callback=hear)
            assert (result.is_error, text(result).split("\n")[0]) == (fails, says)
            assert ("1 images are not sent" in text(result)) == fails
            if not fails:
                _, picture, link = (block.model_dump(exclude_none=True) for block in result.content)
                assert (picture["data"], picture["mime_type"]) == ("ZG90", "image/png")
                assert link == {"type": "resource_link", "name": "map", "uri": "file:///map.svg"}
    assert len({message for message in heard if message and message.startswith("call ")}) == 3


async def test_a_name_that_the_server_has_stops_the_start(tmp_path: Path) -> None:
    setting = setup(tmp_path, "read-only", SHOUT.replace('"shout"', '"Read"'))
    settings = load([*setting.command[3:]], {}).settings
    with pytest.raises(SettingsError, match="'Read'"):
        build_application(settings, None, HostExecutables(), held_by=None)


def test_the_state_of_a_client_goes_with_it(tmp_path: Path) -> None:
    settings = load(["--root", str(tmp_path)], {}).settings
    app = build_application(settings, None, HostExecutables(), held_by=None)
    app.dispatcher.states["gone"] = {"seen": 1}
    app.changes.forget("gone")
    assert not app.dispatcher.states
