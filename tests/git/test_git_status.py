"""What git_status answers."""

from pathlib import Path
from typing import Any

import pytest

from tests.git.hostile_git import Lair
from tests.git.repositories import GitTools


@pytest.fixture
def lair(tmp_path: Path) -> Lair:
    made = Lair(tmp_path)
    made.git("checkout", "-q", "file.txt")
    return made


def changes(data: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f"{one['staged']}{one['unstaged']}", one["path"]) for one in data["changes"]]


async def test_a_clean_tree_is_said_to_be_clean_and_without_a_branch_the_commit_is_named(
    at: GitTools,
) -> None:
    assert await at.text("git_status") == "## main\n[nothing to commit]"
    data = await at.data("git_status")
    assert (data["clean"], data["total"], data["changes"], data["branch"]) == (True, 0, [], "main")
    assert data["head"] == at.lair.git("rev-parse", "HEAD").strip()
    at.lair.git("checkout", "-q", "--detach")
    assert (await at.text("git_status")).startswith(f"## no branch, at {data['head'][:12]}\n")
    assert (await at.data("git_status"))["branch"] == ""


async def test_each_kind_of_change_has_its_letters(at: GitTools) -> None:
    lair = at.lair
    for name in ("gone", "staged-gone", "both"):
        lair.write(name, f"{name} has enough text to be recognised\n")
    lair.commit()
    lair.git("mv", "deep/inner.txt", "deep/moved.txt")
    lair.git("rm", "-q", "staged-gone")
    lair.write("added", "x\n")
    lair.write("both", "staged\n")
    lair.git("add", "added", "both")
    lair.write("both", "staged and changed\n")
    lair.write("folder/new", "x\n")
    lair.write("ein Wort größer", "x\n")
    (lair.repository / "gone").unlink()
    expected = lair.git("-c", "core.quotePath=false", "status", "--short", "--branch", "-z").split("\0")
    text = await at.text("git_status")
    assert text.splitlines()[:-1] == [
        *(line for line in expected if line.startswith("#")),
        "A  added",
        "MM both",
        "R  deep/inner.txt -> deep/moved.txt",
        " D gone",
        "D  staged-gone",
        "?? ein Wort größer",
        "?? folder/",
    ]
    assert text.endswith("\n[7 changes]")
    data = await at.data("git_status")
    assert changes(data)[0] == ("A.", "added")
    assert data["changes"][2]["origin"] == "deep/inner.txt"
    assert not data["clean"]


async def test_in_words_it_says_what_would_become_of_each(at: GitTools) -> None:
    lair = at.lair
    lair.branch("side", {"file.txt": "side\n"})
    lair.write("file.txt", "changed\n")
    lair.git("mv", "deep/inner.txt", "deep/moved.txt")
    lair.write("new", "")
    assert await at.text("git_status", short=False) == (
        "On main\nStaged:\n  renamed: deep/inner.txt -> deep/moved.txt\nNot staged:\n  modified: file.txt\n"
        "Untracked:\n  new\n[3 changes]"
    )
    lair.commit()
    lair.naive("merge", "side")
    assert "UU file.txt" in await at.text("git_status")
    assert "Unmerged:\n  file.txt\n" in await at.text("git_status", short=False)


async def test_it_says_how_far_the_branch_is_from_its_upstream(at: GitTools) -> None:
    lair = at.lair
    lair.git("branch", "base")
    lair.git("branch", "-q", "--set-upstream-to=base")
    assert (await at.text("git_status")).startswith("## main...base\n")
    lair.write("file.txt", "ours\n")
    lair.commit()
    lair.branch("theirs", {"other.txt": "theirs\n"}, "base")
    lair.git("branch", "-f", "base", "theirs")
    assert (await at.text("git_status")).startswith("## main...base [ahead 1, behind 1]\n")
    data = await at.data("git_status")
    assert (data["upstream"], data["ahead"], data["behind"]) == ("base", 1, 1)


async def test_before_the_first_commit_each_tool_says_so(at: GitTools) -> None:
    at.lair.git("init", "-q", "empty", cwd=at.lair.folder)
    at = at.like(roots=[at.lair.folder / "empty"])
    expected = {
        "git_status": "## main (no commits yet)\n[nothing to commit]",
        "git_log": "[0 commits]",
        "git_branch": "[0 branches]",
        "repo_overview": "Repository .: 0 files, 0 commits, 0 tags",
    }
    assert {tool: await at.text(tool) for tool in expected} == expected
    assert (await at.data("git_status"))["head"] == ""
    await at.refuses("git_log", {"invalid_input": ({"commit": "HEAD"},)})
    result = await at.ask("git_branch", name="x", create=True)
    assert (result.error, "git_commit" in result.text) == ("invalid_input", True)


async def test_a_path_names_the_part_or_the_repository_also_where_it_is_gone(at: GitTools) -> None:
    lair = at.lair
    lair.write("file.txt", "changed\n")
    lair.write("deep/inner.txt", "changed\n")
    lair.found(lair.repository / "nested")
    lair.write("nested/file.txt", "changed\n")
    assert changes(await at.data("git_status", path="deep")) == [(".M", "deep/inner.txt")]
    assert changes(await at.data("git_status", path="deep/inner.txt")) == [(".M", "deep/inner.txt")]
    assert changes(await at.data("git_status", path="nested/deep")) == []
    assert changes(await at.data("git_status", path="nested")) == [(".M", "nested/file.txt")]
    (lair.repository / "deep/inner.txt").unlink()
    (lair.repository / "deep").rmdir()
    assert changes(await at.data("git_status", path="deep/inner.txt")) == [(".D", "deep/inner.txt")]


async def test_very_many_changes_are_counted_and_the_first_listed(at: GitTools) -> None:
    for number in range(1_005):
        (at.lair.repository / f"{number:04}").write_text("", encoding="utf-8")
    result = await at.ask("git_status")
    assert result.truncated
    assert result.text.endswith("[the first 1,000 of 1,005 changes; name a folder as `path` to see others]")
    assert result.data is not None
    assert result.data["total"] == 1_005
    assert len((await at.data("git_status"))["changes"]) == 1_000


async def test_hidden_changes_are_counted_and_not_named(at: GitTools) -> None:
    lair = at.lair
    lair.write("secret/key", "x\n")
    lair.write("deep/inner.txt", "changed\n")
    lair.commit()
    lair.write("secret/key", "y\n")
    lair.git("mv", "deep/inner.txt", "moved.txt")
    seen = await at.text("git_status")
    assert "secret/key" in seen
    assert "deep/inner.txt -> moved.txt" in seen
    at = at.like(hides=["secret/**", "inner.txt"])
    result = await at.ask("git_status")
    assert result.text == (
        "## main\nR  moved.txt\n[1 change left out, hidden by a rule of the operator]\n[1 change]"
    )
    assert result.data is not None
    assert result.data["clean"] is False
    assert "secret" not in str(result.data)
    assert "inner" not in str(result.data)
    assert (await at.ask("git_status", path="secret/key")).error == "denied"
    lair.commit()
    lair.write("secret/key", "z\n")
    only_hidden = await at.data("git_status")
    assert (only_hidden["clean"], only_hidden["total"]) == (False, 0)


async def test_a_name_that_is_no_text_stays_on_its_line_and_an_index_that_is_broken_is_reported(
    at: GitTools,
) -> None:
    (at.lair.repository / "a\nb").write_text("", encoding="utf-8")
    with open(bytes(at.lair.repository) + b"/\xff", "w", encoding="utf-8"):
        pass
    text = await at.text("git_status")
    assert "?? a\\x0ab\n" in text
    assert "?? \\xff\n" in text
    (at.lair.repository / ".git/index").write_text("broken", encoding="utf-8")
    assert "broken" not in await at.refused("unavailable", "git_status")
