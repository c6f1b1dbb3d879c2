"""Protected names and a real server in workspace-write: what a command prepares out of sight, what a session
or a background job plants, and what the user makes meanwhile, which stays the user's."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.cases import collected, until
from tests.support.confinement import (
    AS_NOBODY,
    AS_ROOT_IN_LONG,
    AS_UNPRIVILEGED_IN_LONG,
    PROTECTED_GIT,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Server,
    Servers,
    put,
    scene,
    serving,
)
from tests.support.processes import arguments, processes, state, status


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Servers) -> Generator[Server]:
    """The shared server of a user, whose root has afterwards what it had before."""
    shared = servers(request.param, PROTECTED_GIT)
    before = set(shared.scene.root.iterdir())
    yield shared
    for new in set(shared.scene.root.iterdir()) - before:
        subprocess.run(["rm", "-rf", new], check=True)


by_user = pytest.mark.parametrize("server", AS_ROOT_IN_LONG, indirect=True)

CONFIG = "[core]\\nfsmonitor = ./evil\\n"
PLANT = f"mkdir -p {{0}}/.git/hooks && printf '{CONFIG}' > {{0}}/.git/config && touch {{0}}/.git/hooks/x"

ATTACKS = {
    "deeper-than-any-scan": (
        ["mkdir proj && " + PLANT.format("a/b/c/d/y"), "mv proj a/old && mv a/b/c/d/y proj"],
        ["proj/.git", "a/b/c/d/y/.git"],
    ),
    "deep-settings": (
        ["mkdir -p a/b/c/d/e/.vscode && touch a/b/c/d/e/.vscode/tasks.json", "mv a/b/c/d/e up"],
        ["up/.vscode", "a/b/c/d/e/.vscode"],
    ),
    "in-a-folder-of-packages": (
        [PLANT.format("node_modules/q"), "mv node_modules/q q"],
        ["q/.git", "node_modules/q/.git"],
    ),
    "prepared-in-a-closed-folder": (
        [PLANT.format("shut/in") + " && chmod 0 shut", "chmod 755 shut; mv shut/in open"],
        ["open/.git", "shut/in/.git"],
    ),
    "by-one-command": (
        [PLANT.format("one/two/three/four/five") + "; mv one/two/three/four/five six; mv six seven"],
        ["seven/.git", "one/two/three/four/five/.git", "six/.git"],
    ),
}


@by_user
def test_what_a_command_prepares_out_of_sight_does_not_come_into_place(server: Server) -> None:
    with collected() as case:
        for name, (commands, places) in ATTACKS.items():
            with case(name):
                said = [server.bash(command) for command in commands]
                assert [place for place in places if os.path.lexists(server.scene.root / place)] == []
                assert "was moved away" in said[0]


@by_user
def test_thousands_of_folders_hide_nothing(server: Server) -> None:
    root = server.scene.root
    config = (root / "hostile/.git/config").read_bytes()
    server.bash("mkdir -p flood/{1..2101}")
    server.bash(
        "echo evil > hostile/.git/config; echo evil > hostile/.git/hooks/x; "
        "mkdir .idea .claude flood/77/.vscode; touch flood/2101/.envrc"
    )
    assert (root / "hostile/.git/config").read_bytes() == config
    for place in ("hostile/.git/hooks/x", ".idea", ".claude", "flood/77/.vscode", "flood/2101/.envrc"):
        assert not os.path.lexists(root / place)


MODES = (0o1733, 0o733, 0o333, 0o311, 0o711, 0o300)
PLANTED = ("{}/.vscode/tasks.json", "{}/inner/.envrc", "{}/inner/deep/.git/config")


@pytest.mark.parametrize("user", AS_UNPRIVILEGED_IN_LONG)
def test_a_folder_that_may_be_entered_but_not_listed_keeps_nothing(user: str) -> None:
    """Of another user, made before the start or between two commands, and of a command itself."""
    with scene(user) as at:

        def shut(name: str, mode: int) -> None:
            (at.root / name / "inner").mkdir(parents=True)
            (at.root / name / "inner").chmod(0o777)
            if os.geteuid() == 0:
                os.chown(at.root / name, *(2 * (65534 if user == "root" else 0,)))
            (at.root / name).chmod(mode)

        for mode in MODES:
            shut(f"early{mode:o}", mode)
        with serving(at, WORKSPACE_WRITE) as server, collected() as case:
            server.bash("true")
            for mode in MODES:
                shut(f"late{mode:o}", mode)
            for when in ("early", "late", "own"):
                names = [f"{when}{mode:o}" for mode in MODES]
                places = [place.format(name) for name in names for place in PLANTED]
                made = "; ".join(f"mkdir -p {name}/inner; chmod {name[3:]} {name}" for name in names)
                plant = "; ".join(f"mkdir -p $(dirname {place}); echo x > {place}" for place in places)
                server.bash(f"{made if when == 'own' else 'true'}; {plant}; echo ended")
                with case(when):
                    assert [place for place in places if os.path.lexists(at.root / place)] == []


@pytest.mark.parametrize("server", AS_ROOT_IN_LONG[-1:], indirect=True)
def test_a_report_whose_every_note_is_as_long_as_can_be_arrives_whole(server: Server) -> None:
    name = "\N{PILE OF POO}" * 60
    made = f"for i in $(seq 40); do d=long/$i/{name}/{name}/{name}; mkdir -p $d/.vscode; done"
    said = server.bash(f"{made}; exit 3")
    assert "exit status 3" in said
    assert said.count("long/") >= 20
    assert "There are 20 more such paths" in said
    assert list((server.scene.root / "long").rglob(".vscode")) == []


@pytest.mark.parametrize("server", AS_ROOT_IN_LONG[-1:], indirect=True)
def test_the_notice_tells_how_to_restore(server: Server) -> None:
    said = server.bash("mkdir -p 'a b' && echo mine > 'a b/.envrc'")
    restore = re.findall(r"restore it: (mv -- .*?)\]", said)[0]
    subprocess.run(["sh", "-c", restore], check=True)
    assert (server.scene.root / "a b/.envrc").read_text(encoding="utf-8") == "mine\n"


def test_a_name_that_the_operator_excepts_is_written_and_no_other() -> None:
    with scene(USERS[-1]) as at, serving(at, WORKSPACE_WRITE, "--writable-name", ".vscode") as server:
        assert "not protected (--writable-name): .vscode" in server.client.instructions
        said = server.bash(
            "echo x >> .vscode/settings.json; mkdir -p n/.vscode/.idea; touch .envrc; echo ended"
        )
        assert "ended" in said
        assert (at.root / ".vscode/settings.json").read_text(encoding="utf-8") == "{}\nx\n"
        assert not server.call("write_file", path="n/.vscode/tasks.json", content="{}").is_error
        assert server.call("write_file", path="n/.vscode/.envrc", content="x").is_error
        left = (path for path in ("n/.vscode/.idea", ".envrc") if os.path.lexists(at.root / path))
        assert list(left) == []


def session(server: Server, code: str, handle: str = "new") -> tuple[str, str]:
    """What an evaluation gave, and the handle of its session."""
    said = server.call("REPL", language="shell", code=code, session=handle)
    assert not said.is_error, said.text
    found = re.findall(r"repl_[0-9a-f]{6}", said.text)
    return said.text, found[0] if found else handle


@by_user
def test_what_a_session_plants_is_gone_when_the_evaluation_ends(server: Server) -> None:
    _, handle = session(server, "echo started")
    said, _ = session(
        server, "mkdir -p planted/.idea deep/er/.vscode; touch deep/.envrc; echo planted", handle
    )
    assert "planted" in said
    for place in ("planted/.idea", "deep/er/.vscode", "deep/.envrc"):
        assert not os.path.lexists(server.scene.root / place)
        assert place in said
    assert "goes on" in session(server, "echo it goes on", handle)[0]


@by_user
def test_a_session_is_stopped_when_the_user_makes_what_it_is_not_kept_from(server: Server) -> None:
    _, handle = session(server, "echo started")
    # Another command has the roots checked, so the next check covers only a time in which the session waits.
    server.bash("true")
    user_runs(server.scene, "git init --quiet mine && git -C mine config user.name me")
    config = server.scene.root / "mine/.git/config"
    kept = config.read_bytes()
    said, _ = session(server, "echo evil >> mine/.git/config; echo evil > mine/.git/hooks/pre-commit", handle)
    assert "was stopped" in said
    assert "mine/.git" in said
    assert config.read_bytes() == kept
    assert not (server.scene.root / "mine/.git/hooks/pre-commit").exists()
    again, _ = session(server, "echo evil > mine/.git/hooks/pre-commit; echo ended")
    assert "ended" in again
    assert not (server.scene.root / "mine/.git/hooks/pre-commit").exists()


@by_user
def test_what_a_background_job_plants_is_moved_away_while_it_runs(server: Server) -> None:
    plants = "mkdir -p job/.idea; touch done; exec sleep 300"
    started = server.call("bash", command=plants, run_in_background=True)
    handle = re.findall(r"bg_[0-9a-f]{6}", started.text)[0]
    until((server.scene.root / "done").exists)
    until(lambda: not (server.scene.root / "job/.idea").exists())
    until(lambda: "job/.idea appeared" in server.call("TaskOutput", task_id=handle, until="now").text)
    assert "running for" in server.call("TaskOutput", task_id=handle, until="now").text
    assert "job/.idea appeared" in server.call("TaskStop", task_id=handle).text


@by_user
def test_a_command_that_plants_again_and_again_is_stopped_and_the_next_one_of_its_session_too(
    server: Server,
) -> None:
    """ATTACK: what is moved away comes back at once, and programs of the user find it most of the time."""
    planting = "while :; do mkdir -p again/.vscode; touch again/.vscode/tasks.json; sleep 0.01; done"
    for said in (
        server.call("TaskOutput", task_id=server.start(planting), wait_ms=20_000).text,
        server.call("bash", command="mkdir -p again/.vscode; sleep 60").text,
    ):
        assert "again/.vscode was made again" in said
        assert not (server.scene.root / "again/.vscode").exists()
    # Another name stops nothing.
    assert "on it goes" in server.bash("mkdir -p again/.idea; sleep 1.5; echo on it goes")


@by_user
def test_what_the_user_makes_while_a_command_sleeps_stays_and_the_command_is_stopped(server: Server) -> None:
    started = server.call("bash", command="touch ready; exec sleep 300", run_in_background=True)
    handle = re.findall(r"bg_[0-9a-f]{6}", started.text)[0]
    until((server.scene.root / "ready").exists)
    until(lambda: sleeps(server, 300))
    quarantined = set((server.scene.state / "quarantine").rglob("*"))
    # Another command has the roots checked, so the next check covers only a time in which this one sleeps.
    server.bash("true")
    user_runs(server.scene, "git init --quiet mine && touch mine/.envrc .envrc")
    until(lambda: "running for" not in server.call("TaskOutput", task_id=handle).text)
    said = server.call("TaskOutput", task_id=handle).text
    assert "stopped after" in said
    assert "by somebody else" in said
    for place in ("mine/.git/HEAD", "mine/.envrc", ".envrc"):
        assert (server.scene.root / place).exists()
    assert set((server.scene.state / "quarantine").rglob("*")) == quarantined


@by_user
def test_what_the_user_makes_between_two_commands_is_protected_from_the_next(server: Server) -> None:
    server.bash("true")
    user_runs(server.scene, "git init --quiet deep/down/in/here/mine && touch .envrc")
    said = server.bash("echo evil > deep/down/in/here/mine/.git/hooks/x; echo evil > .envrc; echo ended")
    assert "ended" in said
    assert not (server.scene.root / "deep/down/in/here/mine/.git/hooks/x").exists()
    assert (server.scene.root / ".envrc").read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("server", AS_ROOT_IN_LONG[-1:], indirect=True)
def test_what_comes_to_be_hidden_later_is_hidden(server: Server) -> None:
    secret = server.scene.home / ".netrc"
    for name in ("first", "replaced", "made anew"):
        assert server.bash("echo on") == "on\n"
        if name == "made anew":
            secret.unlink()
        new = secret.with_name("new")
        new.write_text(name, encoding="utf-8")
        server.scene.own()
        new.rename(secret)
        assert server.bash(f"cat {secret}") == "(no output)"


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_a_command_whose_supervisor_is_killed_is_an_error_and_without_a_verifier_none_runs(user: str) -> None:
    command = "echo printed; mkdir .idea; touch ready; exec sleep 987"
    with scene(user) as at, serving(at, *PROTECTED_GIT.split()) as server:
        server.client.begin("tools/call", {"name": "bash", "arguments": {"command": command}})
        until((at.root / "ready").exists)
        until(lambda: sleeps(server, 987))
        above = ancestors(sleeping(server, 987))
        os.kill(next(pid for pid in above if "mcp_toolserver" in arguments(pid)), signal.SIGKILL)
        said = server.client.answer().result
        text = said["content"][0]["text"]
        assert said["isError"]
        assert "could not be verified" in text
        assert "printed" in text
        until(lambda: not (at.root / ".idea").exists(), 30)
        broker = min(children(server.client.pid), key=start_ticks)
        os.kill(min(children(broker), key=start_ticks), signal.SIGKILL)
        refused = server.call("bash", command="touch ran")
        assert refused.is_error
        assert "protected names cannot be verified" in refused.text
        assert not (at.root / "ran").exists()
        assert not server.call("read_file", path="f").is_error


FEWER_FOLDERS = """
from mcp_toolserver.runtime.sandbox.protected import snapshot
snapshot.MOST_FOLDERS = 2_000
"""
"""The interpreter runs it before the server: as many as the server allows take minutes to make and remove."""


@pytest.mark.long
def test_with_more_folders_than_can_be_verified_commands_only_remove_some() -> None:
    with scene(USERS[0]) as at:
        patch = put(at.base / "run/patch/sitecustomize.py", FEWER_FOLDERS)
        environ = {"PYTHONPATH": str(patch.parent)}
        with serving(at, WORKSPACE_WRITE, environ=environ) as server:
            server.bash("touch ran")
            for number in range(2_010):
                (at.root / f"{number}").mkdir()
            server.bash("rmdir 1 2 3")
            said = server.call("bash", command="mkdir {3000..3010}; sleep 60")
            assert "stopped" in said.text
            assert "2,000" in said.text
            for number in range(4_000, 6_000):
                (at.root / f"{number}").mkdir()
        with serving(at, WORKSPACE_WRITE, environ=environ) as server:
            assert "2,000" in server.call("bash", command="rm ran").text
            for number in range(4_000, 6_000):
                (at.root / f"{number}").rmdir()
            server.bash("rm ran")
        assert not (at.root / "ran").exists()


def user_runs(at: Scene, script: str) -> None:
    """Run something in the root as the user whom the server serves."""
    before = AS_NOBODY if os.geteuid() == 0 and at.user != "root" else ()
    environment = {"PATH": os.environ["PATH"], "HOME": str(at.home)}
    subprocess.run([*before, "sh", "-c", script], cwd=at.root, env=environment, check=True)


def sleeping(server: Server, seconds: int) -> int:
    """The process of the server that is to sleep so long; 0 when there is none."""
    wanted = ["sleep", str(seconds)]
    found = [pid for pid in processes() if arguments(pid) == wanted and server.client.pid in ancestors(pid)]
    return found[0] if found else 0


def sleeps(server: Server, seconds: int) -> bool:
    """Whether it sleeps already."""
    pid = sleeping(server, seconds)
    return pid != 0 and state(pid).startswith("S")


def ancestors(pid: int) -> list[int]:
    """The processes from which one descends, the nearest first."""
    found: list[int] = []
    while pid > 1:
        pid = int(status(pid).get("PPid", 0))
        found.append(pid)
    return found


def children(pid: int) -> list[int]:
    return [other for other in processes() if status(other).get("PPid") == str(pid)]


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks; ids are used again. One that has gone counts as the last."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return sys.maxsize
    return int(stat.rpartition(")")[2].split()[19])
