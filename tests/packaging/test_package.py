"""The package as users get it: built, checked, and run from the wheel by `uvx` and `pipx`."""

import json
import os
import re
import shutil
import sys
from collections.abc import Generator
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from mcp_toolserver.protocol.mcp_server import WEBSITE
from tests import ROOT
from tests.packaging.fresh_home import FreshHome, fresh_home
from tests.support.live import text
from tests.support.process_layer import ran

pytestmark = pytest.mark.xdist_group("test_package")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[FreshHome]:
    """Shared, because every test configures a client of its own."""
    with fresh_home(tmp_path_factory.mktemp("fresh")) as made:
        yield made


@pytest.fixture(scope="module")
def built(home: FreshHome, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel, and the source distribution that it is built from."""
    folder = tmp_path_factory.mktemp("built")
    done = home.run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", folder, ROOT, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.mark.long
def test_the_checker_of_the_package_index_accepts_both_files(built: Path) -> None:
    files = sorted(built.iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz"]
    twine = str(Path(sys.executable).with_name("twine"))
    checked = ran([twine, "check", "--strict", *map(str, files)], env=os.environ)
    assert (checked.returncode, checked.stdout.count("PASSED")) == (0, 2), checked.stdout


def test_the_page_of_the_package_links_to_files_that_exist_and_names_the_registry_entry(wheel: Path) -> None:
    with ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_string(files.read(name).decode())
        assert name.replace("METADATA", "licenses/LICENSE") in files.namelist()
    page = metadata.get_payload()
    assert isinstance(page, str)
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    assert len(links) > 10
    for link in links:
        path = link.partition("#")[0].removeprefix(f"{WEBSITE}/blob/main/")
        assert link.startswith(WEBSITE)
        assert (ROOT / path).is_file(), link
    registered = json.loads((ROOT / "packaging/server.json").read_text(encoding="utf-8"))["name"]
    assert f"<!-- mcp-name: {registered} -->" in page


def test_the_wheel_contains_the_whole_package_and_starts_from_it(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as files:
        listed = ran(["git", "ls-files", "mcp_toolserver"], env=os.environ)
        assert set(listed.stdout.splitlines()) <= set(files.namelist())
        files.extractall(tmp_path)
    (entry,) = tmp_path.glob("*.dist-info/entry_points.txt")
    assert "mcp-toolserver = mcp_toolserver.__main__:main" in entry.read_text(encoding="utf-8")
    code = "import mcp_toolserver.__main__ as it; print(it.__file__); it.main()"
    shown = ran([sys.executable, "-c", code, "--version"], cwd=tmp_path, env=os.environ)
    assert shown.stdout.startswith(f"{tmp_path}/mcp_toolserver/__main__.py\nmcp-toolserver ")


def interpreter(version: str) -> str:
    """The path of this version of Python; skips the test where there is none."""
    found = shutil.which(f"python{version}")
    if found is None:
        pytest.skip(f"there is no python{version} on the PATH")
    code = "import os, sys; print(os.path.realpath(sys.executable))"
    # Where the program is one of pyenv, this selects the version.
    asked = ran([found, "-c", code], env={**os.environ, "PYENV_VERSION": version})
    if asked.returncode != 0:
        pytest.skip(f"python{version} on the PATH does not run")
    return asked.stdout.strip()


@pytest.mark.long
@pytest.mark.parametrize("runner", ["uvx 3.11", "uvx 3.12", "uvx 3.13", "pipx"])
async def test_one_command_on_a_new_machine_configures_a_server_that_starts_for_the_client(
    runner: str, home: FreshHome, wheel: Path, tmp_path: Path
) -> None:
    name, _, version = runner.partition(" ")
    words = ["uvx", "--python", interpreter(version), "--from"] if version else ["pipx", "run", "--spec"]
    (tmp_path / "project").mkdir()
    file = tmp_path / "project/a.txt"
    file.write_text("hello", encoding="utf-8")
    configuration = home.folder / ".claude.json"
    configuration.unlink(missing_ok=True)

    setup = ["mcp-toolserver", "setup", "claude-code", "--root", str(file.parent), "--yes"]
    done = home.run(*words, wheel, *setup, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"It lists \d+ tools in mode read-only", done.stdout)

    entry = json.loads(configuration.read_text(encoding="utf-8"))["mcpServers"]["toolserver"]
    assert Path(entry["command"]).name == name.replace("uvx", "uv")
    assert "archive-v" not in " ".join(entry["args"]), "uv's temporary environment may be gone later"
    bare = ["-i", f"HOME={home.folder}", entry["command"], *entry["args"]]
    parameters = StdioServerParameters(command="/usr/bin/env", args=bare, cwd="/")
    with anyio.fail_after(120):
        async with Client(parameters, mode="legacy") as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "hello" in text(await client.call_tool("read_file", {"path": str(file)}))
            if "bash" in names:
                assert text(await client.call_tool("bash", {"command": "cat a.txt"})).strip() == "hello"
