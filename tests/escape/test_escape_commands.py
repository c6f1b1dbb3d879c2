"""Commands that look as if they only read, and commands that leave something behind that acts later.

In read-only they run, and change nothing at all; in workspace-write they leave nothing outside the roots, and
in them nothing that programs act on unasked. Each runs in a real server, as root and as an unprivileged user,
and again with no sandbox in a copy of the same scene, where it must do its harm: a command that harms nowhere
proves nothing.
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.fuzz import Escaped, fuzzed, prove
from benchmarks.fuzz_ground import ground
from benchmarks.protected_names import planted
from tests.support.cases import collected, table
from tests.support.confinement import (
    AS_ROOT_IN_LONG,
    AS_UNPRIVILEGED_IN_LONG,
    FULL,
    PROTECTED_GIT,
    READ_ONLY,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Server,
    Servers,
    copy_of,
    free,
    git,
    put,
    scene,
    serving,
    visible_folder,
)
from tests.support.extent import rounds
from tests.support.processes import Daemons
from tests.support.sessions import each_once
from tests.support.snapshot import Entry, Snapshot, differences, snapshot

COMMANDS = Path(__file__).with_name("commands.txt")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command, and the path that it changes or makes where nothing stops it."""

    script: str
    harms: str
    """In the root, in the folder outside as `$O/...`, or at home as `~/...`."""
    cwd: str = "."
    reported: bool = False
    """A new protected name: in workspace-write it can be made; it is gone and reported when the call ends."""


def cases(part: str) -> dict[str, Case]:
    """The commands of a part of the table, by name."""
    return {
        name: Case(script=script, harms=harms.removeprefix("new "), reported=harms.startswith("new "))
        for name, harms, script in table(COMMANDS, part, 3)
    }


def place(at: Scene, harms: str) -> Path:
    """The path in a scene."""
    start, _, rest = harms.partition("/")
    folder = {"$O": at.outside, "~": at.home}.get(start)
    return at.root / harms if folder is None else Path(os.path.normpath(folder / rest))


def _entry(path: Path) -> Entry | None:
    return snapshot(path)[str(path)] if os.path.lexists(path) else None


LOOKS_READ_ONLY = {
    **cases("looks read-only"),
    "SH61": Case(script="git status", harms="hostile/evil-ran", cwd="hostile"),
}


@pytest.mark.requirement("GR-63")
@pytest.mark.parametrize("user", AS_UNPRIVILEGED_IN_LONG)
def test_a_command_that_looks_read_only_changes_nothing(servers: Servers, user: str) -> None:
    server = servers(user, READ_ONLY)
    assert server.tools()["bash"]["annotations"]["readOnlyHint"] is True
    assert (server.bash("id -u").strip() == "0") is (user == "root")
    with collected() as case:
        before = server.scene.seen()
        for name, one in LOOKS_READ_ONLY.items():
            with case(name):
                server.bash(one.script, cwd=one.cwd)
            before, earlier = server.scene.seen(), before
            with case(name):
                assert differences(earlier, before) == []


HONEST = {
    **dict(table(COMMANDS, "honest", 2)),
    "heredoc": "cat <<END | tr a-z A-Z\nhello $((6 * 7))\nEND",
    "python-stdin": "python3 - <<'END'\nimport os\nprint(os.listdir('d'), os.getcwd())\nEND",
}


@pytest.mark.long
@pytest.mark.parametrize("user", USERS)
def test_an_honest_command_says_the_same_in_the_sandbox(servers: Servers, user: str) -> None:
    """And the sandbox leaves no mark on the scene. The gate has `test_git_commands.py`."""
    confined = servers(user, READ_ONLY)
    at = confined.scene
    with serving(at, FULL) as unconfined, collected() as case:
        for name, script in HONEST.items():
            with case(name):
                before = snapshot(at.base, without=[at.state])
                said = confined.bash(script)
                assert differences(before, snapshot(at.base, without=[at.state])) == []
                assert said == unconfined.bash(script)


PROTECTED = (".git", ".mcp.json", ".vscode", "hostile/.git")
"""In every scene."""
STEERING = (".git/hooks", ".git/config", ".mcp.json", ".vscode", "hostile/.git/hooks", "hostile/.git/config")
"""What of it commands keep as it is where they may write in `.git`."""


LEAVES_SOMETHING = cases("leaves something")


def kept(server: Server) -> Snapshot:
    """All that the mode must leave as it is."""
    at = server.scene
    names = PROTECTED if "protected" in server.flags else STEERING
    return {**at.around(), **snapshot(*(at.root / name for name in names))}


@pytest.mark.parametrize(
    ("user", "mode"),
    [
        pytest.param(user, mode, id=f"{user}-{mode}", marks=pytest.mark.xdist_group(user))
        for user, mode in ((USERS[0], WORKSPACE_WRITE), (USERS[-1], PROTECTED_GIT))
    ],
)
def test_a_command_leaves_nothing_that_acts_later(user: str, mode: str) -> None:
    with scene(user) as at, serving(at, *mode.split()) as server, collected() as case:
        before = kept(server)
        for name, one in LEAVES_SOMETHING.items():
            # Commands may change branches; of the rest, only what is about git depends on its protection.
            if name == "refs" if mode == WORKSPACE_WRITE else ".git" not in one.script.lower():
                continue
            target = place(server.scene, one.harms)
            said = ""
            with case(name):
                said = server.bash(one.script)
            before, earlier = kept(server), before
            with case(name):
                assert differences(earlier, before) == []
                if target != server.scene.root / ".git":
                    assert (str(target) in earlier) == os.path.lexists(target)
                if one.reported:
                    assert one.harms in said


@pytest.mark.rounds
@pytest.mark.parametrize("part", [LOOKS_READ_ONLY, LEAVES_SOMETHING], ids=["read-only", "workspace-write"])
def test_the_same_command_does_its_harm_where_nothing_stops_it(part: Mapping[str, Case]) -> None:
    """Nothing of the product runs here, so the gate tries every third."""
    with scene(USERS[0]) as pattern, visible_folder() as folder, collected() as case:
        for name, one in list(part.items())[:: rounds(3, 1)]:
            with case(name), copy_of(pattern, folder) as copy:
                target = place(copy, one.harms)
                before = _entry(target)
                free(copy, one.script, one.cwd)
                assert _entry(target) != before


PROTECTED_SPELLINGS = {
    "PERS03": ".mcp.json",
    "PERS04": ".vscode/tasks.json",
    "hooks": ".git/hooks/x",
    "nested": "hostile/.git/config",
    "PERS16": "d/.git",
    "PERS11": ".GIT/config",
    "PERS12-short": "GIT~1/config",
    "shell": ".bashrc",
    "no-dot": "d/opencode.json",
    "shared": ".github/hooks/x.json",
    "around": "d/../.mcp.json",
}


@pytest.mark.xdist_group(USERS[-1])
def test_a_write_tool_refuses_a_protected_name(servers: Servers) -> None:
    server = servers(USERS[-1], WORKSPACE_WRITE)

    def seen() -> Snapshot:
        return {**kept(server), **snapshot(server.scene.root)}

    with collected() as case:
        for name, path in PROTECTED_SPELLINGS.items():
            with case(name):
                before = seen()
                assert server.call("write_file", path=path, content="x").is_error
                assert server.call("edit_file", path=path, old_string="{", new_string="[").is_error
                assert differences(before, seen()) == []
    assert not server.call("write_file", path="d/plain", content="x").is_error
    (server.scene.root / "d/plain").unlink()
    # Nor behind a link.
    server.bash("ln -s .git/config l1; ln -s .git l2; ln -s ../.mcp.json d/l3")
    before = kept(server)
    for path in ("l1", "l2/config", "d/l3"):
        assert server.call("write_file", path=path, content="x").is_error
    assert differences(before, kept(server)) == []
    server.bash("rm l1 l2 d/l3")


@pytest.mark.parametrize("name", [".git/config", ".mcp.json"])
@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_a_protected_file_that_the_user_replaces_meanwhile_stays_the_users(
    servers: Servers, user: str, name: str
) -> None:
    server = servers(user, WORKSPACE_WRITE)
    target, ready = server.scene.root / name, server.scene.root / "ready"
    waiting = f"touch ready; until [ -e go ]; do sleep 0.01; done; echo evil >> {name}; rm -f go ready"
    other = subprocess.Popen(
        ["sh", "-c", _REPLACE, "sh", str(target), str(ready), str(server.scene.root / "go")]
    )
    said = server.bash(waiting, timeout=20_000)
    assert other.wait(timeout=10) == 0
    here = target.read_text(encoding="utf-8") if target.exists() else ""
    assert "evil" not in here or name in said
    if name.startswith(".git"):
        # If the command came to write in it, it is as it was before, and theirs in quarantine.
        aside = (server.scene.state / "quarantine").rglob("config")
        assert any("theirs" in text for text in (here, *(file.read_text(encoding="utf-8") for file in aside)))
        assert "evil" not in here
    else:
        target.unlink(missing_ok=True)
        put(target, "{}\n")


_REPLACE = """
until [ -e "$2" ]; do sleep 0.01; done
{ cat "$1"; echo "# theirs"; } > "$1.new" && mv "$1.new" "$1" && touch "$3"
"""


def test_a_repository_kept_elsewhere_in_the_roots_is_protected_too() -> None:
    with scene(USERS[-1]) as at:
        second = at.base / "run/second"
        second.mkdir()
        put(second / "file", "x\n")
        git(second, "init", "--quiet", f"--separate-git-dir={second}/store", str(second))
        git(at.root, "worktree", "add", "--quiet", str(second / "tree"), "other")
        at.own()
        with serving(at, *PROTECTED_GIT.split(), roots=[at.root, second]) as server:
            before = snapshot(second / "store", second / ".git", second / "tree/.git", at.root / ".git")
            server.bash(f"cd {second} && git config core.hooksPath x; echo x > store/hooks/x; mv store s")
            server.bash(f"cd {second}/tree && git config core.hooksPath x; echo x > .git; rm -f .git")
            server.bash(f"cd {second}/tree && git commit --allow-empty -qm x")
            after = snapshot(second / "store", second / ".git", second / "tree/.git", at.root / ".git")
            assert differences(before, after) == []
            assert "done" in server.bash(f"echo x > {second}/file && echo done")


@each_once
def test_the_state_of_the_server_is_out_of_sight(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    planted = put(server.scene.state / "planted", "only for the server")
    try:
        said = server.bash(
            f"ls -la {server.scene.state}; cat {planted}; echo x > {planted}; rm -rf {server.scene.state}"
        )
        assert "only for the server" not in said
        assert planted.read_text(encoding="utf-8") == "only for the server"
    finally:
        planted.unlink()


ENDINGS = {
    "PROCRES02": ("exit 0", 20_000),
    "PROCRES03": ("disown -a; exec true", 20_000),
    "PROCRES01": ("sleep 60", 700),
    "killed": ("kill -9 $PPID; kill -9 $$", 20_000),
}


@each_once
def test_nothing_that_a_confined_command_started_outlives_it(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    for case, (ending, timeout) in ENDINGS.items():
        daemons = Daemons()
        assert "ready" in server.bash(daemons.script + ending, timeout=timeout), case
        assert daemons.alive() == [], case


SEED = 2026


@pytest.mark.rounds
@pytest.mark.parametrize(
    ("mode", "user"),
    [
        # For read-only the gate has the commands that look read-only.
        pytest.param(READ_ONLY, USERS[-1], id=READ_ONLY, marks=pytest.mark.long),
        pytest.param(WORKSPACE_WRITE, USERS[0], id=WORKSPACE_WRITE),
    ],
)
def test_nothing_random_gets_out(mode: str, user: str) -> None:
    tally = fuzzed(mode, paths=rounds(120, 600), commands=rounds(8, 30), seed=SEED, user=user)
    assert tally.succeeded > 20
    assert tally.refused > 30


@pytest.mark.long
def test_the_fuzzer_refuses_to_start_without_a_sandbox() -> None:
    with (
        ground(USERS[0], SEED) as at,
        serving(at.scene, FULL) as server,
        pytest.raises(Escaped, match="does not work"),
    ):
        prove(at, server)


@pytest.mark.long
@pytest.mark.parametrize(
    ("user", "mode"), [(USERS[0], WORKSPACE_WRITE), (USERS[-1], PROTECTED_GIT)], ids=["default", "protected"]
)
def test_no_sequence_plants_or_changes_a_protected_name(user: str, mode: str) -> None:
    """The gate has the commands that leave something, and `test_protected_served.py`."""
    tally = planted(user, count=100, seed=SEED + USERS.index(user), mode=mode)
    assert tally.calls > 2 * tally.sequences
    assert tally.errors < tally.calls / 10
