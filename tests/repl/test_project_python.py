"""Python of a session is the project's own: real servers in both confined modes, as root and unprivileged."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.confinement import (
    FULL,
    READ_ONLY,
    USERS,
    WORKSPACE_WRITE,
    Said,
    Scene,
    Server,
    changed,
    put,
    scene,
    serving,
)
from tests.support.workshop import program

BASE = Path(sys.base_prefix, "bin")
PATH = f"{BASE}:/usr/bin:/bin"
VERSION = f"CPython {sys.version.split()[0]}"

users = pytest.mark.parametrize("user", USERS)
modes = pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])

SHOW = "import sys, own_package\n(sys.prefix, own_package.ANSWER)"


@contextmanager
def project(user: str) -> Generator[Scene]:
    """A folder with an environment that has one package, which the server lacks."""
    with scene(user) as made:
        environment = made.root / ".venv"
        subprocess.run([BASE / "python3", "-m", "venv", "--without-pip", environment], check=True)
        (packages,) = environment.glob("lib/python3*/site-packages")
        put(packages / "own_package.py", "ANSWER = 42\n")
        made.own()
        yield made


def python(server: Server, code: str, session: str = "") -> str:
    said = evaluate(server, code, session)
    assert not said.is_error, said.text
    return said.text


def evaluate(server: Server, code: str, session: str = "") -> Said:
    return server.call("REPL", language="python", code=code, session=session)


def handle(text: str) -> str:
    return re.findall(r"\[session (repl_[0-9a-f]{6})\]", text)[0]


@users
@modes
def test_a_session_imports_what_only_the_project_has_and_keeps_state(user: str, mode: str) -> None:
    with project(user) as of, serving(of, mode, environ={"PATH": PATH}) as server:
        expected = f"('{of.root}/.venv', 42)\n"
        assert python(server, SHOW) == expected
        first = python(server, f"x = 41\n{SHOW}", "new")
        assert first.startswith(f"{expected}[interpreter: {VERSION}, {of.root}/.venv/bin/python]\n[session ")
        assert python(server, "x + own_package.ANSWER - 41", handle(first)) == "42\n"
        # The environment of the server is not there, its packages included.
        missing = python(server, "import pydantic")
        assert "ModuleNotFoundError: No module named 'pydantic'" in missing
        assert f"[interpreter: {VERSION}, {of.root}/.venv/bin/python]" in missing


@users
@modes
def test_without_an_environment_python3_of_the_path_runs(user: str, mode: str) -> None:
    with scene(user) as of, serving(of, mode, environ={"PATH": PATH}) as server:
        first = python(server, "x = 41; import sys; sys.prefix == sys.base_prefix", "new")
        assert first.startswith(f"True\n[interpreter: {VERSION}, {BASE}/python3]\n")
        assert python(server, "x + 1", handle(first)) == "42\n"


@pytest.mark.parametrize("mode", [READ_ONLY, FULL])
def test_a_broken_environment_falls_back_with_a_note(mode: str) -> None:
    with project(USERS[0]) as of:
        (of.root / ".venv/bin/python").unlink()
        (of.root / ".venv/bin/python").symlink_to("/nonexistent/python3")
        with serving(of, mode, environ={"PATH": PATH}) as server:
            said = python(server, "6 * 7")
            assert said == "42\n[.venv is not used: commands find no program .venv/bin/python]"
            first = python(server, "6 * 7", "new")
            assert f"[interpreter: {VERSION}, {BASE}/python3]" in first
            assert ".venv is not used" in first
            # The note comes once.
            assert python(server, "1", handle(first)) == "1\n"


def test_an_environment_whose_interpreter_does_not_run_is_a_clear_error() -> None:
    with scene(USERS[0]) as of:
        put(of.root / ".venv/bin/python", "#!/nonexistent/python3\n").chmod(0o755)
        with serving(of, READ_ONLY, environ={"PATH": PATH}) as server:
            said = evaluate(server, "1")
            assert said.is_error
            assert f"{of.root}/.venv/bin/python did not become ready. Its output: No such file" in said.text


def test_an_environment_that_a_rule_hides_is_not_used() -> None:
    with project(USERS[0]) as of:
        config = put(of.base / "config.toml", '[rules]\ndeny = ["Read(.venv/**)"]\n')
        of.own()
        with serving(of, READ_ONLY, "--config", str(config), environ={"PATH": PATH}) as server:
            assert ".venv is not used" in python(server, "1")


FORGED = r"""
import json, os, sys
def say(**word): os.write(4, json.dumps(word).encode() + b"\n")
try:
    open("$O/evil-ran", "w").write("x")
except OSError as error:
    print("cannot write:", error.strerror)
say(done=0, version="\x1b[2Jforged " * 1000)
for line in os.fdopen(3):
    tag = json.loads(line)["tag"]
    say(picture="QUJD" * 1000, tag=tag)
    say(picture={"a": 1}, tag="another")
    print("tag", len(tag), flush=True)
    say(done=0, tag=tag, session="repl_000000", interpreter="/trusted")
"""
"""An interpreter of the project that speaks the protocol of the session by itself."""


@users
@modes
def test_a_hostile_interpreter_has_the_rights_of_a_command(user: str, mode: str) -> None:
    with scene(user) as of:
        script = FORGED.replace("$O", str(of.outside))
        put(of.root / "forged.py", script)
        program(of.root / ".venv/bin", "python", f"exec {BASE}/python3 {of.root}/forged.py")
        of.own()
        before = of.seen() if mode == READ_ONLY else of.around()
        with serving(of, mode, environ={"PATH": PATH}) as server:
            first = python(server, "1", "new")
            assert first.startswith("cannot write: Read-only file system\ntag 16\n[")
            assert (
                "[pictures left out, as too many, too large or damaged: 1]\n[interpreter: [2Jforged" in first
            )
            # The whole of what it says of itself is one short line.
            assert len(first) < 1000
            assert "\x1b" not in first
            assert python(server, "1", handle(first)).startswith("tag 16\n")
            assert server.bash("echo still") == "still\n"
        assert not changed(before, of.seen() if mode == READ_ONLY else of.around())


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param("echo no >&2; exit 3", "Its output: no", id="ends"),
        pytest.param("yes no | head -c 9000000; exit 3", "no\nno\n", id="floods"),
        pytest.param("kill -KILL $PPID; sleep 100", "did not become ready", id="kills the driver"),
        pytest.param("echo nonsense >/proc/$PPID/fd/1; sleep 100", "did not become ready", id="forges"),
        pytest.param("sleep 1000 & exit 3", "did not become ready", id="leaves a process"),
    ],
)
def test_an_interpreter_that_is_none_is_an_error_and_the_server_goes_on(script: str, said: str) -> None:
    with scene(USERS[0]) as of:
        program(of.root / ".venv/bin", "python", script)
        of.own()
        with serving(of, READ_ONLY, environ={"PATH": PATH}) as server:
            result = evaluate(server, "1")
            assert result.is_error
            assert said in result.text
            assert len(result.text) < 1000
            assert server.bash("pgrep -c sleep; echo still").endswith("still\n")


def test_the_environment_of_the_first_root_counts(tmp_path: Path) -> None:
    with (
        project(USERS[0]) as of,
        serving(of, FULL, roots=(of.outside, of.root), environ={"PATH": PATH}) as server,
    ):
        assert os.path.isdir(of.root / ".venv")
        assert f"{BASE}/python3]" in python(server, "1", "new")
