"""Unified diffs: right, within their limit, and made in time for any two texts."""

import re
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.edit.unified_diff import unified
from mcp_toolserver.text.patch.apply import apply_hunks
from mcp_toolserver.text.patch.formats import parse

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "d\r\n", "x y\x0c\n"]), max_size=40)


def patched(before: str, diff: str) -> str:
    """Apply a unified diff strictly: every line of context and every removed line must be where it says."""
    made = apply_hunks(before, parse(diff).sections[0].hunks)
    assert (made.notes, made.loose) == ((), False)
    return made.content


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
    assert patched(before, unified(before, after, "file", limit=1 << 30)) == after
