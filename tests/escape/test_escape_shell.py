"""Commands that look as if they only read. In read-only they run, and change nothing at all.

Each runs in a real server, as root and as an unprivileged user, and again with no sandbox in a copy of the
same scene, where most of them must do their harm: a command that harms nowhere proves nothing.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.escape.harm import Case, assert_each_does_harm
from tests.support.cases import collected
from tests.support.confinement import AS_ROOT_IN_LONG, BY_USER, FULL, READ_ONLY, USERS, Scene, Server, serving
from tests.support.snapshot import differences, snapshot

Servers = Callable[[str, str], Server]

CASES = {
    "SH01": Case(script="echo x > f", harms="f"),
    "SH19": Case(script="sed -i s/o/0/ f", harms="f"),
    "SH52": Case(script="PATH=.:$PATH ls", harms="evil-ran"),
    "SH61": Case(script="git status", harms="hostile/evil-ran", cwd="hostile"),
    "SH66": Case(script="git tag t1", harms=".git/refs/tags/t1"),
    "SH73": Case(script="git stash", harms=".git/refs/stash"),
    "SH74": Case(script="git config user.x y", harms=".git/config"),
    "SH78": Case(script="less f", harms="evil-ran"),
    "SH103": Case(script="chmod 777 f", harms="f"),
    "SH105": Case(script="ln f hl", harms="hl"),
    "SH107": Case(script="cat f > $O/x", harms="$O/x"),
    "SH108": Case(script="cp f $O/", harms="$O/f"),
    "SH110": Case(script="echo x > /proc/self/cwd/new", harms="new"),
    # What a snapshot can see and the names above do not reach.
    "touch": Case(script="touch f", harms="f"),
    "xattr": Case(script='python3 -c \'import os; os.setxattr("f", "user.a", b"b")\'', harms="f"),
    "chattr": Case(script="chattr +A f", harms="f"),
    "fifo": Case(script="mkfifo new", harms="new"),
    "rename": Case(script="mv f new", harms="new"),
    "exchange": Case(
        script='python3 -c \'import ctypes; ctypes.CDLL(None).renameat2(-100, b"f", -100, b"g", 2)\'',
        harms="f",
    ),
    "truncate": Case(script="truncate -s 0 f", harms="f"),
    "symlink-time": Case(script="touch -h link_in", harms="link_in"),
    "owner": Case(script="chown --reference=f f; chgrp $(id -g) f", harms="f"),
    "at-home": Case(script="echo x >> ~/.bashrc; mkdir ~/new", harms="~/.bashrc"),
    "through-proc-root": Case(script="echo x > /proc/self/root/$O/x", harms="$O/x"),
    "by-descriptor": Case(script="exec 3< f; echo x > /proc/self/fd/3", harms="f"),
    "in-a-namespace": Case(script="unshare --user --map-root-user rm f", harms="f"),
    "remount": Case(
        script="unshare --user --map-root-user --mount sh -c 'mount -o remount,rw,bind .; rm f'",
        harms="f",
    ),
    "git-commit": Case(script="git commit --quiet --all --message=x", harms=".git/refs/heads/main"),
    "git-worktree": Case(script="git worktree add -q $O/tree", harms="$O/tree"),
    "background": Case(script="setsid sh -c 'rm f' & wait", harms="f"),
}


@pytest.mark.parametrize("user", BY_USER)
def test_a_command_that_looks_read_only_changes_nothing(servers: Servers, user: str) -> None:
    server = servers(user, READ_ONLY)
    with collected() as case:
        before = server.scene.seen()
        for name, one in CASES.items():
            with case(name):
                server.bash(one.script, cwd=one.cwd)
            before, earlier = server.scene.seen(), before
            with case(name):
                assert differences(earlier, before) == []


def test_the_same_command_does_its_harm_where_nothing_stops_it(pattern: Scene, ground: Path) -> None:
    assert_each_does_harm(pattern, ground, {name: one for name, one in CASES.items() if one.harms})


def test_bash_is_offered_as_read_only_to_each_of_two_users(servers: Servers) -> None:
    for user in USERS:
        server = servers(user, READ_ONLY)
        assert server.tools()["bash"]["annotations"]["readOnlyHint"] is True
        assert (server.bash("id -u").strip() == "0") is (user == "root")


HONEST = {
    "git-log": "git log --oneline --stat --decorate",
    "git-status": "git status --short --branch",
    "rg": "$O/../run/rg --sort path -n tracked",
    "find-exec": "find d -type f -exec wc -c {} + | sort",
    "heredoc": "cat <<END | tr a-z A-Z\nhello $((6 * 7))\nEND",
    "here-string": "read -r word <<< 'one two'; echo $word",
    "sort-spill": "seq 200000 | shuf --random-source=<(yes) | sort -n -S 200k --parallel=1 | sha256sum",
    "python-stdin": "python3 - <<'END'\nimport os\nprint(os.listdir('d'), os.getcwd())\nEND",
    "python-threads": "python3 -c 'import threading; threading.Thread(target=print, args=[1]).start()'",
    "python-processes": "python3 -c 'from multiprocessing import Pool; print(Pool(2).map(abs, [-1, -2]))'",
    "stat": "stat -c '%n %s %a %u %g %h %F %Y' f g d link_in fifo",
    "mktemp": 't=$(mktemp) && echo kept > "$t" && cat "$t" && rm "$t" && test ! -e "$t"',
    "mktemp-folder": 'd=$(mktemp -d) && cd "$d" && git init -q && touch a && git add a && git status -s',
    "tmp": "echo x > /tmp/mine && cat /tmp/mine && rm /tmp/mine",
    "job-status": "(exit 3) & wait $!; echo $?",
    "ls": "ls -lan --time-style=+%s .",
    "env": "env -i A=1 env; printenv HOME LANG; echo $0 $#",
    "path": 'command -v sh cat; echo "$PATH"',
    "null": "echo gone > /dev/null; head -c 3 /dev/zero | od -An -tx1; test -r /dev/urandom",
    "std": "echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/fd/0 < g",
    "outside": "cat link_out; ls $O; cat $O/kept",
    "signal": "kill -TERM $$; echo still here",
    "id": "id -u; id -g; whoami",
    "ulimit": "ulimit -c",
    "login-files": "shopt -q login_shell || echo no login; echo ${BASH_ENV:-none}",
}


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_an_honest_command_says_the_same_in_the_sandbox(servers: Servers, user: str) -> None:
    """And the sandbox leaves no mark on the scene."""
    confined = servers(user, READ_ONLY)
    at = confined.scene
    with serving(at, FULL) as unconfined, collected() as case:
        for name, script in HONEST.items():
            with case(name):
                before = snapshot(at.base, without=[at.state])
                said = confined.bash(script)
                assert differences(before, snapshot(at.base, without=[at.state])) == []
                assert said == unconfined.bash(script)
