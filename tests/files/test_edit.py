"""Edits of a text by its exact words: what they change, and what is said when they cannot be made."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_toolserver.errors import Conflict, InvalidInput, ToolError
from mcp_toolserver.text.edit.edit import MAX_CHARACTERS, Edit, Edited, apply
from mcp_toolserver.text.edit.matches import folded

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


def test_an_edit_whose_text_an_earlier_edit_changed_gets_an_error() -> None:
    message = refusal("name", Edit(old_string="na", new_string="NA"), Edit(old_string="name", new_string="x"))

    assert "an edit before it" in message


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
    (FILE, "6:    return 0\n7:\n", ("line numbers", "line 6")),
    (FILE, ESCAPES, ("backslash", "line 1")),
    (FILE, 'print(\\"hello\\"', ("backslash", "line 5")),
    (FILE, "compute(name, “x\n”)", ("backslash", "line 9")),
    ('s = "\\"a\\\\n\\""', '"a\\n"', ("backslash", "line 1")),
    (FILE, "&lt;b&gt;here", ("HTML", "line 10")),
    (FILE, "\nimport os\n", ("Without the line breaks", "line 1")),
    ("a\nlast", "last\n", ("Without the line breaks", "line 2")),
    ("one\rtwo\rthree", "two\nthree", ("carriage return", "line 2")),
    ("one\ntwo", "one\rtwo", ("carriage return", "line 1")),
    (FILE, 'compute(name, "x\\n")', ("typographic", "line 9", "\\u201c")),
    (FILE, "\"it's <b>", ("typographic", "line 10", "\\u00a0")),
    ("a – b", "a - b", ("typographic", "line 1", "\\u2013")),
    (FILE, "args[0])\n    return", ("end of lines", "line 5")),
    (FILE, "    if args:", ("indentation", "line 4", '"\\tif args:"')),
    (FILE, "  return 0\n\n  def", ("indentation", "line 6")),
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


def test_an_edit_made_before_is_recognised() -> None:
    message = refusal(FILE, Edit(old_string="class Unrelated:", new_string="def main(args):"))

    assert "new_string is there already, on line 3" in message


def test_an_explanation_of_long_lines_is_short() -> None:
    line = "word " * 100_000
    message = refusal(f"{line}needle one\n", Edit(old_string=f"{line}needle two", new_string="x"))

    assert len(message) < 1_000
    assert "needle one" in message
    assert "needle two" in message


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
