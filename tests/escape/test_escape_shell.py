"""Commands that look as if they only read. In read-only they run, and change nothing at all.

Each runs in a real server, as root and as an unprivileged user, and again with no sandbox in a copy of the
same scene, where they must do their harm: a command that harms nowhere proves nothing.
"""

from pathlib import Path

import pytest

from tests.escape.harm import COMMANDS, Case, assert_each_does_harm, cases
from tests.support.cases import collected, table
from tests.support.confinement import AS_UNPRIVILEGED_IN_LONG, FULL, READ_ONLY, USERS, Scene, Servers, serving
from tests.support.snapshot import differences, snapshot

CASES = {
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
        for name, one in CASES.items():
            with case(name):
                server.bash(one.script, cwd=one.cwd)
            before, earlier = server.scene.seen(), before
            with case(name):
                assert differences(earlier, before) == []


@pytest.mark.rounds
def test_the_same_command_does_its_harm_where_nothing_stops_it(pattern: Scene, ground: Path) -> None:
    assert_each_does_harm(pattern, ground, CASES)


HONEST = {
    **dict(table(COMMANDS, "honest", 2)),
    "heredoc": "cat <<END | tr a-z A-Z\nhello $((6 * 7))\nEND",
    "python-stdin": "python3 - <<'END'\nimport os\nprint(os.listdir('d'), os.getcwd())\nEND",
}


@pytest.mark.long
@pytest.mark.parametrize("user", USERS)
def test_an_honest_command_says_the_same_in_the_sandbox(servers: Servers, user: str) -> None:
    """And the sandbox leaves no mark on the scene. The gate has `test_git_work.py`."""
    confined = servers(user, READ_ONLY)
    at = confined.scene
    with serving(at, FULL) as unconfined, collected() as case:
        for name, script in HONEST.items():
            with case(name):
                before = snapshot(at.base, without=[at.state])
                said = confined.bash(script)
                assert differences(before, snapshot(at.base, without=[at.state])) == []
                assert said == unconfined.bash(script)
