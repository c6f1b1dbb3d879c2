"""Python of a session is the project's own: real servers in both confined modes, as root and
unprivileged; and the driver of a session with real interpreters, and what the server believes of it."""

import base64
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.repl.sandboxed import driver
from mcp_toolserver.runtime.repl.sandboxed.driver import LineDecoder
from mcp_toolserver.runtime.repl.session import MAX_LINE, Decoder, DriverProtocolError, OngoingEvaluation
from tests.support.confinement import (
    AS_ROOT_IN_LONG,
    READ_ONLY,
    WORKSPACE_WRITE,
    Said,
    Server,
    changed,
    put,
    scene,
    serving,
)
from tests.support.extent import examples
from tests.support.processes import PATIENCE, call
from tests.support.workshop import program, workshop

BASE = Path(sys.base_prefix, "bin")
PATH = f"{BASE}:/usr/bin:/bin"
VERSION = f"CPython {sys.version.split()[0]}"

SHOW = "import sys, own_package\n(sys.prefix, own_package.ANSWER)"


@pytest.fixture(scope="module", params=[READ_ONLY, pytest.param(WORKSPACE_WRITE, marks=pytest.mark.long)])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=AS_ROOT_IN_LONG)
def user(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def started(user: str, mode: str) -> Generator[Server]:
    with scene(user) as of, serving(of, mode, environ={"PATH": PATH}) as server:
        yield server


@pytest.fixture
def server(started: Server) -> Server:
    """Its root holds no environment yet."""
    shutil.rmtree(started.scene.root / ".venv", ignore_errors=True)
    return started


def project(root: Path) -> None:
    """Add an environment that has one package, which the server lacks."""
    made = root / ".venv"
    put(made / "pyvenv.cfg", f"home = {BASE}\ninclude-system-site-packages = false\n")
    (made / "bin").mkdir()
    (made / "bin/python").symlink_to(BASE / "python3")
    put(made / f"lib/python3.{sys.version_info.minor}/site-packages/own_package.py", "ANSWER = 42\n")


def python(server: Server, code: str, session: str = "") -> str:
    said = evaluate(server, code, session)
    assert not said.is_error, said.text
    return said.text


def evaluate(server: Server, code: str, session: str = "") -> Said:
    return server.call("REPL", language="python", code=code, session=session)


def handle(text: str) -> str:
    return re.findall(r"\[session (repl_[0-9a-f]{6})\]", text)[0]


def test_a_session_imports_what_only_the_project_has_and_keeps_state(server: Server) -> None:
    of = server.scene
    project(of.root)
    of.own()
    expected = f"('{of.root}/.venv', 42)\n"
    assert python(server, SHOW) == expected
    first = python(server, f"x = 41\n{SHOW}", "new")
    assert first.startswith(f"{expected}[interpreter: {VERSION}, {of.root}/.venv/bin/python]\n[session ")
    assert python(server, "x + own_package.ANSWER - 41", handle(first)) == "42\n"
    # The environment of the server is not there, its packages included.
    missing = python(server, "import pydantic")
    assert "ModuleNotFoundError: No module named 'pydantic'" in missing
    assert f"[interpreter: {VERSION}, {of.root}/.venv/bin/python]" in missing


def test_without_an_environment_python3_of_the_path_runs_and_for_a_broken_one_with_a_note(
    server: Server,
) -> None:
    said = python(server, "import sys; sys.prefix == sys.base_prefix", "new")
    assert said.startswith(f"True\n[interpreter: {VERSION}, {BASE}/python3]\n")
    there = server.scene.root / ".venv/bin/python"
    there.parent.mkdir(parents=True)
    broken: tuple[Callable[[], object], ...] = (
        *(there.parent.touch, there.mkdir, there.touch),
        lambda: there.symlink_to("/nonexistent/python3"),
    )
    for make in broken:
        shutil.rmtree(there, ignore_errors=True)
        there.unlink(missing_ok=True)
        make()
        said = python(server, "6 * 7")
        assert said == "42\n[.venv is not used: commands find no program .venv/bin/python]"
    first = python(server, "6 * 7", "new")
    assert f"[interpreter: {VERSION}, {BASE}/python3]" in first
    assert ".venv is not used" in first
    # The note comes once.
    assert python(server, "1", handle(first)) == "1\n"
    shutil.rmtree(server.scene.root / ".venv")
    program(server.scene.root / "venv/bin", "python", f'exec {BASE}/python3 "$@"')
    assert f"[interpreter: {VERSION}, {server.scene.root}/venv/bin/python]" in python(server, "1", "new")
    shutil.rmtree(server.scene.root / "venv")


def test_an_interpreter_that_is_none_is_an_error_and_the_server_goes_on(server: Server) -> None:
    of = server.scene
    for content, words in (
        ("#!/nonexistent/python3\n", "No such file"),
        ("\x7fELF of another machine", "Exec format error"),
    ):
        put(of.root / ".venv/bin/python", content).chmod(0o755)
        of.own()
        said = evaluate(server, "1")
        assert said.is_error
        assert f"{of.root}/.venv/bin/python did not become ready. Its output: {words}" in said.text
    old = "import sys; sys.version_info = (3, 7); exec(sys.argv[1])"
    scripts = {
        f'exec {BASE}/python3 -c "{old}" "$2"': "Python 3.8 or newer is needed, and this is 3.7",
        "echo no >&2; exit 3": "Its output: no",
        "yes no | head -c 9000000; echo because; exit 3": "no\nno\nbecause\n",
        "kill -KILL $PPID; sleep 100": "did not become ready",
        "echo nonsense >/proc/$PPID/fd/1; sleep 100": "did not become ready",
        "sleep 1000 & exit 3": "did not become ready",
    }
    for script, words in scripts.items():
        program(of.root / ".venv/bin", "python", script)
        of.own()
        result = evaluate(server, "1")
        assert result.is_error, script
        assert words in result.text
        assert len(result.text) < 1000
        assert server.bash("pgrep -c sleep; echo still").endswith("still\n"), script


async def test_an_environment_that_a_rule_hides_and_one_of_another_root_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", PATH)
    one, other = tmp_path / "one", tmp_path / "other"
    other.mkdir()
    project(one / "root")
    asked: dict[str, Any] = {"language": "python", "code": "1", "session": "new"}
    async with workshop(one, Permission.READ_ONLY, deny=("Read(.venv/**)",)) as hiding:
        assert ".venv is not used" in (await call(hiding, "REPL", **asked)).text
    async with workshop(other, more_roots=(str(one / "root"),)) as both:
        assert f"{BASE}/python3]" in (await call(both, "REPL", **asked)).text


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


def test_a_hostile_interpreter_has_the_rights_of_a_command(server: Server) -> None:
    of = server.scene
    script = FORGED.replace("$O", str(of.outside))
    put(of.root / "forged.py", script)
    program(of.root / ".venv/bin", "python", f"exec {BASE}/python3 {of.root}/forged.py")
    of.own()
    before = of.seen() if server.mode == READ_ONLY else of.around()
    first = python(server, "1", "new")
    assert first.startswith("cannot write: Read-only file system\ntag 16\n[")
    assert "[pictures left out, as too many, too large or damaged: 1]\n[interpreter: [2Jforged" in first
    # The whole of what it says of itself is one short line.
    assert len(first) < 1000
    assert "\x1b" not in first
    assert python(server, "1", handle(first)).startswith("tag 16\n")
    assert server.bash("echo still") == "still\n"
    assert not changed(before, of.seen() if server.mode == READ_ONLY else of.around())


PYENV = Path("~/.pyenv/versions").expanduser()

PYTHONS = ("python3.8", "python3.14")


def of_version(name: str) -> str | None:
    """Where this machine has it. A shim of pyenv may lead to no interpreter."""
    candidates = [shutil.which(name), *PYENV.glob(f"{name.removeprefix('python')}.*/bin/{name}")]
    starts = (str(file) for file in candidates if file and subprocess.run([file, "-c", ""]).returncode == 0)
    return next(starts, None)


def said(process: "subprocess.Popen[bytes]", last: str, **message: str) -> tuple[dict[str, Any], str]:
    """The next word of the kind `last` after this message, and what was printed until then."""
    assert process.stdin is not None
    assert process.stdout is not None
    if message:
        process.stdin.write(json.dumps({**message, "tag": "t"}).encode() + b"\n")
        process.stdin.flush()
    printed, word = b"", dict[str, Any]()
    while last not in word:
        word = json.loads(process.stdout.readline())
        printed += base64.b64decode(word.get("output", ""))
    return word, printed.decode()


def test_a_bare_python_of_another_version_keeps_state(tmp_path: Path) -> None:
    """As far as this machine has it: the bridge may use nothing newer than Python 3.8."""
    tried = {name: found for name in PYTHONS if (found := of_version(name))}
    if not tried:
        pytest.skip(f"none of {PYTHONS} is here")
    command, pipe = [sys.executable, "-I", driver.__file__, "python"], subprocess.PIPE
    for name, found in tried.items():
        program(tmp_path / name / ".venv/bin", "python", f'exec {shlex.quote(found)} -S "$@"')
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=tmp_path / name) as process:
            version = said(process, "ready")[0]["ready"]
            assert version.startswith(f"CPython {name.removeprefix('python')}.")
            code = "import asyncio\nx = await asyncio.sleep(0, 41)\nx + 1"
            assert said(process, "done", run=code)[1] == "42\n", name
            assert "<input 2>" in said(process, "done", run="1 / 0")[1]
            assert said(process, "done", run="x") == ({"done": 0, "tag": "t"}, "41\n")
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(PATIENCE) == 0


def evaluation() -> OngoingEvaluation:
    return OngoingEvaluation(tag="mine", on_output=lambda _: None, max_pictures=2, max_picture_bytes=3)


@examples(20)
@given(st.lists(st.dictionaries(st.text(), st.integers())), st.lists(st.integers(1, 40)))
def test_words_are_the_same_in_any_pieces(words: list[dict[str, int]], sizes: list[int]) -> None:
    stream = b"".join(json.dumps(word).encode() + b"\n" for word in words)
    for lines in (Decoder(), LineDecoder()):
        heard, rest = [], stream
        for size in (*sizes, len(stream)):
            heard += lines.feed(rest[:size])
            rest = rest[size:]
        assert heard == words


def test_what_is_no_object_or_has_no_end_is_nonsense_to_the_server_and_nothing_to_the_driver() -> None:
    for line in (b"", b"1", b"[{}]", b"{", b"\xff", b'{"a":' * 100_000):
        with pytest.raises(DriverProtocolError):
            list(Decoder().feed(line + b"\n"))
        assert list(LineDecoder().feed(line + b"\n{}\n")) == [{}]
    words = Decoder()
    assert list(words.feed(b"x" * MAX_LINE)) == []
    with pytest.raises(DriverProtocolError):
        list(words.feed(b"x"))
    lines = LineDecoder()
    for _ in range(20):
        assert list(lines.feed(b"x" * (1 << 20))) == []
    assert list(lines.feed(b'"}\n{"a": 1}\n')) == [{"a": 1}]


NONSENSE: tuple[dict[str, object], ...] = (
    *({}, {"output": 1}, {"output": "?"}, {"output": "\u00e4"}, {"picture": "AAAA"}),
    *({"picture": 1, "tag": "mine"}, {"done": 0}, {"done": 256, "tag": "mine"}, {"done": "0", "tag": "mine"}),
    *(
        {"ended": -1},
        {"ready": 1},
        {"ready": True},
        {"interpreter": "/python"},
        {"missing": None},
        {"more": 1},
    ),
    *({"interpreter": 1, "note": ""}, {"interpreter": "", "note": ["a"]}),
)


def test_other_words_are_nonsense() -> None:
    for word in NONSENSE:
        heard = evaluation()
        with pytest.raises(DriverProtocolError):
            heard.apply(word)
        assert not heard.is_finished, word


def test_pictures_that_are_too_many_or_too_large_are_dropped() -> None:
    heard = evaluation()
    for data in (b"abc", b"abcd", b"a", b"b"):
        heard.apply({"picture": base64.b64encode(data).decode(), "tag": "mine"})
    assert (heard.pictures, heard.dropped) == ([b"abc", b"a"], 2)
