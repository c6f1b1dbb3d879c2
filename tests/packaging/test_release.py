"""The files of a release agree: versions, addresses, names and modes are the same everywhere."""

import json
import re
import tomllib
from typing import Any

from mcp_toolserver import __version__
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.protocol.mcp_server import DESCRIPTION, TITLE, WEBSITE
from mcp_toolserver.settings import OPTIONS
from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def packaging(name: str) -> Any:
    return json.loads((ROOT / "packaging" / name).read_text(encoding="utf-8"))


def test_every_file_has_the_version_of_the_package() -> None:
    entry = packaging("server.json")
    assert packaging("manifest.json")["version"] == __version__
    assert (entry["version"], [one["version"] for one in entry["packages"]]) == (__version__, [__version__])
    changelog = (ROOT / "docs/changelog.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert newest is not None
    assert newest[1] in (__version__, "Unreleased")


def test_every_file_has_the_same_address_title_and_description() -> None:
    manifest, entry = packaging("manifest.json"), packaging("server.json")
    assert (manifest["display_name"], entry["title"]) == (TITLE, TITLE)
    assert {PROJECT["description"], manifest["description"], entry["description"]} == {DESCRIPTION}
    assert {PROJECT["urls"]["Homepage"], manifest["homepage"], entry["websiteUrl"]} == {WEBSITE}
    formula = "packaging/homebrew/mcp-toolserver.rb"
    for name in ("pyproject.toml", "packaging/manifest.json", "packaging/server.json", formula):
        addresses = re.findall(r"https://github\.com/[\w./-]+", (ROOT / name).read_text(encoding="utf-8"))
        assert addresses
        assert all(address.startswith(WEBSITE) for address in addresses), name


def test_bundle_and_registry_entry_pass_flags_that_exist() -> None:
    flags = {f"--{option.name}" for option in OPTIONS if option.flag}
    manifest, entry = packaging("manifest.json"), packaging("server.json")
    arguments = entry["packages"][0]["packageArguments"]
    command = manifest["server"]["mcp_config"]["args"]
    assert {argument["name"] for argument in arguments} <= flags
    assert {word for word in command[command.index("server.py") :] if word.startswith("--")} <= flags
    modes = [permission.flag for permission in Permission]
    assert arguments[0]["choices"] == modes
    assert all(mode in manifest["user_config"]["permission_mode"]["description"] for mode in modes)
    assert manifest["compatibility"]["runtimes"]["python"] == PROJECT["requires-python"]
