"""What a server on stdio imports of the SDK, and that it is the SDK all the same."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.live import ERAS, Setup, connected, text

pytestmark = pytest.mark.uncounted

NOT_ON_STDIO = ("cryptography", "httpx", "httpx2", "sse_starlette", "starlette", "uvicorn")
NOT_ON_STDIO_OF_THE_SDK = (
    "mcp.client",
    "mcp.server.auth",
    "mcp.server.mcpserver",
    "mcp.server.sse",
    "mcp.server.streamable_http",
)
OURS = (
    *("elicit", "forms", "guidance", "handlers", "messages", "pipes", "refusal", "roots", "sealing"),
    *("stdio", "task_feature", "traffic", "translate"),
)

LOAD = "from mcp_toolserver.protocol import lean_sdk; lean_sdk.load()\n"

SURVEY = f"""
import importlib, inspect, json, sys
from collections.abc import Mapping
from pydantic import BaseModel

def told(model):
    model.model_rebuild()
    config = {{
        key: getattr(value, "__qualname__", value)
        for key, value in model.model_config.items()
        if key != "defer_build"
    }}
    return [config, {{name: repr(field) for name, field in model.model_fields.items()}}]

def models(base):
    for model in base.__subclasses__():
        yield model
        yield from models(model)

def of_the_sdk(value):
    return str(getattr(value, "__module__", "")).startswith("mcp") and hasattr(value, "__qualname__")

for name in ("_v2025_11_25", "_v2026_07_28"):
    importlib.import_module("mcp_types." + name)
methods = importlib.import_module("mcp_types.methods")
tables = {{
    f"{{name}} {{key}}": str(table[key])
    for name, table in vars(methods).items()
    if name.isupper() and isinstance(table, Mapping)
    for key in table
}}
ours = [importlib.import_module("mcp_toolserver.protocol." + name) for name in {OURS!r}]
names = {{
    f"{{module.__name__}}.{{name}}": f"{{value.__module__}}.{{value.__qualname__}}"
    for module in ours
    for name, value in vars(module).items()
    if of_the_sdk(value)
}}
shapes = {{
    f"{{model.__module__}}.{{model.__qualname__}}": told(model)
    for model in models(BaseModel)
    if model.__module__.startswith("mcp_types")
}}
server = importlib.import_module("mcp.server.lowlevel").Server
members = [name for name in dir(server) if callable(getattr(server, name)) or not name.startswith("_")]
found = {{"names": names, "shapes": shapes, "members": members, "tables": tables}}
json.dump(found, sys.stdout, sort_keys=True)
"""

LATER = f"""
{LOAD}
import sys
assert not any(name.startswith("mcp_types._v") for name in sys.modules), "declared too much"
assert not any(name.split(".")[0] in {NOT_ON_STDIO!r} for name in sys.modules), "imported too much"
import mcp, mcp.server, starlette.applications
from mcp.server import MCPServer
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
assert mcp.Client.__module__ == "mcp.client.client"
assert mcp.server.MCPServer is MCPServer
assert issubclass(StreamableHTTPSessionManager, object)
assert starlette.applications.Starlette(debug=True).debug
assert not hasattr(mcp, "no_such_name") and not hasattr(mcp.server, "__wrapped__")
"""

ALREADY_THERE = f"""
import mcp, sys
from mcp.server.lowlevel import Server
{LOAD}
assert sys.modules["mcp"] is mcp and mcp.server.lowlevel.Server is Server
"""


def run(code: str, **environ: str) -> str:
    """What a program prints that runs `code`; it must succeed."""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/file.txt").write_text("content\n", encoding="utf-8")
    return Setup(root=tmp_path / "root", home=tmp_path)


def is_part(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith((f"{package}.", f"{package}_")) for package in packages)


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_on_stdio_imports_neither_http_nor_a_client(setup: Setup, era: str) -> None:
    program, *arguments = setup.command
    parameters = StdioServerParameters(
        command=program, args=["-v", *arguments], env=setup.environment, cwd=os.getcwd()
    )
    log = setup.home / "log"
    with log.open("w", encoding="utf-8") as errors:
        async with Client(stdio_client(parameters, errors), mode=era, read_timeout_seconds=60) as client:
            assert (await client.list_tools()).tools
            assert "content" in text(await client.call_tool("read_file", {"path": "file.txt"}))
    said = log.read_text(encoding="utf-8", errors="replace")
    loaded = {
        name for name, loader in re.findall(r"^import '(\S+)' # (.*)", said, re.M) if "lean" not in loader
    }
    assert {"mcp.server.lowlevel.server", "mcp.server.runner", "pydantic"} <= loaded
    assert not [name for name in loaded if is_part(name, NOT_ON_STDIO + NOT_ON_STDIO_OF_THE_SDK)]


def test_the_sdk_is_the_same_as_when_it_is_imported_whole() -> None:
    lean, whole = (json.loads(run(code)) for code in (LOAD + SURVEY, "import mcp\n" + SURVEY))
    assert lean["names"]
    assert lean["names"] == whole["names"]
    assert lean["members"] == whole["members"]
    assert len(lean["tables"]) > 200
    assert lean["tables"] == whole["tables"]
    assert len(lean["shapes"]) > 300
    assert lean["shapes"] == whole["shapes"]


@pytest.mark.measured
def test_what_was_left_out_comes_when_it_is_asked_for() -> None:
    run(LATER)


@pytest.mark.measured
def test_an_sdk_that_is_there_already_stays() -> None:
    run(ALREADY_THERE)


CHANGES = {
    "a-base-class": ("mcp/server/lowlevel/server.py", "class Application(Starlette): pass"),
    "a-call": ("mcp/server/lowlevel/server.py", "HOME = Mount('/', routes=[])"),
    "an-attribute": ("mcp/server/lowlevel/server.py", "LIMIT = DEFAULT_MAX_SESSIONS.bit_length()"),
    "a-number": ("mcp/server/lowlevel/server.py", "LIMIT = 2 * DEFAULT_MAX_SESSIONS"),
    "a-name-of-the-package": ("mcp/server/lowlevel/server.py", "import mcp; TOOL = mcp.types.Tool"),
    "a-row-of-two-models": ("mcp_types/methods.py", "BOTH = v2025.EmptyResult | v2025.Tool"),
    "a-field-of-a-model": ("mcp_types/methods.py", "FIELDS = v2026.Tool.model_fields"),
}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, id=name, marks=[pytest.mark.measured] if "import" in change[1] else [])
        for name, change in CHANGES.items()
    ],
)
async def test_a_later_sdk_that_needs_all_of_it_is_imported_whole(
    setup: Setup, change: tuple[str, str]
) -> None:
    where, line = change
    other = setup.home / "other"
    for package in ("mcp", "mcp_types"):
        shutil.copytree(Path(mcp.__file__).parent.parent / package, other / package)
    with (other / where).open("a", encoding="utf-8") as module:
        module.write(f"\n{line}\n")
    code = f"{LOAD}import mcp.server.lowlevel as sdk, sys; print(sdk.__file__, 'starlette' in sys.modules)"
    assert run(code, PYTHONPATH=str(other)).split() == [
        str(other / "mcp/server/lowlevel/__init__.py"),
        "True",
    ]
    there: dict[str, Any] = {"PYTHONPATH": str(other)}
    async with connected(Setup(root=setup.root, home=setup.home, environ=there)) as client:
        assert "content" in text(await client.call_tool("read_file", {"path": "file.txt"}))


@pytest.mark.measured
def test_a_package_that_is_not_there_is_not_made_up() -> None:
    code = """
from mcp_toolserver.protocol import lean_sdk
try:
    lean_sdk._leave_unrun("no_such_package")
except ImportError as error:
    print(error.name)
print(hasattr(lean_sdk._StandIns("away"), "__wrapped__"), hasattr(lean_sdk._Format("away"), "__wrapped__"))
lean_sdk._FORMATS = ("mcp_types._none",)
lean_sdk.load()
import mcp.server.lowlevel, sys
print("mcp_types._v2025_11_25" in sys.modules)
"""
    assert run(code).split() == ["no_such_package", "False", "False", "True"]


@pytest.mark.measured
def test_a_client_that_opens_in_neither_way_is_answered_too(setup: Setup) -> None:
    with subprocess.Popen(
        setup.command, env=setup.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write('{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n')
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 7
        server.stdin.close()
        assert server.wait(timeout=30) == 0
