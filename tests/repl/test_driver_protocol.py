"""What is believed of a session's driver, and what is not."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.runtime.repl.sandboxed.driver import LineDecoder
from mcp_toolserver.runtime.repl.session import (
    MAX_LINE,
    Decoder,
    DriverProtocolError,
    OngoingEvaluation,
)


def evaluation() -> tuple[OngoingEvaluation, bytearray]:
    on_output = bytearray()
    return OngoingEvaluation(
        tag="mine", on_output=on_output.extend, max_pictures=2, max_picture_bytes=3
    ), on_output


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
    {},
    {"output": 1},
    {"output": "?"},
    {"output": "\u00e4"},
    {"picture": "AAAA"},
    {"picture": 1, "tag": "mine"},
    {"done": 0},
    {"done": 256, "tag": "mine"},
    {"done": "0", "tag": "mine"},
    {"ended": -1},
    {"ready": 1},
    {"ready": True},
    {"interpreter": "/python"},
    {"interpreter": 1, "note": ""},
    {"interpreter": "", "note": ["a"]},
    {"missing": None},
    {"more": 1},
)


def test_other_words_are_nonsense() -> None:
    for word in NONSENSE:
        heard, _ = evaluation()
        with pytest.raises(DriverProtocolError):
            heard.apply(word)
        assert not heard.is_finished, word


def test_output_pictures_and_ends_are_taken() -> None:
    heard, on_output = evaluation()
    heard.apply({"output": base64.b64encode(b"\xff\0").decode()})
    for data in (b"abc", b"abcd", b"a", b"b"):
        heard.apply({"picture": base64.b64encode(data).decode(), "tag": "mine"})
    assert (bytes(on_output), heard.pictures, heard.dropped, heard.is_finished) == (
        b"\xff\0",
        [b"abc", b"a"],
        2,
        False,
    )
    heard.apply({"done": 3, "tag": "mine"})
    assert (heard.status, heard.is_finished) == (3, True)
    ends: list[dict[str, object]] = [{"ended": 9}, {"missing": "node"}]
    for word in ends:
        other, _ = evaluation()
        other.apply(word)
        assert other.is_finished


def test_texts_about_the_interpreter_are_one_short_line() -> None:
    heard, _ = evaluation()
    for word in ({"interpreter": "a\n\x1b[2Jb", "note": "\u202en" * 1000}, {"ready": "v\0" * 1000}):
        heard.apply(dict(word))
    assert heard.interpreter == "a[2Jb"
    assert (set(heard.note), len(heard.note)) == ({"n"}, 150)
    assert (set(heard.version), len(heard.version)) == ({"v"}, 150)
