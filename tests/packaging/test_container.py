"""The container image: its files, and what its server finds in a container."""

import json
import os
import re
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.doctor import install_hints
from mcp_toolserver.commands.doctor.host import Host
from mcp_toolserver.invocation import load
from mcp_toolserver.settings import Settings
from tests import ROOT
from tests.commands.test_doctor import LINUX
from tests.support.confinement import visible_folder
from tests.support.process_layer import ran
from tests.support.without import around

COMPOSE = ROOT / "packaging/compose.yaml"
PAGE = (ROOT / "docs/container.md").read_text(encoding="utf-8")

_SESSION = """
import sys
from mcp_toolserver.runtime.sandbox.layers.namespaces import create_session
create_session(sys.argv[1], network=True).close()
"""


def _container(script: str) -> list[str]:
    """Runs the words after it behind these mounts."""
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", f'{script}\nexec "$@"', "sh"]


def test_devices_are_fixed_where_the_mount_of_dev_has_flags_that_cannot_be_lifted(tmp_path: Path) -> None:
    # As engines mount it; who owns the devices makes them unchangeable in a user namespace.
    mounts = "mount -t tmpfs -o nosuid,nodev,noexec tmpfs /dev && touch /dev/null"
    session = [sys.executable, "-c", _SESSION, str(tmp_path)]
    done = ran([*_container(mounts), *session], env=os.environ)
    assert done.returncode == 0, done.stderr


# --- what the doctor says in a container -----------------------------------------------------------------

PODMAN = """
mount -t tmpfs tmpfs /run && touch /run/.containerenv
mount --bind /dev/null /proc/interrupts
"""
"""Becomes a command in a container of Podman, as far as bubblewrap and the doctor see: parts of /proc are
covered, so the kernel refuses another."""


DOCTOR = (sys.executable, "-m", "mcp_toolserver", "doctor")


def test_the_doctor_names_exactly_the_flags_that_the_container_lacks() -> None:
    with visible_folder() as base:
        (base / "work").mkdir()
        places = ("--root", str(base / "work"), "--state-dir", str(base / "state"))
        doctor = (*DOCTOR, "--json", "--permission-mode", "workspace-write", *places)
        printed = ran([*_container(PODMAN), *around("user-namespaces"), *doctor], env=os.environ)
    assert printed.returncode == 2, printed.stderr
    found = {finding["what"]: finding for finding in json.loads(printed.stdout)["findings"]}
    flags = "--security-opt seccomp=unconfined --security-opt unmask=ALL"
    assert found["commands"]["standing"] == "missing"
    assert found["commands"]["remedy"] == f"this is a container: add to podman run: {flags}"


HOST = replace(LINUX, container="Docker")


UBUNTU = replace(HOST, container_limits=("apparmor",), namespaces_forbidden=("apparmor",))
KUBERNETES = replace(HOST, container="Kubernetes", container_limits=("seccomp", "proc"))
FLAGS: Mapping[str, tuple[Host, str]] = {
    "Docker": (
        replace(HOST, container_limits=("seccomp", "proc")),
        "add to docker run: --security-opt seccomp=unconfined --security-opt systempaths=unconfined",
    ),
    "AppArmor": (replace(HOST, container_limits=("proc", "apparmor")), "apparmor=unconfined"),
    "SELinux": (replace(HOST, container_limits=("selinux",)), "label=disable"),
    "Ubuntu": (UBUNTU, "--security-opt apparmor=mcp-toolserver"),
    "powers": (replace(HOST, container_limits=("capabilities",)), "without --cap-add"),
    "Kubernetes": (KUBERNETES, "seccompProfile: {type: Unconfined}, procMount: Unmasked"),
    "unknown": (HOST, "systempaths=unconfined --security-opt apparmor=unconfined"),
}


def test_each_limit_of_a_container_has_its_flag_and_none_is_guessed_where_the_cause_is_known() -> None:
    said = {name: install_hints.sandbox(host, ["/b"]) for name, (host, _) in FLAGS.items()}
    assert {name: text for name, text in said.items() if FLAGS[name][1] not in text} == {}
    assert "docker run" not in install_hints.sandbox(HOST, [])
    assert "apparmor=unconfined" not in said["Ubuntu"]


@pytest.mark.long
def test_the_doctor_says_what_it_needs_in_a_container_that_cannot_be_written() -> None:
    mounts = "for f in /tmp /var/tmp; do mount -t tmpfs -o ro tmpfs $f; done; mount -o remount,bind,ro /"
    environ = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "TEMP", "TMP")}
    done = ran([*_container(mounts), *DOCTOR], cwd=Path("/"), env=environ)
    assert done.returncode == 2
    assert "--tmpfs /tmp" in done.stderr
    assert "Traceback" not in done.stderr


# --- the image -------------------------------------------------------------------------------------------


def _instructions() -> list[tuple[str, str]]:
    """The name and the words of each instruction of the Containerfile."""
    text = (ROOT / "packaging/Containerfile").read_text(encoding="utf-8")
    code = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    pairs = (line.partition(" ") for line in code.splitlines() if line.strip())
    return [(name, words.strip()) for name, _, words in pairs]


def _last(name: str) -> str:
    return [words for found, words in _instructions() if found == name][-1]


def _in_image(*arguments: str) -> Invocation:
    """What the server of the image takes the `arguments` of a run for."""
    return load(arguments, dict(word.split("=", 1) for word in shlex.split(_last("ENV"))))


def test_the_image_serves_its_working_folder_for_reading_as_an_ordinary_user() -> None:
    assert json.loads(_last("ENTRYPOINT")) == ["/usr/bin/tini", "--", "mcp-toolserver"]
    settings = _in_image().settings
    assert settings.root == (_last("WORKDIR"),)
    assert settings.permission_mode is Permission.READ_ONLY
    assert settings.transport == "stdio"
    assert settings.state_dir is not None
    assert Path(settings.state_dir).parent == Path(_last("VOLUME"))
    assert settings.port == int(_last("EXPOSE"))
    users = [words for name, words in _instructions() if name == "USER"]
    assert users == ["toolserver"]


# --- the compose file ------------------------------------------------------------------------------------

VARIABLES = {"TOOLSERVER_ROOT": "/srv/project", "TOOLSERVER_TOKEN": "/srv/token", "TOOLSERVER_PORT": "9000"}


def _compose() -> dict[str, Any]:
    def value(found: re.Match[str]) -> str:
        name, sign, rest = found.groups()
        assert sign == "-" or name in VARIABLES, f"{name} is required and missing"
        return VARIABLES.get(name, rest)

    text = re.sub(r"\$\{(\w+):([-?])([^}]*)\}", value, COMPOSE.read_text(encoding="utf-8"))
    return YAML(typ="safe").load(text)


def test_the_composed_server_is_reached_with_a_token_and_has_what_its_sandbox_needs() -> None:
    composed = _compose()
    service = composed["services"]["toolserver"]
    settings: Settings = _in_image(*service["command"]).settings
    assert (settings.transport, settings.host, settings.port) == ("http", "0.0.0.0", 9000)
    assert settings.permission_mode is Permission.READ_ONLY
    assert settings.allowed_host == ("localhost",)
    assert service["ports"] == ["127.0.0.1:9000:9000"]
    assert ":9000/healthz" in service["healthcheck"]["test"]
    assert [f"/run/secrets/{secret}" for secret in service["secrets"]] == [settings.token_file]
    assert list(composed["secrets"]) == service["secrets"]
    assert (COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert service["volumes"] == [f"/srv/project:{_last('WORKDIR')}", f"state:{_last('VOLUME')}"]
    assert "state" in composed["volumes"]
    docker = replace(HOST, container_limits=("seccomp", "proc", "apparmor"))
    flags = [f"--security-opt {option}" for option in service["security_opt"][1:]]
    assert install_hints.sandbox(docker, ["/b"]).endswith(" ".join(flags))


def test_the_health_check_fails_where_no_server_answers() -> None:
    program, option, code = shlex.split(_compose()["services"]["toolserver"]["healthcheck"]["test"])
    assert (program, option) == ("python3", "-c")
    # Nothing listens on the port that the system gave away and took back.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    refused = ran([sys.executable, "-c", code.replace("9000", str(port))], env=os.environ)
    assert refused.returncode == 1
    assert "Connection refused" in refused.stderr


# --- the page --------------------------------------------------------------------------------------------


def test_every_run_of_the_page_has_flags_that_the_server_knows() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    runs = [shlex.split(line) for line in lines if re.match("(docker|podman) run ", line)]
    found = [_in_image(*run[run.index("mcp-toolserver") + 1 :]) for run in runs]
    assert [invocation.action for invocation in found] == ["serve", "serve", "doctor", "serve"]
    assert found[-1].settings.token_file == "/run/secrets/token"
