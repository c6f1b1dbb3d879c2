"""The files of a release agree: versions, addresses, names and modes are the same everywhere; and what can be
checked without a Mac of those for macOS."""

import hashlib
import json
import os
import plistlib
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from mcp_toolserver import __version__
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.invocation import load
from mcp_toolserver.protocol.mcp_server import DESCRIPTION, TITLE, WEBSITE
from mcp_toolserver.settings import OPTIONS
from tests import ROOT
from tests.support.process_layer import ran

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


PACKAGING = ROOT / "packaging"
FORMULA = PACKAGING / "homebrew/mcp-toolserver.rb"
(AGENT,) = (PACKAGING / "launchd").iterdir()


# --- Homebrew --------------------------------------------------------------------------------------------


def built(*archive: Path) -> str:
    command = [sys.executable, str(PACKAGING / "build_formula.py"), *map(str, archive)]
    done = ran(command, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_formula_is_that_of_the_package_and_says_that_it_was_never_installed() -> None:
    text = FORMULA.read_text(encoding="utf-8")
    assert text == built(), "run python packaging/build_formula.py > packaging/homebrew/mcp-toolserver.rb"
    assert "ever installed with brew" in text.split("class ")[0]
    assert f'license "{PROJECT["license"]}"' in text
    (summary,) = re.findall(r'desc "(.*)"', text)
    # As `brew audit` wants it.
    assert len(summary) <= 80
    assert not re.match(r"(?i)an? |mcp-toolserver", summary)
    assert summary[1:] in PROJECT["description"]


def test_the_formula_of_a_release_names_its_archive_and_checksum(tmp_path: Path) -> None:
    archive = tmp_path / "mcp_toolserver-1.2.3.tar.gz"
    archive.write_bytes(b"source")
    text = built(archive)
    assert f'url "{WEBSITE}/releases/download/v1.2.3/mcp_toolserver-1.2.3.tar.gz"\n' in text
    assert f'sha256 "{hashlib.sha256(b"source").hexdigest()}"\n' in text
    assert re.sub(r'  (url|sha256) ".*"\n', "", text) == FORMULA.read_text(encoding="utf-8")


# --- launchd ---------------------------------------------------------------------------------------------


def test_the_agent_is_read_only_on_loopback_has_no_secret_and_stops_as_the_systemd_unit() -> None:
    agent = plistlib.loads(AGENT.read_bytes())
    assert AGENT.name == f"{agent['Label']}.plist"
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["Umask"] == 0o077
    assert packaging("server.json")["name"].startswith(f"{agent['Label']}/")
    unit = (PACKAGING / "mcp-toolserver.service").read_text(encoding="utf-8")
    assert f"TimeoutStopSec={agent['ExitTimeOut']}\n" in unit
    assert "Restart=on-failure\n" in unit
    program, *arguments = agent["ProgramArguments"]
    settings = load(arguments, {}).settings
    assert settings.permission_mode is Permission.READ_ONLY
    assert (settings.transport, settings.host) == ("http", "127.0.0.1")
    # The server makes no token, which it would write into the log.
    assert settings.token_file is not None
    assert set(agent["EnvironmentVariables"]) == {"PATH"}
    assert not re.search(r"(?i)bearer|authorization|secret", AGENT.read_text(encoding="utf-8"))
    # launchd expands nothing, so every path is absolute.
    paths = [program, agent["StandardErrorPath"], *agent["EnvironmentVariables"]["PATH"].split(":")]
    paths += [*settings.root, settings.token_file]
    assert all(path.startswith("/") and "$" not in path and "~" not in path for path in paths)
