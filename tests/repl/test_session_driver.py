"""The driver of a session with real interpreters, and what the server believes of it and what not."""

import base64
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.runtime.repl.sandboxed import driver
from mcp_toolserver.runtime.repl.sandboxed.driver import LineDecoder
from mcp_toolserver.runtime.repl.session import MAX_LINE, Decoder, DriverProtocolError, OngoingEvaluation
from tests.support.extent import examples
from tests.support.processes import PATIENCE
from tests.support.workshop import program

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
