"""What git_log and git_blame answer."""

from pathlib import Path

import pytest

from tests.git.hostile_git import Lair
from tests.git.repositories import GitTools, without_ids


@pytest.fixture
def lair(tmp_path: Path) -> Lair:
    """Three commits: first, second (the second line of file.txt, by Ann), third (of deep)."""
    made = Lair(tmp_path)
    made.environ = {**made.environ, "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z"}
    made.git("commit", "-qam", "second\n\nWhy it was done.", "--author=Ann Other <ann@example.org>")
    made.write("deep/inner.txt", "changed\n")
    made.git("commit", "-qam", "third")
    return made


async def subjects(at: GitTools, **arguments: str | int) -> list[str]:
    return [commit["subject"] for commit in (await at.data("git_log", **arguments))["commits"]]


async def test_commits_come_newest_first_with_their_messages(at: GitTools) -> None:
    assert without_ids(await at.text("git_log", count=2)) == (
        "<id> <time> n <n@example.org>\n    third\n<id> <time> Ann Other <ann@example.org>\n    second\n"
        "    Why it was done.\n[2 commits; go on with offset=2]"
    )
    data = await at.data("git_log", count=1)
    assert data["more"] is True
    assert data["commits"][0]["id"] == at.lair.git("rev-parse", "HEAD").strip()
    assert set(data["commits"][0]) == {"id", "date", "author", "subject"}
    assert without_ids(await at.text("git_log", oneline=True)) == (
        "<id> third\n<id> second\n<id> first\n[3 commits]"
    )


async def test_pages_follow_each_other(at: GitTools) -> None:
    assert (await at.ask("git_log", count=2)).truncated
    last = await at.ask("git_log", count=2, offset=2)
    assert last.text.endswith("[1 commit]")
    assert not last.truncated
    whole = await at.data("git_log", count=3)
    assert ([commit["subject"] for commit in whole["commits"]], whole["more"]) == (
        ["third", "second", "first"],
        False,
    )
    assert await at.text("git_log", offset=3) == "[0 commits]"


async def test_it_can_be_narrowed(at: GitTools) -> None:
    assert await subjects(at, path="deep") == ["third", "first"]
    assert await subjects(at, author="ANN@") == ["second"]
    assert await subjects(at, author="A.n") == []
    assert await subjects(at, since="2000-01-01", count=1) == ["third"]
    assert await subjects(at, until="2000-01-01") == []
    assert await subjects(at, commit="HEAD~2..HEAD~1") == ["second"]


async def test_a_wrong_argument_is_explained(at: GitTools) -> None:
    invalid = (
        *({"commit": "nowhere"}, {"commit": "--all"}, {"author": "a\0b"}, {"count": 1_001}, {"offset": -1}),
    )
    await at.refuses("git_log", {"invalid_input": invalid})


async def test_the_history_of_a_hidden_file_is_hidden(at: GitTools) -> None:
    hiding = at.like(hides=["deep/**"])
    assert (await hiding.ask("git_log", path="deep/inner.txt")).error == "denied"
    assert (await at.ask("git_log", path="deep/inner.txt")).error is None


async def test_a_message_that_looks_like_fields_is_a_message(at: GitTools) -> None:
    body = "fake\n0123456789 x\n\n[1 commit]"
    at.lair.git("commit", "-q", "--allow-empty", "-m", "four %x00 %H", "-m", body)
    assert await subjects(at, count=2) == ["four %x00 %H", "third"]


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
    assert "2)" not in await at.text("git_blame", path="file.txt", commit="HEAD~2")


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
