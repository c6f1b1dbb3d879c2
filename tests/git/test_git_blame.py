"""What git_blame answers."""

from pathlib import Path

import pytest

from tests.git.hostile_git import Lair
from tests.git.repositories import GitTools, without_ids


@pytest.fixture
def lair(tmp_path: Path) -> Lair:
    """Of two lines in file.txt the second is Ann's."""
    made = Lair(tmp_path)
    date = {"GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z"}
    made.environ = {**made.environ, **date}
    made.git("commit", "-qam", "second", "--author=Ann Other <ann@example.org>")
    return made


async def test_each_line_has_its_author(at: GitTools) -> None:
    lines = without_ids(await at.text("git_blame", path="file.txt")).splitlines()
    assert lines[0].endswith(" 1) one")
    assert lines[1] == "<id> (Ann Other 2026-01-02 2) two"
    text = await at.text("git_blame", path="file.txt", start_line=2, end_line=2)
    assert without_ids(text) == lines[1]


async def test_a_line_that_is_not_committed_says_so(at: GitTools) -> None:
    at.lair.write("file.txt", "one\nTWO\n")
    assert "(not committed 2) TWO" in await at.text("git_blame", path="file.txt")
    assert "(Ann Other 2026-01-02 2) two" in await at.text("git_blame", path="file.txt", commit="HEAD")
    assert "2)" not in await at.text("git_blame", path="file.txt", commit="HEAD~1")


async def test_a_long_file_comes_in_pages(at: GitTools) -> None:
    at.lair.write("long", "".join(f"line {number}\n" for number in range(1, 1_502)))
    at.lair.commit()
    first = await at.ask("git_blame", path="long")
    assert first.truncated
    assert "1000) line 1000\n[lines 1-1000; go on with start_line=1001, end_line=" in first.text
    rest = await at.ask("git_blame", path="long", start_line=1_001, end_line=2_001)
    assert not rest.truncated
    assert rest.text.endswith("1501) line 1501")
    exact = await at.ask("git_blame", path="long", start_line=1, end_line=1_000)
    assert not exact.truncated
    # Lines end where git ends them.
    at.lair.write("odd", "a\u2028b\x0cc\x85d\r\ne\n")
    at.lair.commit()
    assert "2) e" in await at.text("git_blame", path="odd")


REFUSED = {
    "invalid_input": (
        *({"start_line": 1}, {"start_line": 2, "end_line": 1}, {"start_line": 0, "end_line": 1}),
        *({"commit": "nowhere"}, {"commit": "--contents=x"}),
    ),
    "not_found": (*({"start_line": 9, "end_line": 9}, {"path": "missing"}, {"path": "deep"}),),
    "denied": ({"path": "../home/.gitconfig"},),
}


async def test_a_wrong_argument_is_explained_and_a_hidden_file_not_shown(at: GitTools) -> None:
    await at.refuses("git_blame", REFUSED, path="file.txt")
    hiding = at.like(hides=["file.txt"])
    assert (await hiding.ask("git_blame", path="file.txt")).error == "denied"
    assert (await hiding.ask("git_blame", path="deep/inner.txt")).error is None
