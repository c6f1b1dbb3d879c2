"""The driver of a session with real interpreters, and what the server believes of it and what not."""

import base64
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.runtime.repl.sandboxed import driver
from mcp_toolserver.runtime.repl.sandboxed.driver import LineDecoder
from mcp_toolserver.runtime.repl.session import MAX_LINE, Decoder, DriverProtocolError, OngoingEvaluation
from tests.support.processes import PATIENCE
from tests.support.workshop import program

DRIVER = driver.__file__
PYENV = Path("~/.pyenv/versions").expanduser()


@dataclass
class Talk:
    """With one driver, which ends when its input does."""

    process: "subprocess.Popen[bytes]"
    words: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def send(self, **message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        self.words.append(json.loads(self.process.stdout.readline() or b'{"silent": true}'))
        return self.words[-1]

    def ready(self) -> str:
        """The version that the interpreter states, once it is ready."""
        return self.answer("ready")[0]["ready"]

    def answer(self, *kinds: str) -> tuple[dict[str, Any], str]:
        """The next word of one of these kinds, and what was printed until then."""
        printed = b""
        while not self.next().keys() & {*kinds, "silent"}:
            printed += base64.b64decode(self.words[-1].get("output", ""))
        return self.words[-1], printed.decode()

    def run(self, code: str, tag: str = "t") -> tuple[dict[str, Any], str]:
        self.send(run=code, tag=tag)
        return self.answer("done", "ended")


@contextmanager
def talk(language: str, folder: Path) -> Generator[Talk]:
    environment = {**os.environ, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}", "HOME": str(folder)}
    command = [sys.executable, "-I", DRIVER, language]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=folder, env=environment) as process:
        yield Talk(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_a_picture_is_sent_with_the_tag_of_its_code(tmp_path: Path) -> None:
    with talk("python", tmp_path) as session:
        session.ready()
        session.send(run="class A:\n  def _repr_jpeg_(self): return b'abc'\nA()", tag="c")
        assert session.answer("picture")[0] == {"picture": base64.b64encode(b"abc").decode(), "tag": "c"}
        assert session.answer("done")[0] == {"done": 0, "tag": "c"}
        # An interrupt between two codes is nothing to the next.
        session.send(interrupt=True)
        assert session.run("6 * 7") == ({"done": 0, "tag": "t"}, "42\n")


def test_python_ends_after_the_last_code_as_a_program_does(tmp_path: Path) -> None:
    with talk("python", tmp_path) as session:
        session.ready()
        session.send(run="import atexit\natexit.register(print, 'end')\n1 / 0", tag="a", last=True)
        ended, printed = session.answer("ended")
    assert ended == {"ended": 1}
    assert printed.endswith("ZeroDivisionError: division by zero\nend\n")


PYTHONS = ("python3.8", "python3.9", "python3.12", "python3.14")


@pytest.mark.parametrize("name", PYTHONS)
def test_a_bare_python_of_another_version_keeps_state(tmp_path: Path, name: str) -> None:
    """As far as this machine has it: the bridge may use nothing newer than Python 3.8."""
    candidates = [shutil.which(name), *PYENV.glob(f"{name.removeprefix('python')}.*/bin/{name}")]
    # A shim of pyenv may lead to no interpreter.
    found = next(
        (file for file in candidates if file and subprocess.run([file, "-c", ""]).returncode == 0), None
    )
    if found is None:
        pytest.skip(f"no {name} here")
    project_python(tmp_path, f'exec {shlex.quote(str(found))} -S "$@"')
    with talk("python", tmp_path) as session:
        assert session.ready().startswith(f"CPython {name.removeprefix('python')}.")
        assert session.run("import asyncio\nx = await asyncio.sleep(0, 41)\nx + 1")[1] == "42\n"
        assert "<input 2>" in session.run("1 / 0")[1]
        assert session.run("x") == ({"done": 0, "tag": "t"}, "41\n")


def project_python(folder: Path, script: str) -> None:
    """An interpreter of the project in `folder`, in whose place a shell script runs."""
    (folder / ".venv/bin").mkdir(parents=True)
    program(folder / ".venv/bin", "python", script)


def test_words_that_make_no_sense_are_passed_over_and_a_server_that_is_gone_ends_it(tmp_path: Path) -> None:
    with talk("shell", tmp_path) as session:
        session.ready()
        for message in ({}, {"run": 1, "tag": "t"}, {"run": "echo no"}, {"run": "echo no", "tag": 1}):
            session.send(**message)
        assert session.run("echo yes")[1] == "yes\n"
        assert session.process.stdout is not None
        session.process.stdout.close()
        session.send(run="echo nobody reads this", tag="t")


def evaluation() -> OngoingEvaluation:
    return OngoingEvaluation(tag="mine", on_output=lambda _: None, max_pictures=2, max_picture_bytes=3)


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


def test_texts_about_the_interpreter_are_one_short_line() -> None:
    heard = evaluation()
    for word in ({"interpreter": "a\n\x1b[2Jb", "note": "\u202en" * 1000}, {"ready": "v\0" * 1000}):
        heard.apply(dict(word))
    assert heard.interpreter == "a[2Jb"
    assert (set(heard.note), len(heard.note)) == ({"n"}, 150)
    assert (set(heard.version), len(heard.version)) == ({"v"}, 150)
