"""The profiles that the server generates, enforced on real programs by the stand-in for `sandbox-exec`."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from mcp_toolserver.runtime.sandbox.broker.policy import Helper
from tests.darwin.build import StandIn, build, reason_to_skip
from tests.darwin.commands import Places, run_helper, run_script

pytestmark = pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))

MODES = ("read-only", "workspace-write")
PYTHON = os.path.realpath(sys.executable)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return build(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places.make(tmp_path)


def run(stand_in: StandIn, places: Places, script: str, mode: str = "workspace-write") -> str:
    done = run_script(places.sandbox(mode, stand_in.program), script, temporary=places.at("state/tmp"))
    assert done.returncode not in (64, 65, 71), done.stdout
    return done.stdout.replace(str(places.base), "$B")


WRITES = [
    ("echo x >new && rm new", True),
    ("echo x >>kept", True),
    ("mkdir folder && rmdir folder", True),
    ("mv kept sub/ && ln -s kept sub/link && rm sub/link && mv sub/kept .", True),
    ("chmod 600 kept && touch kept", True),
    ("echo x >$TMPDIR/t && mv $TMPDIR/t new && rm new", True),
    ("mv kept renamed && mv renamed kept", True),
    ("echo x >.git/config", False),
    ("echo x >.git/hooks/pre-commit", False),
    ("mkdir sub/.git", False),
    ("mkdir sub/.GIT", False),
    ("mv .git git", False),
    ("ln kept hard", False),
    ("mkdir $TMPDIR/.git", False),
    ("mv sub .vscode", False),
    ("ln -s x .mcp.json", False),
    ("rm -rf .git/hooks", False),
    ("chmod 777 .git/config", False),
    ("chmod u+s kept", False),
    ("echo x >../outside/new", False),
    ("echo x >>../outside/kept", False),
    ("rm ../outside/kept", False),
    ("chmod 600 ../outside/kept", False),
    ("touch ../outside/kept", False),
    ("mv ../outside/kept taken", False),
    ("ln ../outside/kept taken", False),
    ("echo x >to-outside/new", False),
    ("echo x >../state/new", False),
    ("echo x >../hidden", False),
    ("mv ../root ../moved", False),
]


def outcomes(stand_in: StandIn, base: Path, mode: str) -> list[bool]:
    """Which of the scripts in `WRITES` a command can do, one after the other."""
    places = Places.make(base)
    (base / "root/to-outside").symlink_to("../outside")
    lines = (f"({script}) 2>/dev/null && echo 1 || echo 0" for script, _ in WRITES)
    done = run(stand_in, places, "\n".join(lines), mode)
    assert (base / "outside/kept").read_text(encoding="utf-8") == "content\n"
    assert os.listdir(base / "outside") == ["kept"]
    return [line == "1" for line in done.split()]


def test_commands_write_in_the_root_in_workspace_write_and_only_there(
    stand_in: StandIn, tmp_path: Path
) -> None:
    found = outcomes(stand_in, tmp_path, "workspace-write")
    assert dict(zip(WRITES, found, strict=True)) == {case: case[1] for case in WRITES}


def test_commands_write_nothing_in_read_only(stand_in: StandIn, tmp_path: Path) -> None:
    found = outcomes(stand_in, tmp_path, "read-only")
    assert dict(zip(WRITES, found, strict=True)) == dict.fromkeys(WRITES, False)


SECRETS = (
    *(
        "cat ../state/secret",
        "cat ../hidden",
        "ls ../state",
        "cp -r ../state $TMPDIR/copy; cat $TMPDIR/copy/*",
    ),
    *("ln -s ../state link; cat link/secret", "/bin/sh -c 'cat ../hidden'", "env -i /bin/cat ../hidden"),
    *(
        "find ../state -name secret -exec cat {} +",
        "cat ../home/.ssh/id",
        "mv ../hidden $TMPDIR; cat $TMPDIR/hidden",
    ),
)


@pytest.mark.parametrize("mode", MODES)
def test_secrets_are_not_read(stand_in: StandIn, places: Places, mode: str) -> None:
    (places.base / "home/.ssh").mkdir()
    (places.base / "home/.ssh/id").write_text("content\n", encoding="utf-8")
    printed = run(
        stand_in, places, "\n".join(f"({script})" for script in (*SECRETS, "cat kept | tr c C")), mode
    )
    assert "content" not in printed
    assert "Content" in printed


ORDINARY = [
    ("cat ../outside/kept", "content"),
    ("git --version", "git version"),
    ("cd ../../ && ls $OLDPWD", "kept"),
    ("cat <<<here", "here"),
    ("cat <(echo substituted)", "substituted"),
    ("echo piped | cat | sort", "piped"),
    ("echo x >/dev/null && echo written", "written"),
    ("head -c 3 /dev/urandom | wc -c", "3"),
    ("f=$(mktemp) && echo x >$f && cat $f", "x"),
    ("sleep 10 & kill $! && wait $!; echo ended $?", "ended 143"),
    ("grep -rn content .", "kept:1:content"),
    (f"{PYTHON} -IS -c 'import json, ssl, sqlite3; print(json.dumps(1 + 1))'", "2"),
    ('echo "$PWD"', "$B/root"),
]


@pytest.mark.parametrize("mode", MODES)
def test_ordinary_programs_work(stand_in: StandIn, places: Places, mode: str) -> None:
    printed = run(stand_in, places, "\n".join(f"({script}); echo ==" for script, _ in ORDINARY), mode)
    for (script, expected), found in zip(ORDINARY, printed.split("==\n"), strict=False):
        assert expected in found, (script, found)


def test_git_works_on_a_repository(stand_in: StandIn, places: Places) -> None:
    shutil.rmtree(places.base / "root/.git")
    os.system(f"git -C {places.at('root')} init -q && git -C {places.at('root')} add . >/dev/null")
    printed = run(stand_in, places, "git status --short; git diff --stat; git add kept && echo added")
    assert "A  kept" in printed
    assert "added" not in printed


REACHING_OUT = (
    *("socket.create_connection(('127.0.0.1', 9))", "socket.create_connection(('192.0.2.1', 9))"),
    *("socket.socket().bind(('127.0.0.1', 0))", "socket.socket(type=2).sendto(b'x', ('127.0.0.1', 9))"),
    *("socket.socket(1).connect('/var/run/docker.sock')", "socket.socket(1).connect('\\0x')"),
    *("os.kill(1, 0)", f"os.kill({os.getpid()}, 0)", f"open('/proc/{os.getpid()}/environ')"),
)
TRYING = """
import os, socket
for code in {codes!r}:
    try:
        exec(code)
        print('done', code)
    except OSError as error:
        print(error.errno)
"""


@pytest.mark.parametrize("mode", MODES)
def test_nothing_reaches_out_of_the_sandbox(stand_in: StandIn, places: Places, mode: str) -> None:
    (places.base / "root/try.py").write_text(TRYING.format(codes=REACHING_OUT), encoding="utf-8")
    assert run(stand_in, places, f"{PYTHON} -IS try.py", mode).split() == ["1"] * len(REACHING_OUT)


def test_a_search_reads_the_folder_that_it_starts_in_and_writes_nowhere(
    stand_in: StandIn, places: Places
) -> None:
    helper = Helper(argv=("/bin/bash", "-c"), places=("/bin", "/usr/bin"))

    def search(script: str) -> str:
        sandbox = places.sandbox("workspace-write", stand_in.program)
        return run_helper(
            sandbox, helper, (script,), temporary=places.at("state/tmp"), cwd=places.at("root")
        ).stdout

    assert "content" in search("read -r line <kept; echo $line")
    for script in ("read -r line <../outside/kept; echo $line", "read -r line <../hidden; echo $line"):
        assert "content" not in search(script)
    for file in ("new", ".git/config", "$TMPDIR/x", "../outside/new"):
        assert "done" not in search(f"echo x >{file} && echo done")
