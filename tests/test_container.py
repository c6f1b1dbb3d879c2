"""The container image: its files, and what its server finds in a container."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_toolserver.commands.doctor import install_hints
from mcp_toolserver.commands.doctor.host import Host, covers_proc
from tests.confinement import visible_folder
from tests.without import around

HERE = Path(__file__).parents[1]

_SESSION = """
import sys
from mcp_toolserver.runtime.sandbox.layers.session_namespaces import create_session
create_session(sys.argv[1], network=True).close()
"""


def test_devices_are_fixed_where_the_mount_of_dev_has_flags_that_cannot_be_lifted(tmp_path: Path) -> None:
    # As engines mount it; who owns the devices makes them unchangeable in a user namespace.
    script = 'mount -t tmpfs -o nosuid,nodev,noexec tmpfs /dev && touch /dev/null && exec "$@"'
    container = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*container, sys.executable, "-c", _SESSION, str(tmp_path)],
        capture_output=True, text=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# --- what the doctor says in a container -----------------------------------------------------------------

PODMAN = """
mount -t tmpfs tmpfs /run && touch /run/.containerenv
mount --bind /dev/null /proc/interrupts
exec "$@"
"""
"""Becomes a command in a container of Podman, as far as bubblewrap and the doctor see: parts of /proc are
covered, so the kernel refuses another."""


def _remedy(*before: str) -> str:
    with visible_folder() as base:
        (base / "work").mkdir()
        flags = ("--json", "--permission-mode", "workspace-write")
        places = ("--root", str(base / "work"), "--state-dir", str(base / "state"))
        printed = subprocess.run(
            [*before, sys.executable, "-m", "mcp_toolserver", "doctor", *flags, *places],
            capture_output=True, text=True, encoding="utf-8", timeout=60, check=False, cwd=HERE,
        )  # fmt: skip
    assert printed.returncode == 2, printed.stderr
    found = {finding["what"]: finding for finding in json.loads(printed.stdout)["findings"]}
    assert found["commands"]["standing"] == "missing"
    return found["commands"]["remedy"]


@pytest.mark.measured
@pytest.mark.parametrize(
    ("features", "flags"),
    [
        pytest.param((), "--security-opt unmask=ALL", id="covered"),
        pytest.param(
            ("user-namespaces",),
            "--security-opt seccomp=unconfined --security-opt unmask=ALL",
            id="filtered-and-covered",
        ),
    ],
)
def test_the_doctor_names_exactly_the_flags_that_the_container_lacks(
    features: Sequence[str], flags: str
) -> None:
    container = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", PODMAN, "sh")
    assert _remedy(*container, *around(*features)) == f"this is a container: add to podman run: {flags}"


HOST = Host(
    system="Linux",
    release="6.18",
    machine="x86_64",
    distributions=("debian",),
    container="Docker",
    wsl=False,
    root=False,
    namespaces_forbidden=(),
)


@pytest.mark.parametrize(
    ("host", "says"),
    [
        pytest.param(
            replace(HOST, container_limits=("seccomp", "proc")),
            "add to docker run: --security-opt seccomp=unconfined --security-opt systempaths=unconfined",
            id="Docker",
        ),
        pytest.param(
            replace(HOST, container_limits=("proc", "apparmor")), "apparmor=unconfined", id="AppArmor"
        ),
        pytest.param(replace(HOST, container_limits=("selinux",)), "label=disable", id="SELinux"),
        pytest.param(
            replace(HOST, container_limits=("apparmor",), namespaces_forbidden=("apparmor",)),
            "--security-opt apparmor=mcp-toolserver",
            id="Ubuntu",
        ),
        pytest.param(replace(HOST, container_limits=("capabilities",)), "without --cap-add", id="powers"),
        pytest.param(
            replace(HOST, container="Kubernetes", container_limits=("seccomp", "proc")),
            "seccompProfile: {type: Unconfined}, procMount: Unmasked",
            id="Kubernetes",
        ),
        pytest.param(HOST, "systempaths=unconfined --security-opt apparmor=unconfined", id="unknown"),
    ],
)
def test_each_limit_of_a_container_has_its_flag(host: Host, says: str) -> None:
    assert says in install_hints.sandbox(host, ["/b"])


def test_no_flag_is_guessed_where_the_cause_is_known() -> None:
    assert "docker run" not in install_hints.sandbox(HOST, [])
    said = install_hints.sandbox(
        replace(HOST, container_limits=("apparmor",), namespaces_forbidden=("apparmor",)), ["/b"]
    )
    assert "apparmor=unconfined" not in said


@pytest.mark.parametrize(
    ("mounts", "covered"),
    [
        pytest.param("proc /proc proc rw 0 0\n", False, id="whole"),
        pytest.param("binfmt_misc /proc/sys/fs/binfmt_misc binfmt_misc rw 0 0\n", False, id="empty-folder"),
        pytest.param("tmpfs /proc/acpi tmpfs ro 0 0\n", True, id="masked"),
        pytest.param("proc /proc/sys proc ro 0 0\n", True, id="read-only"),
    ],
)
def test_covered_parts_of_proc_are_seen(mounts: str, covered: bool) -> None:
    assert covers_proc(mounts) is covered
