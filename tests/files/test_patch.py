"""Reading patches and applying them to texts, compared with git and patch; unified diffs of our own."""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Conflict, InvalidInput, NotFound, ToolError
from mcp_toolserver.text.edit.unified_diff import unified
from mcp_toolserver.text.patch.apply import Applied, apply_hunks
from mcp_toolserver.text.patch.formats import git_names, name, parse
from mcp_toolserver.text.patch.model import Section
from mcp_toolserver.text.patch.plan import Plan, plan
from tests.support.calling import make

HEAD = "--- a/f\n+++ b/f\n"

LINES = st.lists(
    st.sampled_from(["a\n", "b\n", "c\n", "\n", "d\r\n", "-- x\n", "++ y\n", "@@ z\n", " \n", "x y\x0c\n"]),
    max_size=30,
)
ENDS = st.sampled_from(["", "end", "-- ", "end\r"])


def only(text: str) -> Section:
    [section] = parse(text).sections
    return section


def applied(before: str, text: str) -> Applied:
    return apply_hunks(before, only(text).hunks)


def refusal(before: str, text: str) -> str:
    with pytest.raises(Conflict) as refused:
        applied(before, text)
    return str(refused.value)


def planned(text: str, **files: bytes | None) -> Plan:
    """What becomes of files, those that are not there included."""
    patch = parse(text)
    contents = {CanonicalPath(path): files.get(path.replace("/", "__")) for path in patch.paths}
    return plan(patch, contents)


def results(made: Plan) -> dict[str, bytes | None]:
    return {change.path: change.content for change in made[0]}


def envelope(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch", ""))


def update(*lines: str) -> str:
    return envelope("*** Update File: f", *lines)


@given(LINES, ENDS, LINES, ENDS)
def test_a_diff_of_ours_applied_to_the_old_text_gives_the_new(
    old: list[str], old_end: str, new: list[str], new_end: str
) -> None:
    before, after = "".join(old) + old_end, "".join(new) + new_end
    diff = unified(before, after, "f", limit=1 << 30)
    if before != after:
        made = applied(before, diff)
        assert (made.content, made.notes, made.loose) == (after, (), False)


@given(LINES, ENDS, LINES, ENDS)
@settings(max_examples=25, deadline=None)
def test_what_diff_writes_is_read_as_patch_reads_it(
    old: list[str], old_end: str, new: list[str], new_end: str
) -> None:
    before, after = "".join(old) + old_end, "".join(new) + new_end
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "f").write_bytes(before.encode())
        (Path(folder) / "new").write_bytes(after.encode())
        diff = _out(folder, "diff", "-u", "f", "new", ok=(0, 1))
        if not diff:
            return
        _out(folder, "patch", "-s", "f", stdin=diff)
        assert (Path(folder) / "f").read_bytes() == after.encode()
    assert applied(before, diff.decode()).content == after


def _out(folder: str | Path, *command: str, stdin: bytes = b"", ok: Sequence[int] = (0,)) -> bytes:
    done = subprocess.run(command, input=stdin, cwd=folder, capture_output=True, timeout=30, check=False)
    assert done.returncode in ok, done.stderr
    return done.stdout


@given(st.text(alphabet="@+- \\*/\nabdEFiBPeghnl:,1", max_size=200))
def test_no_text_makes_the_reader_fail_otherwise_than_by_saying_why(text: str) -> None:
    for candidate in (text, HEAD + text, f"*** Begin Patch\n{text}\n*** End Patch", f"diff --git {text}"):
        try:
            patch = parse(candidate)
        except ValueError as error:
            assert len(str(error)) > 20  # noqa: PT017  both ways out are right
        else:
            assert patch.sections


GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false")

NUMBERS = [b"%d\n" % number for number in range(30)]
NAMED = b"".join(b"line %d\n" % number for number in range(20))
BEFORE = {
    "keep": b"kept\n",
    "edit me.txt": b"".join(NUMBERS),
    "caf\u00e9": b"1\n2\n3\n4\n5\n",
    "gone": b"a\nb",
    "old/name": NAMED,
    "run": b"#!/bin/sh\n",
    "empty-gone": b"",
    "crlf": b"a\r\nb\r\nc\r\n",
    'quo"te': b"x\n",
    "tab\tbed": b"x\n",
}
AFTER = {
    "keep": b"kept\nand changed\n",
    "edit me.txt": b"first\n" + b"".join(NUMBERS[:28]) + b"end",
    "caf\u00e9": b"1\n2\nthree\n4\n5\n",
    "new/name": NAMED + b"more\n",
    "copy": b"kept\n",
    "run": b"#!/bin/sh\n",
    "empty-new": b"",
    "script": b"#!/bin/sh\n-- \n",
    "crlf": b"a\r\nb!\r\nc\n",
    'quo"te': b"y",
    "tab\tbed": b"-- y\n++ z\n",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _out(make(tmp_path, BEFORE), *GIT, "init", "-q", "-b", "main")
    for commit, files in (("one", BEFORE), ("two", AFTER)):
        for path in BEFORE:
            (tmp_path / path).unlink()
        make(tmp_path, files)
        for path in ("run", "script") if commit == "two" else ():
            (tmp_path / path).chmod(0o755)
        _out(tmp_path, *GIT, "add", "-A")
        _out(tmp_path, *GIT, "commit", "-qm", commit)
    return tmp_path


FORMS = {
    "plain": ("diff", "HEAD~", "HEAD"),
    "renames": ("diff", "-M", "HEAD~", "HEAD"),
    "copies": ("diff", "-C", "--find-copies-harder", "HEAD~", "HEAD"),
    "no-prefix": ("diff", "--no-prefix", "-M", "HEAD~", "HEAD"),
    "other-prefixes": ("-c", "diff.mnemonicPrefix=true", "diff", "HEAD~", "HEAD"),
    "mail": ("format-patch", "--stdout", "-M", "HEAD~"),
    "show": ("show", "--stat", "-p", "HEAD"),
    "little-context": ("diff", "-U1", "HEAD~", "HEAD"),
    "whole-functions": ("diff", "-W", "HEAD~", "HEAD"),
    "raw-names": ("-c", "core.quotePath=false", "diff", "HEAD~", "HEAD"),
}


def test_everything_that_git_says_of_files_is_carried_out(
    repository: Path, subtests: pytest.Subtests
) -> None:
    for form, words in FORMS.items():
        with subtests.test(form):
            patch = parse(_out(repository, *GIT, *words).decode())
            before = {CanonicalPath(path): BEFORE.get(path) for path in patch.paths}
            after = {path: AFTER.get(path) for path in before}
            made = plan(patch, before)
            assert not any(outcome.notes for outcome in made[1])
            assert {**before, **{change.path: change.content for change in made[0]}} == after
            assert {change.path for change in made[0] if change.executable} == {"run", "script"}


HEADERS = {
    "a/x b/x": ("a/x", "b/x"),
    "a/x y b/x y": ("a/x y", "b/x y"),
    "x x": ("x", "x"),
    "a/x b/y": ("a/x", "b/y"),
    '"a/\\303\\251" "b/\\303\\251"': ("a/é", "b/é"),
    'a/x "b/\\t\\"\\\\"': ("a/x", 'b/\t"\\'),
    **dict.fromkeys(("a/x y b/z", '"a/x', 'x"', "x")),
}
NAMES = {
    "a/f\t2024-01-01 00:00:00.000 +0000": "a/f",
    "a/my file\t": "a/my file",
    '"a/\\141\\b"': "a/a\b",
    '"open': '"open',
}


def test_the_names_of_files_are_read_as_git_and_diff_write_them() -> None:
    assert {text: git_names(text) for text in HEADERS} == HEADERS
    assert {text: name(text) for text in NAMES} == NAMES


OF_MODE = "diff --git a/f b/f\nindex 1..2 {}\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n"
UNREADABLE = {
    "nothing": ("", "names no file"),
    "words": ("please change f", "names no file"),
    "hunk-without-file": ("@@ -1 +1 @@\n-a\n+b\n", "line 1 "),
    "no-hunk": (HEAD, "no hunk"),
    "no-change": (f"{HEAD}@@ -1,2 +1,2 @@\n a\n b\n", "changes nothing"),
    "merge": ("diff --cc f\n--- a/f\n+++ b/f\n@@@ -1,1 -1,1 +1,1 @@@\n- a\n++b\n", "no hunk"),
    "nowhere": ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+a\n", "names no file"),
    "unnamed": ("--- \n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", "names no file"),
    "binary": ("diff --git a/f b/f\nindex 1..2 100644\nBinary files a/f and b/f differ\n", "not text"),
    "git-binary": ("diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\n", "not text"),
    "link": ("diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n", "link"),
    "changed-link": (OF_MODE.format("120000"), "link"),
    "submodule": (OF_MODE.format("160000"), "submodule"),
    "git-says-nothing": ("diff --git a/f b/f\nindex 1..2 100644\n", "says nothing"),
    "git-unclear": ("diff --git a/f g b/h\nnew file mode 100644\n", "clearly"),
    "bad-bytes": ('--- "a/\\377"\n+++ "b/\\377"\n@@ -1 +1 @@\n-a\n+b\n', "UTF-8"),
    "empty-envelope": (envelope(), "nothing between"),
    "cut-off": ("*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n", "cut off"),
    "no-name": (envelope("*** Delete File: "), "names no file"),
    "no-move-name": (update("*** Move to:  ", "-a"), "names no file"),
    "unknown-section": (envelope("*** Rename File: f"), "line 2 "),
    "bare-line": (update("@@", " a", "b"), "line 5 "),
    "bare-new-line": (envelope("*** Add File: f", "+a", "b"), "line 4 "),
    "nothing-to-update": (envelope("*** Update File: f"), "no hunk"),
    "envelope-no-change": (update("@@", " a"), "changes nothing"),
    "only-anchor": (update("@@ def f():"), "changes nothing"),
    "too-many-files": (envelope(*(f"*** Delete File: {n}" for n in range(101))), "101 files"),
    "too-many-hunks": (HEAD + "@@ -1 +1 @@\n-a\n+b\n" * 1_001, "1000 hunks"),
}


def test_a_patch_that_cannot_be_read_is_refused_with_the_reason() -> None:
    wrong: dict[str, str] = {}
    for case, (text, why) in UNREADABLE.items():
        with pytest.raises(ValueError, match=r".{20}") as refused:
            parse(text)
        if why not in str(refused.value):
            wrong[case] = str(refused.value)
    assert wrong == {}


TEXT = "".join(f"line {number}\n" for number in range(1, 21))
SIX = " line 5\n-line 6\n+six\n line 7\n\n"
SIXTH = TEXT.replace("line 6\n", "six\n")
TIMES, TWOS, ONE = "x\n1\ny\n", "x\n2\ny\n", " x\n-1\n+one\n y\n"
MOVED = f"{HEAD}@@ -1,3 +1,3 @@\n{ONE}@@ -4,3 +4,3 @@\n x\n-2\n+two\n y\n"
OLD_ENDS = "@@ -3,7 +3,7 @@\n OLD 3\n line 4\n line 5\n-line 6\n+six\n line 7\n line 8\n OLD 9\n"
OLD_FIRST = "@@ -5,3 +5,3 @@\n OLD 5\n-line 6\n+six\n line 7\n@@ -9,2 +9,2 @@\n line 9\n-line 10\n+line ten\n"

MISCOUNTED = "hunk 1: the numbers in its header do not fit its lines"

HUNK_HEADERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("@@ -5,3 +5,3 @@", "@@ -5,3 +5,3 @@ class heading"), ()),
    "@@ -9,3 +9,3 @@": ("hunk 1: found at line 5 instead of 9",),
    **dict.fromkeys(("@@ -5,9 +5,9 @@", "@@ -5,2 +5,2 @@", "@@ -5,3 +5,1 @@"), (MISCOUNTED,)),
    **dict.fromkeys(("@@", "@@ ... @@", "@@ line 3", "@@ line 3 @@"), ()),
}


def test_lines_before_it_choose_among_several_places() -> None:
    text = "class A:\n  def f():\n    pass\nclass B:\n  def f():\n    pass\n"
    body = ("-    pass", "+    return")
    made = applied(text, update("@@ class B:", "@@ def f():", *body))
    assert made.content == text[: text.rindex("pass")] + "return\n"
    assert 'no line "class C:"' in refusal(text, update("@@ class C:", *body))
    assert "several times" in refusal(text, update("@@ def f():", *body))


MARKER = "\\ No newline at end of file\n"

LAST_LINES = (
    ("a\nb", " a\n-b\n+B\n", "a\nB"),
    ("a\nb", " a\n b\n+c\n", "a\nb\nc"),
    ("a\r\nb", " a\n b\n+c\n", "a\r\nb\r\nc"),
    ("a\nb", f" a\n-b\n{MARKER}+B\n", "a\nB\n"),
    ("a\nb\n", f" a\n-b\n+B\n{MARKER}", "a\nB"),
    ("a\r\nb", f" a\n-b\n{MARKER}+B\n", "a\r\nB\r\n"),
    ("a\r\nb\r\n", f" a\n-b\n+B\n{MARKER}", "a\r\nB"),
    ("a\nb", " a\n-b\n", "a"),
    ("b", "-b\n+B\n", "B"),
)


def test_the_last_line_feed_is_as_the_patch_says_or_else_as_before() -> None:
    for before, body, after in LAST_LINES:
        assert applied(before, f"{HEAD}@@\n{body}").content == after
        lines = body.rstrip("\n").split("\n")
        assert applied(before, update("@@", *lines)).content == after


AT_END = update("@@", " x", "-1", "+2", "*** End of File")
BB = f"{HEAD}@@ -1,3 +1,4 @@\n a\n-b\n+B\n+BB\n c\n"
LEFT_OUT = "hunk 1: 2 lines of context did not match and were left out"
LATER = ("hunk 1: found at line 3 instead of 1", "hunk 2: found at line 6 instead of 4")
KEPT = "hunk 1: the file has other line endings and keeps them"
SPACED = f"{HEAD}@@ -1,3 +1,3 @@\n a\n-b\n+B\n c \n"
UNENDED = f"{HEAD}@@ -1 +1 @@\n{MARKER}-a\n{MARKER}+b\n+c\n{MARKER}Only in sub: x\n"

FITTING: tuple[tuple[str, ...], ...] = (
    # Its lines count, whatever the header says.
    *((TEXT, f"{HEAD}{header}\n{SIX}", SIXTH, *notes) for header, notes in HUNK_HEADERS.items()),
    # Line endings of the file stay, and those of the patch do not matter.
    ("a\r\nb\r\nc\r\n", BB, "a\r\nB\r\nBB\r\nc\r\n", KEPT),
    ("a\r\nb\r\nc", BB, "a\r\nB\r\nBB\r\nc", KEPT),
    ("a\nb\r\nc\n", BB, "a\nB\r\nBB\r\nc\n", KEPT),
    ("a\nb\nc\n", BB.replace("\n", "\r\n"), "a\nB\nBB\nc\n"),
    # Lines alone are put where the patch says.
    ("a\nb\nc\n", update("+n"), "a\nb\nc\nn\n"),
    ("a\nb\nc\n", update("@@ a", "+n"), "a\nn\nb\nc\n"),
    ("a\nb\nc\n", update("@@ a", "+n", "*** End of File"), "a\nb\nc\nn\n"),
    ("a\nb\nc\n", update("@@ -1,0 +2 @@", "+n"), "a\nn\nb\nc\n"),
    ("a\nb\nc\n", update("@@ -0,0 +1 @@", "+n"), "n\na\nb\nc\n"),
    ("", update("+a", "+b"), "a\nb\n"),
    # Its number and the end of the file choose among several places.
    (TIMES * 3, f"{HEAD}@@ -4,3 +4,3 @@\n{ONE}", f"{TIMES}x\none\ny\n{TIMES}"),
    ("x\n1\nx\n1\n", AT_END, "x\n1\nx\n2\n"),
    # Empty lines between hunks do not matter, and those of context may have lost their space.
    ("a\nb\nc\n", update("", "@@", "-a", "+A", "", "@@", "-c", "+C", ""), "A\nb\nC\n"),
    ("a\n\nb\nc\n", f"{HEAD}@@ -1,4 +1,4 @@\n a\n\n-b\n+B\n c\n\n", "a\n\nB\nc\n"),
    ("a\n\nb\n", update("@@", " a", "", "-b", "+B", "", ""), "a\n\nB\n"),
    # Lines that look like headers are lines.
    ("-- a/x\n", f"{HEAD}@@ -1 +1 @@\n--- a/x\n+++ b/x\n", "++ b/x\n"),
    # The marker of a missing line feed is known in other languages.
    ("a", f"{HEAD}@@ -1 +1 @@\n-a\n\\ Kein Zeilenumbruch am Dateiende.\n+b\n", "b\n"),
    ("x\n1\nend\n", AT_END, "x\n2\nend\n", "hunk 1: not at the end of the file"),
    # A miscounted hunk may end without a line feed.
    ("a", UNENDED, "b\nc", MISCOUNTED),
    ("a  \nb\t\nc\n", SPACED, "a  \nB\nc\n", "hunk 1: white space at line ends differs"),
    # Later hunks are sought where those before them were.
    (f"0\n0\n{TIMES}{TWOS}{TWOS}", MOVED, f"0\n0\nx\none\ny\nx\ntwo\ny\n{TWOS}", *LATER),
    # Context at the ends may be out of date.
    (TEXT, HEAD + OLD_ENDS, SIXTH, LEFT_OUT),
    (TEXT, HEAD + OLD_FIRST, SIXTH.replace("10\n", "ten\n"), LEFT_OUT),
)
"""Texts, patches, what they make of the text, and what is reported."""


def test_a_hunk_is_put_where_it_fits_and_what_differs_is_reported() -> None:
    wrong: list[tuple[str, Applied]] = []
    for before, text, after, *notes in FITTING:
        made = applied(before, text)
        if made != Applied(content=after, notes=tuple(notes), loose=notes not in ([], [KEPT])):
            wrong.append((text, made))
    assert wrong == []


NEAR = {
    "indentation": ("  x = 1\n", "-    x = 1\n+x = 2\n", "indentation"),
    "part-of-first": ("a\n  x = 1\n", "-x = 1\n+x = 2\n", 'line 2 of the file is "  x = 1"'),
    "part-of-last": ("x = 1\ny = 2 # two\n", " x = 1\n-y = 2\n+y\n", 'line 2 of the file is "y = 2 # two"'),
    "part-of-open": ("x = 12", "-x = 1\n+x\n", 'line 1 of the file is "x = 12"'),
    "quotes": ("say(“hi”)\n", '-say("hi")\n+say()\n', "typographic"),
    "nearest": ("def total(items):\n", "-def totals(items):\n+def f():\n", "nearest"),
    "numbers": ("alpha\nbeta\n", "-1\talpha\n-2\tbeta\n+x\n", "line numbers"),
    "made-before": ("a = compute(1)\n", "-b = 2\n+a = compute(1)\n", "What the hunk makes is there"),
    "empty": ("", "-a\n+b\n", "no text"),
    "nothing": ("a\n", "-qqqq\n+b\n", "Nothing in the file"),
}
SEVERAL = f"{HEAD}@@ -20,3 +20,3 @@\n{ONE}"
UNFIT = (
    *((text, f"{HEAD}@@ -1 +1 @@\n{body}", why) for text, body, why in NEAR.values()),
    (TEXT, HEAD + OLD_ENDS.replace("line 4", "OLD 4").replace("line 5", "OLD 5"), ""),
    (TEXT, HEAD + OLD_ENDS.replace("-line 6", "-OLD 6"), ""),
    # Context alone is not left out where nothing would be left.
    (TEXT, f"{HEAD}@@ -30,2 +30,3 @@\n x\n+new\n y\n", ""),
    ("a\nb\nc\n", f"{HEAD}@@ -9,0 +10 @@\n+n\n", "3 lines"),
    # Several places are all named.
    *((TIMES * 3, SEVERAL, why) for why in ("hunk 1 (line 3 of the patch)", "lines 1, 4 and 7")),
    (TIMES * 3, f"{HEAD}@@\n{ONE}", "several times"),
    (TIMES * 30, f"{HEAD}@@\n{ONE}", "further ones"),
    # So is the wrong order.
    (TEXT, f"{HEAD}@@\n-line 9\n+nine\n@@\n-line 3\n+three\n", "line 3, but the hunk before it"),
    (TEXT, f"{HEAD}@@\n-line 9\n+nine\n@@\n-line 3\n+three\n", "comes later, on line 9"),
    (TEXT, update("@@ line 9", "-line 3", "+three"), "`@@` line before it"),
)


def test_a_hunk_that_fits_nowhere_or_in_several_places_is_refused_with_the_nearest_lines() -> None:
    messages = [refusal(text, patch) for text, patch, _ in UNFIT]
    assert [(one, why) for one, (_, _, why) in zip(messages, UNFIT, strict=True) if why not in one] == []
    assert not any("old_string" in message for message in messages)


def test_each_section_works_on_what_those_before_it_have_left() -> None:
    made = planned(
        envelope(
            *("*** Update File: a", "*** Move to: b", "@@", "-1", "+2"),
            *("*** Add File: a", "+new"),
            *("*** Update File: b", "@@", "-2", "+3"),
            *("*** Delete File: c",),
            *("*** Add File: c", "+again"),
        ),
        a=b"1\n",
        c=b"old\n",
    )
    assert results(made) == {"a": b"new\n", "b": b"3\n", "c": b"again\n"}
    assert {change.path: change.like for change in made[0]} == {"a": None, "b": "a", "c": None}
    assert [outcome.text for outcome in made[1]] == [
        "moved a to b: 1 hunk",
        "created a",
        "updated b: 1 hunk",
        "deleted c",
        "created c",
    ]
    # What comes out as it was is no change.
    there, back = ("*** Update File: a", "*** Move to: b"), ("*** Update File: b", "*** Move to: a")
    assert planned(envelope(*there, *back), a=b"1\n")[0] == []


IMPOSSIBLE: tuple[tuple[str, type[ToolError], str], ...] = (
    (envelope("*** Add File: a", "+x"), Conflict, "exists already"),
    (envelope("*** Update File: z", "-x"), NotFound, "does not exist"),
    (envelope("*** Update File: z", "+x"), NotFound, "does not exist"),
    (envelope("*** Delete File: z"), NotFound, "does not exist"),
    (envelope("*** Delete File: a", "*** Update File: a", "-1"), NotFound, "does not exist"),
    (envelope("*** Update File: a", "*** Move to: b"), Conflict, "'b' exists already"),
    ("diff --git a/a b/b\ncopy from a\ncopy to b\n", Conflict, "'b' exists already"),
    ("--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n", Conflict, "it has other lines than those"),
    (envelope("*** Update File: bin", "-x"), InvalidInput, "not a text file"),
    (envelope("*** Update File: latin", "@@", "-café", "+中"), InvalidInput, "windows-1252"),
)


def test_what_cannot_be_done_to_a_file_is_refused() -> None:
    for text, kind, why in IMPOSSIBLE:
        with pytest.raises(kind) as refused:
            planned(text, a=b"1\n2\n", b=b"", bin=b"\0", latin=b"caf\xe9\n")
        assert why in str(refused.value)
        assert "No file was changed." in str(refused.value)


def test_all_that_fails_is_reported_at_once_but_not_without_end() -> None:
    sections = [line for number in range(8) for line in (f"*** Update File: {number}", "-x")]
    with pytest.raises(NotFound) as refused:
        planned(envelope(*sections))
    lines = str(refused.value).split("\n")
    assert [line[:5] for line in lines[1:6]] == [f"- '{number}'" for number in range(5)]
    assert lines[6].startswith("- 3 more sections")


NEW = "--- a/n\n+++ b/n\n@@ -0,0 +1,2 @@\n+a\n+b\n"
ACCENTS = update("@@", "-caf\u00e9", "+th\u00e9")
PLANNED: tuple[tuple[str, dict[str, bytes], dict[str, bytes]], ...] = (
    (envelope("*** Add File: n", "+x").replace("\n", "\r\n"), {}, {"n": b"x\n"}),
    # An empty line of a new file may have lost its sign.
    (
        envelope("*** Add File: n", "+a", "", "+", "+b", "", "*** Add File: m"),
        {},
        {"n": b"a\n\n\nb\n", "m": b""},
    ),
    # A diff may create a file without saying that it is new.
    (NEW, {}, {"n": b"a\nb\n"}),
    (NEW, {"n": b"z\n"}, {"n": b"a\nb\nz\n"}),
    # The encoding and byte order mark of a file stay.
    *(
        (ACCENTS, {"f": "café\nrest\n".encode(codec)}, {"f": "thé\nrest\n".encode(codec)})
        for codec in ("utf-8-sig", "utf-16", "cp1252")
    ),
)


def test_a_patch_makes_of_files_what_it_says() -> None:
    made = [(text, files, results(planned(text, **files))) for text, files, _ in PLANNED]
    assert made == list(PLANNED)


def test_files_without_prefixes_are_taken_as_they_are_named() -> None:
    hunk = "@@ -1 +1 @@\n-1\n+2\n"
    assert only(f"--- f.orig\n+++ f\n{hunk}").path == "f"
    assert only(f"--- /abs/f\n+++ /abs/f\n{hunk}").path == "/abs/f"
    assert only(f"--- a/f\n+++ a/f\n{hunk}").path == "a/f"
    assert only("--- /dev/null\n+++ x/f\n@@ -0,0 +1 @@\n+2\n").path == "x/f"
    assert only("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+2\n").path == "f"
    assert only("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n").path == "f"
    assert only("--- /a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n").path == "/a/f"


def test_text_around_a_patch_is_left_out() -> None:
    body = "*** Update File: f\n@@\n-1\n+2\n"
    assert only(f"Here it is:\n```\n*** Begin Patch\n{body}*** End Patch\n```\nDone.").path == "f"
    assert only(f"Here:\n```diff\n{HEAD}@@ -1 +1 @@\n-1\n+2\n```\nDone.").path == "f"
    assert len(parse(f"Subject: x\n\n{HEAD}@@ -1 +1 @@\n-1\n+2\n-- \n2.40\n").sections[0].hunks[0].lines) == 2


@given(st.text(alphabet="ab\n", max_size=60), st.text(alphabet="ab\n", max_size=60), st.integers(0, 400))
def test_a_diff_keeps_its_limit(before: str, after: str, limit: int) -> None:
    assert len(unified(before, after, "naïve.txt", limit=limit).encode()) <= limit


@given(LINES, LINES)
def test_no_line_that_could_stay_is_shown_as_changed_at_either_end(old: list[str], new: list[str]) -> None:
    diff = unified("".join(old), "".join(new), "file", limit=1 << 30)
    for removed, added in re.findall(r"(?m)((?:^-.*\n)+)((?:^\+.*\n)+)", diff.partition("@@")[2]):
        assert removed.split("\n")[0][1:] != added.split("\n")[0][1:]


def test_git_applies_a_diff(tmp_path: Path) -> None:
    before = "".join(f"line {n}\n" for n in range(100)) + "no end"
    after = before.replace("line 7\n", "").replace("line 50", "fifty\nand a half").replace("no end", "end\n")
    (tmp_path / "file.txt").write_text(before, encoding="utf-8")
    diff = unified(before, after, "file.txt")

    subprocess.run(["git", "apply", "-"], input=diff.encode(), cwd=tmp_path, check=True, timeout=30)

    assert (tmp_path / "file.txt").read_text(encoding="utf-8") == after


def test_a_diff_shows_three_lines_of_context_and_an_absolute_path_as_it_is() -> None:
    before = "".join(f"{n}\n" for n in range(1, 21))
    diff = unified(before, before.replace("10\n", "ten\n"), "dir/file")
    assert diff == ("--- a/dir/file\n+++ b/dir/file\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n")
    assert unified("", "x\n", "/srv/x").startswith("--- /srv/x\n+++ /srv/x\n@@ -0,0 +1 @@\n")
    assert unified("same\n", "same\n", "file") == ""


def far_apart(count: int) -> tuple[str, str]:
    """A text, and one in which every tenth line differs, is gone or has another before it."""
    old = [f"line {n}\n" for n in range(10 * count)]
    new = list(old)
    for n in range(0, 10 * count, 10):
        new[n] = ("", "other\n", f"more\n{old[n]}")[n // 10 % 3]
    return "".join(old), "".join(new)


def test_what_a_cut_diff_shows_stands_in_the_whole_one() -> None:
    before, after = far_apart(30)
    whole = unified(before, after, "file").splitlines(keepends=True)
    for limit in range(240, 700, 20):
        diff = unified(before, after, "file", limit=limit).splitlines(keepends=True)
        cut = next(at for at, row in enumerate(diff) if row.startswith("["))
        start, end = diff[:cut], diff[cut + 1 :]
        assert start == whole[: len(start)]
        assert end == whole[len(whole) - len(end) :]
        left = whole[len(start) : len(whole) - len(end)]
        count = sum(row[0] in "+-" for row in left)
        assert diff[cut] == f"[{count} more changed lines are left out here; read_file shows them]\n"


def test_a_long_path_leaves_room_for_the_changes() -> None:
    diff = unified("old\n", "new\n", "p" * 300, limit=500)

    assert diff == "@@ -1 +1 @@\n-old\n+new\n"


def test_a_long_line_is_shown_around_the_place_where_it_differs() -> None:
    diff = unified("x" * 9_000 + "OLD" + "y" * 9_000, "x" * 9_000 + "NEW" + "y" * 9_000, "file")

    assert "xOLDy" in diff
    assert "xNEWy" in diff
    assert len(diff) < 3_000
    assert diff.endswith("[lines over 1000 characters are shortened at […]]\n")


HOSTILE = (
    # REDOS07.
    ("x" * 1_000_000 + "y", "x" * 999_999 + "zy"),
    ("ab" * 500_000, "ba" * 500_000),
    ("\n" * 500_000, "\r\n" * 250_000),
    ("".join(f"{n * n % 997}\n" for n in range(20_000)), "".join(f"{n**3 % 997}\n" for n in range(20_000))),
    ("x\ny\n" * 10_000, "y\nx\n" * 8_000),
)


def test_hostile_texts_have_a_bounded_diff() -> None:
    for before, after in HOSTILE:
        diff = unified(before, after, "file")
        assert diff.startswith("--- a/file\n+++ b/file\n@@ -")
        assert len(diff.encode()) <= 20_000


def test_a_diff_is_right_when_the_search_for_equal_lines_was_given_up() -> None:
    before, after = ("".join(f"{n * by % 4_999}\n" for n in range(9_998)) for by in (1, 2_500))
    made = applied(before, unified(before, after, "file", limit=1 << 30))
    assert (made.content, made.notes, made.loose) == (after, (), False)
