"""The package and the bundle as users get them: built, checked, and started on a machine that is new."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import anyio
import jsonschema
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from mcp_toolserver.protocol.mcp_server import WEBSITE
from tests import ROOT
from tests.support.live import text
from tests.support.official import bundle_tool, cache_folder, registry_schema
from tests.support.process_layer import ran

_SECONDS = 300
"""For a first installation, on a slow line."""

_PROGRAMS = ("uv", "uvx", "pipx")


@dataclass(frozen=True)
class FreshHome:
    """A home folder with the configuration of uv, and the programs that a user has on the PATH."""

    folder: Path
    path: str

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.folder), "PATH": self.path}

    def run(self, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of this PATH with HOME and PATH alone."""
        return subprocess.run(
            [
                "/usr/bin/env",
                "-i",
                *(f"{name}={value}" for name, value in self.environment.items()),
                *command,
            ],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_SECONDS,
            check=False,
        )


@contextmanager
def fresh_home(folder: Path) -> Generator[FreshHome]:
    """A new home below `folder`."""
    home, programs = folder / "home", folder / "programs"
    (home / ".config/uv").mkdir(parents=True)
    programs.mkdir()
    for name in _PROGRAMS:
        (programs / name).symlink_to(Path(sys.executable).with_name(name))
    with _uv_cache() as cache:
        settings = {"cache-dir": str(cache), "system-certs": True, "python-downloads": "never", **_index()}
        lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        (home / ".config/uv/uv.toml").write_text("".join(lines), encoding="utf-8")
        yield FreshHome(home, f"{programs}:/usr/bin:/bin")


@contextmanager
def _uv_cache() -> Generator[Path]:
    """The folder in which uv keeps packages between runs. Environments of earlier runs are removed when no
    other run uses it."""
    cache = cache_folder() / "uv"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "uv.lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            shutil.rmtree(cache / "environments-v2", ignore_errors=True)
            uv = Path(sys.executable).with_name("uv")
            subprocess.run(
                [uv, "cache", "prune", "--quiet", "--cache-dir", cache], timeout=_SECONDS, check=True
            )
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield cache


def _index() -> dict[str, Any]:
    """The package index that pip uses, if another one than PyPI is configured."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    variables: Sequence[str] = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    given = [os.environ.get(name, "") for name in variables]
    found = next(filter(None, [*given, asked.stdout.strip()]), None)
    return {"index-url": found} if found else {}


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


CONFIGURED = """
import { readFileSync } from "node:fs";
import { getMcpConfigForManifest } from "./dist/index.js";

const [extensionPath, folders] = process.argv.slice(1);
const manifest = JSON.parse(readFileSync(`${extensionPath}/manifest.json`, "utf-8"));
const userConfig = { folders: JSON.parse(folders) };
const given = { manifest, extensionPath, systemDirs: {}, userConfig, pathSeparator: "/" };
console.log(JSON.stringify(await getMcpConfigForManifest(given)));
"""
"""Prints the command with which a client starts the bundle; the package does this for Claude Desktop."""


def run(*command: str | Path, cwd: Path) -> str:
    done = ran([*map(str, command)], env=os.environ, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder: Path) -> Path:
    return Path(run(sys.executable, ROOT / "packaging/build_bundle.py", folder, cwd=ROOT).strip())


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def unpacked(bundle: Path) -> Path:
    """The bundle, unpacked by the official program."""
    folder = bundle.parent / "unpacked"
    run("node", bundle_tool() / "dist/cli/cli.js", "unpack", bundle, folder, cwd=bundle.parent)
    return folder


@pytest.mark.long
def test_the_bundle_contains_the_whole_package_and_is_reproducible(bundle: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == bundle.read_bytes()
    with ZipFile(bundle) as files:
        names = set(files.namelist())
    listed = run("git", "ls-files", "mcp_toolserver", cwd=ROOT).splitlines()
    assert set(listed) <= names
    assert {"manifest.json", "icon.png", "server.py", "pyproject.toml", "LICENSE"} <= names


@pytest.mark.long
def test_the_official_program_accepts_the_bundle(unpacked: Path) -> None:
    said = run("node", bundle_tool() / "dist/cli/cli.js", "validate", unpacked, cwd=unpacked)
    assert "Manifest schema validation passes" in said
    assert "Icon validation passed" in said


@pytest.mark.long
async def test_the_unpacked_bundle_serves_two_folders_under_a_bare_environment(
    unpacked: Path, home: FreshHome, tmp_path: Path
) -> None:
    files = [tmp_path / "one folder/a.txt", tmp_path / "another/b.txt"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(f"content {number}", encoding="utf-8")
    folders = json.dumps([str(file.parent) for file in files])
    script = ["--input-type=module", "--eval", CONFIGURED]
    config: dict[str, Any] = json.loads(run("node", *script, unpacked, folders, cwd=bundle_tool()))
    with anyio.fail_after(300):
        variables = [f"{name}={value}" for name, value in home.environment.items()]
        bare = ["-i", *variables, config["command"], *config["args"]]
        parameters = StdioServerParameters(command="/usr/bin/env", args=bare, cwd="/")
        async with Client(parameters, mode="legacy") as client:
            for number, file in enumerate(files):
                result = await client.call_tool("read_file", {"path": str(file)})
                assert f"content {number}" in text(result)
            outside = await client.call_tool("read_file", {"path": str(unpacked / "manifest.json")})
            assert outside.is_error
            assert "write_file" not in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.long
def test_the_entry_of_the_registry_is_valid() -> None:
    entry = json.loads((ROOT / "packaging/server.json").read_text(encoding="utf-8"))
    schema = json.loads(registry_schema("2025-12-11").read_text(encoding="utf-8"))
    assert entry["$schema"] == schema["$id"]
    validator = jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())
    assert list(validator.iter_errors(entry)) == []
    assert list(validator.iter_errors({**entry, "version": 1}))
