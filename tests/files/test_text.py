"""Text files: their encodings, pages of them in constant memory, and edits by the exact words."""

import io
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_toolserver.errors import Conflict, InvalidInput, ToolError
from mcp_toolserver.text.edit.edit import MAX_CHARACTERS, Edit, Edited, apply
from mcp_toolserver.text.edit.matches import folded
from mcp_toolserver.text.lines import page as module
from mcp_toolserver.text.lines.encoding import detect
from mcp_toolserver.text.lines.page import Page, page

TEXTS = {
    "utf-8": (
        *(b"", b"plain\r\n", "naïve “quotes” 漢字 🙂\n".encode(), b"\x1b[31mred\x1b[0m\f\x07\n"),
        b"a line with one \x01 among its characters\n",
    ),
    "utf-8 with BOM": (b"\xef\xbb\xbfcaf\xc3\xa9\n",),
    "utf-16-le with BOM": (b"\xff\xfe" + "é漢🙂\r\n".encode("utf-16-le"),),
    "utf-16-be with BOM": (b"\xfe\xff" + "é漢🙂\r\n".encode("utf-16-be"),),
    "windows-1252": (
        *(b"caf\xe9 \x93quoted\x94\r\n", "русский текст".encode("cp1251"), b"caf\xe9\r\n\x1a"),
        # A character that is not whole, in a whole file.
        "naïve café".encode()[:-1],
    ),
    "latin-1": (b"a name with caf\xe9 and the byte \x81 in it\n",),
}
BINARY = (
    *(b"text\0text", "no mark".encode("utf-16-le"), b"\xff\xfe" + "a\0b".encode("utf-16-le")),
    # UTF-32, half a unit of UTF-16, and half a surrogate pair.
    *(b"\xff\xfe\0\0" + "abc".encode("utf-32-le"), b"\xff\xfea", b"\xff\xfe\x00\xd8a\x00"),
    *(b"\x01\x02\x03\x04abcd", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\xff\xd8\xff\xe0\x00\x10JFIF"),
    *(b"\x1f\x8b\x08\x08\x83\xf5\x16h\x02\x03", bytes(range(0x80, 0x100))),
)


def test_a_text_file_is_recognised_and_a_binary_file_is_not() -> None:
    for name, contents in TEXTS.items():
        for raw in contents:
            encoding = detect(raw)
            assert encoding is not None, raw
            assert encoding.name == name, raw
            assert encoding.encode(encoding.decode(raw)) == raw
    assert [raw for raw in BINARY if detect(raw) is not None] == []


def test_a_prefix_may_end_within_a_character() -> None:
    text = "é漢🙂"
    for raw, name in (
        (text.encode(), "utf-8"),
        (b"\xef\xbb\xbf" + text.encode(), "utf-8 with BOM"),
        (b"\xff\xfe" + text.encode("utf-16-le"), "utf-16-le with BOM"),
    ):
        for end in range(3, len(raw)):
            encoding = detect(raw[:end], complete=False)
            assert encoding is not None
            assert encoding.name == name


ANY = st.one_of(st.binary(), st.text().map(str.encode), st.text().map(lambda text: text.encode("utf-16")))


@given(ANY, st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"]))
def test_what_is_accepted_comes_back_byte_by_byte_with_its_mark(content: bytes, mark: bytes) -> None:
    raw = mark + content
    encoding = detect(raw)

    assert encoding is None or encoding.encode(encoding.decode(raw)) == raw


PLENTY = 1_000_000


def of(content: bytes, **asked: int) -> Page:
    return page(io.BytesIO(content), **{"skip": 0, "take": 2000, "max_bytes": PLENTY, **asked})


@given(
    text=st.text(st.sampled_from("ab\n\réx€😀\u0a0a\u2028\x0c\x85"), max_size=60),
    skip=st.integers(0, 8),
    take=st.integers(1, 8),
    chunk=st.integers(1, 7),
    codec=st.sampled_from(
        [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")]
    ),
)
def test_a_page_is_a_slice_of_all_lines(
    text: str, skip: int, take: int, chunk: int, codec: tuple[str, bytes]
) -> None:
    content = codec[1] + text.encode(codec[0])
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    lines = lines[:-1] if not text or text.endswith("\n") else lines
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SAMPLE", 4)
        patch.setattr(module, "_CHUNK", chunk)
        found = of(content, skip=skip, take=take)
        inside = of(content, skip=skip, take=take, column=2)
    assert list(found.lines) == lines[skip : skip + take]
    rest = [line.encode()[2:].decode(errors="ignore") for line in lines[skip : skip + 1]]
    assert list(inside.lines) == [*rest, *lines[skip + 1 : skip + take]]
    assert found.total == len(lines)
    assert found.next_skip == (skip + take if skip + take < len(lines) else None) or not found.lines


def test_a_page_is_cut_exactly_at_its_bytes() -> None:
    content = b"aaaa\nbbbb\n"
    whole = of(content, max_bytes=len("1\taaaa\n2\tbbbb\n"))
    assert (whole.lines, whole.cut_by_bytes, whole.next_skip) == (("aaaa", "bbbb"), False, None)
    cut = of(content, max_bytes=len("1\taaaa\n2\tbbbb\n") - 1)
    assert (cut.lines, cut.cut_by_bytes, cut.next_skip) == (("aaaa",), True, 1)


def test_a_line_longer_than_a_page_is_cut_between_characters() -> None:
    for line in ("x" * 1000, "é" * 500, "€" * 333, "😀" * 250):
        for room in range(100, 104):
            found = of(f"short\n{line}\nlast\n".encode(), skip=1, max_bytes=room)
            (shown,) = found.lines
            assert line.startswith(shown)
            assert room - 6 <= len(shown.encode()) <= room - 3
            assert (found.long_line, found.cut_by_bytes) == ((len(shown.encode()), len(line.encode())), True)
            assert found.next_skip == 2
            assert of(f"short\n{line}\nlast\n".encode(), max_bytes=room).lines == ("short",)


def test_what_starts_as_ascii_and_turns_out_to_be_latin_is_read_as_such() -> None:
    content = b"ascii\n" * 20_000 + b"caf\xe9\n"
    found = of(content, skip=20_000)
    assert (found.lines, found.encoding) == (("café",), "windows-1252")
    assert of(content, skip=0, take=3).encoding == "utf-8"


def test_bytes_that_are_no_text_far_into_a_file_do_not_stop_the_reading() -> None:
    found = of(b"ascii\n" * 20_000 + b"\0\xff\x81\n", skip=20_000)
    assert len(found.lines) == 1


def test_a_slice_of_a_huge_file_costs_constant_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "huge.log", 1024**3 // 4
    with path.open("wb") as file:
        file.write(b"head\n" * 20_000)
        file.seek(size // 2)  # the holes read as one line of 128 MB each
        file.write(b"\n" + b"".join(b"line %d\n" % number for number in range(1000)))
        file.seek(size - 5)
        file.write(b"\nend\n")
    tracemalloc.start()
    try:
        with path.open("rb") as file:
            found = page(file, skip=20_001 + 450, take=100, max_bytes=PLENTY)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert found.lines == tuple(f"line {number}" for number in range(450, 550))
    assert (found.first, found.last, found.total) == (20_452, 20_551, 21_003)
    with path.open("rb") as file:
        long = page(file, skip=20_000, take=1, max_bytes=1000)
    assert long.long_line == (1000 - 7, size // 2 - 100_000)
    assert len(long.lines[0]) == 1000 - 7


TEXT = st.text(alphabet="ab \r\n", max_size=40)
MIXED = st.lists(st.sampled_from(["a", "b", " ", "\n", "\r\n"]), max_size=40).map("".join)
SENT = st.text(alphabet="ab \n", min_size=1, max_size=4)


def edit(content: str, old: str, new: str, *, every: bool = False) -> Edited:
    return apply(content, [Edit(old_string=old, new_string=new, replace_all=every)])


def refusal(content: str, *edits: Edit) -> str:
    with pytest.raises(Conflict) as refused:
        apply(content, edits)
    return str(refused.value)


def spans(content: str, old: str) -> list[tuple[int, int]]:
    """Where `old` stands in `content` if a line break in it may be either; overlapping places too."""
    pattern = re.compile("\r?\n".join(map(re.escape, old.split("\n"))))
    matches = (pattern.match(content, start) for start in range(len(content)))
    return [
        match.span()
        for match in matches
        if match and content[match.start() - 1 : match.start() + 1] != "\r\n"
    ]


@given(MIXED, SENT, TEXT)
def test_nothing_changes_outside_the_one_match(content: str, old: str, new: str) -> None:
    assume(old != new)
    places = spans(content, old)
    try:
        result = edit(content, old, new)
    except Conflict:
        assert len(places) != 1
    else:
        [(start, end)] = places
        assert result.content.startswith(content[:start])
        assert result.content.endswith(content[end:])
        middle = result.content[start : len(result.content) - len(content) + end]
        assert folded(middle) == folded(new)
        assert result.count == 1


@given(st.text(alphabet="ab\n", max_size=60), SENT, st.text(alphabet="ab\n", max_size=6), st.booleans())
def test_a_file_with_one_line_ending_keeps_it(content: str, old: str, new: str, every: bool) -> None:
    assume("\n" in content)
    windows = content.replace("\n", "\r\n")
    try:
        expected = edit(content, old, new, every=every)
    except ToolError as error:
        with pytest.raises(type(error)):
            edit(windows, old, new, every=every)
    else:
        assert edit(windows, old, new, every=every).content == expected.content.replace("\n", "\r\n")


LINE_BREAKS = (
    ("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", "x\r\ny\r\nz\r\nc\r\n"),
    ("a\r\nb\r\n", "b", "b\nc", "a\r\nb\r\nc\r\n"),
    ("a\r\nb", "b", "b\nc", "a\r\nb\r\nc"),
    # The ending of its own line, and those of mixed lines one by one.
    ("a\nb\r\nc\n", "b", "b\nB", "a\nb\r\nB\r\nc\n"),
    ("a\r\nb\nc\r\n", "a\nb\nc", "A\nB\nC", "A\r\nB\nC\r\n"),
    ("a\r\nb\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\n"),
    # Sent with carriage returns, by habit or on purpose.
    ("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"),
    ("a\r\nb", "a\r\nb", "a\nb", "a\nb"),
    ("a\nb\n", "a\nb", "a\r\nb", "a\r\nb\n"),
    ("a\r\n", "a\n", "a\rb\n", "a\rb\n"),
    ("x\r\ny", "\ny", "", "x"),
    ("one\n", "one", "", "\n"),
    ("a", "a", "b\nc", "b\nc"),
    ("\na", "a", "b\nc", "\nb\nc"),
)


def test_line_breaks_are_those_of_the_file() -> None:
    assert [edit(*case[:3]).content for case in LINE_BREAKS] == [case[3] for case in LINE_BREAKS]
    assert not edit("a\nb", "a\nb", "c").flexible
    assert edit("a\r\nb", "a\nb", "c").flexible


def test_the_lines_of_all_edits_are_those_of_the_result() -> None:
    edits = [
        Edit(old_string="five", new_string="FIVE"),
        Edit(old_string="one", new_string="0\n1"),
        Edit(old_string="two\nthree\n", new_string=""),
        Edit(old_string="x\nFIVE", new_string="x\ny\nfive"),
    ]

    result = apply("one\ntwo\nthree\nx\nfive\nlast\n", edits)

    assert result.content == "0\n1\nx\ny\nfive\nlast\n"
    assert result.lines == (1, 3)
    assert result.count == 4


def test_very_many_replacements_are_made_alike() -> None:
    for content, old, new, expected in (
        ("a\n" * 20_000, "a", "b\nc", "b\nc\n" * 20_000),
        ("a\r\n" * 20_000, "a", "b\nc", "b\r\nc\r\n" * 20_000),
        ("a\r\n" * 20_000, "a\n", "b", "b" * 20_000),
        ("a\r\na\n" * 10_000, "a", "b", "b\r\nb\n" * 10_000),
    ):
        result = edit(content, old, new, every=True)
        assert result.content == expected
        assert result.count == 20_000
    with pytest.raises(InvalidInput, match="mixed line endings"):
        edit("a\r\na\n" * 10_000, "a", "b\nc", every=True)


IMPOSSIBLE = (
    [Edit(old_string="", new_string="x")],
    [Edit(old_string="a", new_string="a")],
    [Edit(old_string="a", new_string="b"), Edit(old_string="", new_string="x")],
    # Wrong arguments come before wrong content.
    [Edit(old_string="missing", new_string="b"), Edit(old_string="c", new_string="c")],
    [Edit(old_string="a", new_string="x" * MAX_CHARACTERS, replace_all=True)],
)


def test_an_edit_that_could_never_be_made_is_invalid() -> None:
    for edits in IMPOSSIBLE:
        with pytest.raises(InvalidInput):
            apply("a a", edits)


def test_an_ambiguous_text_is_refused_with_its_lines() -> None:
    for content, old, said in (
        ("x\nx\ny\nx", "x", "3 times (lines 1, 2 and 4)"),
        ("xx", "x", "2 times (line 1)"),
        ("aaa", "aa", "2 times (line 1)"),
        ("a\nb\na\r\nb", "a\nb", "2 times (lines 1 and 3)"),
        ("x\n" * 30, "x", "9, 10 and further ones"),
    ):
        message = refusal(content, Edit(old_string=old, new_string="new"))
        assert said in message
        assert "replace_all" in message


FILE = """\
import os

def main(args):
\tif args:
\t\tprint("hello", args[0])\x20\x20
    return 0

def other(name: str) -> int:
    value = compute(name, “x\\n”)
    note = "it's\xa0<b>here</b>"
    return value
"""

LINE_NUMBERS, ESCAPES = "3\tdef main(args):\n4\t\tif", "import os\\n\\ndef main"
TWO_DIFFERENCES = '    if args:\n        print("hello", args[0])\n'
ONE_LINE_DIFFERS = "def other(name: str) -> int:\n    value = call(name)\n    return value"
SEVERAL = "white space at the end of lines and indentation"

EXPLAINED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (FILE, LINE_NUMBERS, ("line numbers", "line 3")),
    (FILE, ESCAPES, ("backslash", "line 1")),
    ('s = "\\"a\\\\n\\""', '"a\\n"', ("backslash", "line 1")),
    (FILE, "&lt;b&gt;here", ("HTML", "line 10")),
    (FILE, "\nimport os\n", ("Without the line breaks", "line 1")),
    ("one\rtwo\rthree", "two\nthree", ("carriage return", "line 2")),
    (FILE, 'compute(name, "x\\n")', ("typographic", "line 9", "\\u201c")),
    (FILE, "args[0])\n    return", ("end of lines", "line 5")),
    (FILE, "    if args:", ("indentation", "line 4", '"\\tif args:"')),
    (FILE, "def main( args ):", ("nearest", "line is 3")),
    (FILE, "name:  str", ("within lines", "line 8")),
    (FILE, "def Main(args)", ("upper and lower case", "line 3")),
    (FILE, TWO_DIFFERENCES, (SEVERAL, "Line 4", "Line 5")),
    (FILE, "    value = computed(name)", ("nearest line is 9",)),
    (FILE, ONE_LINE_DIFFERS, ("begins on line 8", "Line 9", '"    value = call(name)"')),
    ("b\nonly line", "a\nb\nonly line\nx", ("no line there",)),
    *((FILE, old, ("Nothing in the file is like it",)) for old in ("class Unrelated:", "++", "   \t   \t")),
    ("", "a", ("write_file",)),
)


def test_a_text_that_is_not_found_is_explained() -> None:
    for content, old, said in EXPLAINED:
        message = refusal(content, Edit(old_string=old, new_string="something new"))
        assert [words for words in said if words not in message] == [], message
        assert message.endswith("The file is unchanged.")


MEGABYTES = 2_000_000


def test_a_hostile_file_is_explained_in_linear_time() -> None:
    """REDOS06."""
    for content, old in (
        ("a" * MEGABYTES, "a" * 5_000 + "b"),
        ("ab" * (MEGABYTES // 2), "ab" * 5_000 + "c\n" + "ab" * 5_000),
        ("abc\n" * (MEGABYTES // 4), "abc\nabd\n" * 2_500),
        ("\r\n" * (MEGABYTES // 2) + "x", "\n" * 5_000 + "abc\n"),
        (" " * 400_000 + "x", " " * 5_000 + "y"),
        ("“”–" * 120_000, '""-' * 600 + "X"),
    ):
        message = refusal(content, Edit(old_string=old, new_string="new"))
        assert len(message) < 3_000
