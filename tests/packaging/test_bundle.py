"""The bundle as a client gets it: built, validated, unpacked, configured and started as by Claude Desktop."""

import json
import os
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import anyio
import jsonschema
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests import ROOT
from tests.packaging.fresh_home import fresh_home
from tests.support.live import text
from tests.support.official import bundle_tool, registry_schema
from tests.support.process_layer import ran

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

pytestmark = [pytest.mark.xdist_group("test_bundle"), pytest.mark.long]


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


def test_the_bundle_contains_the_whole_package_and_is_reproducible(bundle: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == bundle.read_bytes()
    with ZipFile(bundle) as files:
        names = set(files.namelist())
    listed = run("git", "ls-files", "mcp_toolserver", cwd=ROOT).splitlines()
    assert set(listed) <= names
    assert {"manifest.json", "icon.png", "server.py", "pyproject.toml", "LICENSE"} <= names


def test_the_official_program_accepts_the_bundle(unpacked: Path) -> None:
    said = run("node", bundle_tool() / "dist/cli/cli.js", "validate", unpacked, cwd=unpacked)
    assert "Manifest schema validation passes" in said
    assert "Icon validation passed" in said


async def test_the_unpacked_bundle_serves_two_folders_under_a_bare_environment(
    unpacked: Path, tmp_path: Path
) -> None:
    files = [tmp_path / "one folder/a.txt", tmp_path / "another/b.txt"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(f"content {number}", encoding="utf-8")
    folders = json.dumps([str(file.parent) for file in files])
    script = ["--input-type=module", "--eval", CONFIGURED]
    config: dict[str, Any] = json.loads(run("node", *script, unpacked, folders, cwd=bundle_tool()))
    with fresh_home(tmp_path) as home, anyio.fail_after(300):
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


def test_the_entry_of_the_registry_is_valid() -> None:
    entry = json.loads((ROOT / "packaging/server.json").read_text(encoding="utf-8"))
    schema = json.loads(registry_schema("2025-12-11").read_text(encoding="utf-8"))
    assert entry["$schema"] == schema["$id"]
    validator = jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())
    assert list(validator.iter_errors(entry)) == []
    assert list(validator.iter_errors({**entry, "version": 1}))
