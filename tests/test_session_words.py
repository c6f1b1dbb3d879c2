"""What is believed of a session's driver, and what is not."""

import base64
import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.processes import JobState
from mcp_toolserver.capabilities.sessions import Evaluation
from mcp_toolserver.runtime.repl.driver import Lines
from mcp_toolserver.runtime.session_words import LONGEST, Hearing, Nonsense, Words
from mcp_toolserver.text.repl import evaluated, named_language, one_shot


def hearing() -> tuple[Hearing, bytearray]:
    printed = bytearray()
    return Hearing(tag="mine", printed=printed.extend, most_pictures=2, most_bytes=3), printed


@given(st.lists(st.dictionaries(st.text(), st.integers())), st.lists(st.integers(1, 40)))
def test_words_are_the_same_in_any_pieces(words: list[dict[str, int]], sizes: list[int]) -> None:
    stream = b"".join(json.dumps(word).encode() + b"\n" for word in words)
    for lines in (Words(), Lines()):
        heard, rest = [], stream
        for size in (*sizes, len(stream)):
            heard += lines.taken(rest[:size])
            rest = rest[size:]
        assert heard == words


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"1", id="a number"),
        pytest.param(b"[{}]", id="a list"),
        pytest.param(b"{", id="half an object"),
        pytest.param(b"\xff", id="no UTF-8"),
        pytest.param(b'{"a":' * 100_000, id="too deep"),
    ],
)
def test_what_is_no_object_is_nonsense_to_the_server_and_nothing_to_the_driver(line: bytes) -> None:
    with pytest.raises(Nonsense):
        list(Words().taken(line + b"\n"))
    assert list(Lines().taken(line + b"\n{}\n")) == [{}]


def test_a_line_without_end_is_given_up() -> None:
    words = Words()
    assert list(words.taken(b"x" * LONGEST)) == []
    with pytest.raises(Nonsense):
        list(words.taken(b"x"))
    lines = Lines()
    for _ in range(20):
        assert list(lines.taken(b"x" * (1 << 20))) == []
    assert list(lines.taken(b'"}\n{"a": 1}\n')) == [{"a": 1}]


@pytest.mark.parametrize(
    "word",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"output": 1}, id="output that is no text"),
        pytest.param({"output": "?"}, id="output that is not encoded"),
        pytest.param({"output": "\u00e4"}, id="output beyond ASCII"),
        pytest.param({"picture": "AAAA"}, id="a picture of nothing"),
        pytest.param({"picture": 1, "tag": "mine"}, id="a picture that is no text"),
        pytest.param({"done": 0}, id="an end of nothing"),
        pytest.param({"done": 256, "tag": "mine"}, id="no status"),
        pytest.param({"done": "0", "tag": "mine"}, id="a status in words"),
        pytest.param({"ended": -1}, id="no exit status"),
        pytest.param({"ready": 1}, id="half ready"),
        pytest.param({"missing": None}, id="nothing that is missing"),
        pytest.param({"more": 1}, id="unknown"),
    ],
)
def test_other_words_are_nonsense(word: dict[str, object]) -> None:
    heard, _ = hearing()
    with pytest.raises(Nonsense):
        heard.take(word)
    assert not heard.over


def test_output_pictures_and_ends_are_taken() -> None:
    heard, printed = hearing()
    heard.take({"output": base64.b64encode(b"\xff\0").decode()})
    for data in (b"abc", b"abcd", b"a", b"b"):
        heard.take({"picture": base64.b64encode(data).decode(), "tag": "mine"})
    assert (bytes(printed), heard.pictures, heard.dropped, heard.over) == (
        b"\xff\0",
        [b"abc", b"a"],
        2,
        False,
    )
    heard.take({"done": 3, "tag": "mine"})
    assert (heard.status, heard.over) == (3, True)
    ends: list[dict[str, object]] = [{"ended": 9}, {"missing": "node"}]
    for word in ends:
        other, _ = hearing()
        other.take(word)
        assert other.over


def test_words_for_other_code_change_nothing() -> None:
    heard, _ = hearing()
    heard.take({"picture": "AAAA", "tag": "other"})
    heard.take({"done": 0, "tag": None})
    assert (heard.pictures, heard.status, heard.over) == ([], None, False)


STATE = JobState(
    handle="",
    text="out\n",
    start=0,
    next_offset=4,
    total=4,
    running=False,
    exit_status=0,
    reason="exited",
    seconds=1.25,
)


@pytest.mark.parametrize(
    ("came", "asked", "note"),
    [
        pytest.param(Evaluation(state=STATE), "", "", id="done"),
        pytest.param(Evaluation(state=STATE, session="s"), "s", "", id="goes on"),
        pytest.param(Evaluation(state=STATE, session="s"), "new", "[session s]", id="new"),
        pytest.param(Evaluation(state=STATE), "s", "[the session has ended]", id="ended as told"),
        pytest.param(
            Evaluation(state=STATE, timed_out=True), "", "[timeout after 1.2 s: interrupted]", id="too slow"
        ),
        pytest.param(
            Evaluation(state=STATE, gone="was killed", timed_out=True),
            "s",
            "[timeout after 1.2 s; the session was killed]",
            id="too slow, and killed",
        ),
        pytest.param(Evaluation(state=STATE, gone="fell"), "s", "[the session fell]", id="gone"),
    ],
)
def test_what_came_of_code_is_told(came: Evaluation, asked: str, note: str) -> None:
    assert evaluated(came, "python", asked=asked, hidden=0) == f"out\n{note}"


@pytest.mark.parametrize("name", ["ruby", "", 3, None])
def test_another_language_is_refused(name: object) -> None:
    with pytest.raises(ValueError, match="use python, javascript or shell"):
        named_language(name)


def test_code_is_quoted_for_the_shell() -> None:
    code = "print('it', \"$HOME\")"
    assert shlex.split(one_shot("python", code).splitlines()[-1]) == ["exec", "python3", "-c", code]
    assert one_shot("shell", code) == code
