"""What repo_overview answers."""

from pathlib import Path

import pytest

from tests.git.hostile_git import Lair
from tests.git.repositories import GitTools


@pytest.fixture
def lair(tmp_path: Path) -> Lair:
    made = Lair(tmp_path)
    for name in ("src/a.py", "src/b.py", "web/c.ts", "Makefile", "LICENSE"):
        made.write(name, "x\n")
    made.commit()
    return made


@pytest.mark.requirement("GR-69")
async def test_it_tells_what_there_is(at: GitTools) -> None:
    lair = at.lair
    lair.git("branch", "side", "HEAD~1")
    lair.git("branch", "-q", "--set-upstream-to=side", "main")
    lair.git("tag", "v1")
    lair.git("update-ref", "refs/remotes/origin/main", "HEAD")
    lair.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    lair.config("remote.origin.url https://me:hunter2@example.org/x.git", "remote.a.b.url ../b")
    head, first = (lair.git("rev-parse", name)[:12] for name in ("HEAD", "HEAD~1"))
    day = lair.git("log", "-1", "--format=%cI")[:10]
    text = await at.text("repo_overview", path="src")
    lines = text.splitlines()
    assert [*lines[:2], *sorted(lines[2:5]), *lines[5:]] == [
        "Repository .: 7 files, 2 commits, 1 tag",
        "Branches:",
        *sorted([f"  * main {head} {day} -> side", f"  origin/main {head} {day}", f"  side {first} {day}"]),
        "Remotes:",
        "  origin https://[redacted]@example.org/x.git",
        "  a.b ../b",
        "Last commits:",
        f"  {head} {day} n: more",
        f"  {first} {day} n: first",
        "Languages by files:",
        *("  Python 2", "  Text 2", "  Makefile 1", "  TypeScript 1", "  other 1"),
        "Top folders by files:",
        *("  . 3", "  src 2", "  deep 1", "  web 1"),
    ]
    assert "hunter2" not in text


async def test_very_many_are_counted_and_the_first_named_and_hidden_files_do_not_count(
    at: GitTools,
) -> None:
    text = await at.like(hides=["web/**"]).text("repo_overview")
    assert "6 files" in text
    assert "web" not in text
    assert "TypeScript" not in text
    for number in range(40):
        at.lair.write(f"folder-{number:02}/file", "")
    at.lair.git("add", ".")
    at.lair.branches(40)
    text = await at.text("repo_overview")
    assert "Branches (30 of 41):" in text
    assert "Top folders by files (20 of 44):" in text
