"""What git_log answers."""

from pathlib import Path

import pytest

from tests.git.hostile_git import Lair
from tests.git.repositories import GitTools, without_ids


@pytest.fixture
def lair(tmp_path: Path) -> Lair:
    """Three commits: first, second (of file.txt, by somebody else), third (of deep)."""
    made = Lair(tmp_path)
    made.git("add", ".")
    made.git("commit", "-qm", "second\n\nWhy it was done.", "--author=Ann <ann@example.org>")
    made.write("deep/inner.txt", "changed\n")
    made.git("commit", "-qam", "third")
    return made


async def subjects(at: GitTools, **arguments: str | int) -> list[str]:
    return [commit["subject"] for commit in (await at.data("git_log", **arguments))["commits"]]


async def test_commits_come_newest_first_with_their_messages(at: GitTools) -> None:
    assert without_ids(await at.text("git_log", count=2)) == (
        "<id> <time> n <n@example.org>\n    third\n<id> <time> Ann <ann@example.org>\n    second\n"
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
