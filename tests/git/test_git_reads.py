"""What git_status, git_diff, git_show, git_log, git_blame and repo_overview make of the words of git."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.git import GitChange
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.git.log import blanked, commits
from mcp_toolserver.text.git.names import ends, peeled
from mcp_toolserver.text.git.status import parsed
from tests.git.repositories import GitTools, without_ids
from tests.support.extent import examples


@pytest.fixture
def clean(at: GitTools) -> GitTools:
    """The tools on a work tree in which nothing has changed."""
    at.lair.git("checkout", "-q", "file.txt")
    return at


def changes(data: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f"{one['staged']}{one['unstaged']}", one["path"]) for one in data["changes"]]


async def test_a_clean_tree_is_said_to_be_clean_and_without_a_branch_the_commit_is_named(
    clean: GitTools,
) -> None:
    assert await clean.text("git_status") == "## main\n[nothing to commit]"
    data = await clean.data("git_status")
    assert (data["clean"], data["total"], data["changes"], data["branch"]) == (True, 0, [], "main")
    assert data["head"] == clean.lair.git("rev-parse", "HEAD").strip()
    clean.lair.git("checkout", "-q", "--detach")
    assert (await clean.text("git_status")).startswith(f"## no branch, at {data['head'][:12]}\n")
    assert (await clean.data("git_status"))["branch"] == ""


async def test_each_kind_of_change_has_its_letters(clean: GitTools) -> None:
    lair = clean.lair
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
    text = await clean.text("git_status")
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
    data = await clean.data("git_status")
    assert changes(data)[0] == ("A.", "added")
    assert data["changes"][2]["origin"] == "deep/inner.txt"
    assert not data["clean"]


async def test_it_says_how_far_the_branch_is_from_its_upstream(clean: GitTools) -> None:
    lair = clean.lair
    lair.git("branch", "base")
    lair.git("branch", "-q", "--set-upstream-to=base")
    assert (await clean.text("git_status")).startswith("## main...base\n")
    lair.write("file.txt", "ours\n")
    lair.commit()
    lair.branch("theirs", {"other.txt": "theirs\n"}, "base")
    lair.git("branch", "-f", "base", "theirs")
    assert (await clean.text("git_status")).startswith("## main...base [ahead 1, behind 1]\n")
    data = await clean.data("git_status")
    assert (data["upstream"], data["ahead"], data["behind"]) == ("base", 1, 1)


async def test_before_the_first_commit_each_tool_says_so(clean: GitTools) -> None:
    clean.lair.git("init", "-q", "empty", cwd=clean.lair.folder)
    clean = clean.like(roots=[clean.lair.folder / "empty"])
    expected = {
        "git_status": "## main (no commits yet)\n[nothing to commit]",
        "git_log": "[0 commits]",
        "git_branch": "[0 branches]",
        "repo_overview": "Repository .: 0 files, 0 commits, 0 tags",
    }
    assert {tool: await clean.text(tool) for tool in expected} == expected
    assert (await clean.data("git_status"))["head"] == ""
    await clean.refuses("git_log", {"invalid_input": ({"commit": "HEAD"},)})
    result = await clean.ask("git_branch", name="x", create=True)
    assert (result.error, "git_commit" in result.text) == ("invalid_input", True)


async def test_a_path_names_the_part_or_the_repository_also_where_it_is_gone(clean: GitTools) -> None:
    lair = clean.lair
    lair.write("file.txt", "changed\n")
    lair.write("deep/inner.txt", "changed\n")
    lair.found(lair.repository / "nested")
    lair.write("nested/file.txt", "changed\n")
    assert changes(await clean.data("git_status", path="deep")) == [(".M", "deep/inner.txt")]
    assert changes(await clean.data("git_status", path="deep/inner.txt")) == [(".M", "deep/inner.txt")]
    assert changes(await clean.data("git_status", path="nested/deep")) == []
    assert changes(await clean.data("git_status", path="nested")) == [(".M", "nested/file.txt")]
    (lair.repository / "deep/inner.txt").unlink()
    (lair.repository / "deep").rmdir()
    assert changes(await clean.data("git_status", path="deep/inner.txt")) == [(".D", "deep/inner.txt")]


async def test_hidden_changes_are_counted_and_not_named(clean: GitTools) -> None:
    lair = clean.lair
    lair.write("secret/key", "x\n")
    lair.write("deep/inner.txt", "changed\n")
    lair.commit()
    lair.write("secret/key", "y\n")
    lair.git("mv", "deep/inner.txt", "moved.txt")
    seen = await clean.text("git_status")
    assert "secret/key" in seen
    assert "deep/inner.txt -> moved.txt" in seen
    clean = clean.like(hides=["secret/**", "inner.txt"])
    result = await clean.ask("git_status")
    assert result.text == (
        "## main\nR  moved.txt\n[1 change left out, hidden by a rule of the operator]\n[1 change]"
    )
    assert result.data is not None
    assert result.data["clean"] is False
    assert "secret" not in str(result.data)
    assert "inner" not in str(result.data)
    assert (await clean.ask("git_status", path="secret/key")).error == "denied"
    lair.commit()
    lair.write("secret/key", "z\n")
    only_hidden = await clean.data("git_status")
    assert (only_hidden["clean"], only_hidden["total"]) == (False, 0)


async def test_a_name_that_is_no_text_stays_on_its_line_and_an_index_that_is_broken_is_reported(
    clean: GitTools,
) -> None:
    (clean.lair.repository / "a\nb").write_text("", encoding="utf-8")
    with open(bytes(clean.lair.repository) + b"/\xff", "w", encoding="utf-8"):
        pass
    text = await clean.text("git_status")
    assert "?? a\\x0ab\n" in text
    assert "?? \\xff\n" in text
    (clean.lair.repository / ".git/index").write_text("broken", encoding="utf-8")
    assert "broken" not in await clean.refused("unavailable", "git_status")


def changed_lines(text: str) -> list[str]:
    """The lines that were added or removed."""
    return [line for line in text.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]


async def test_what_is_staged_is_apart_from_what_is_not(at: GitTools) -> None:
    text = await at.text("git_diff")
    assert text == at.lair.git("diff").removesuffix("\n")
    assert changed_lines(text) == ["+two"]
    assert await at.text("git_diff", staged=True) == "[no differences]"
    at.lair.git("add", ".")
    result = await at.ask("git_diff", stat=True)
    assert (result.error, result.text, result.truncated) == (None, "[no differences]", False)
    at.lair.write("file.txt", "one\ntwo\nthree\n")
    assert changed_lines(await at.text("git_diff")) == ["+three"]
    assert changed_lines(await at.text("git_diff", staged=True)) == ["+two"]
    assert changed_lines(await at.text("git_diff", commit="HEAD")) == ["+two", "+three"]


async def test_commits_are_compared_with_the_files_and_with_each_other(at: GitTools) -> None:
    lair = at.lair
    lair.commit()
    lair.git("checkout", "-qb", "side", "HEAD~1")
    lair.write("side.txt", "side\n")
    lair.commit()
    assert changed_lines(await at.text("git_diff", commit="main..side")) == ["-two", "+side"]
    assert changed_lines(await at.text("git_diff", commit="main...side")) == ["+side"]
    assert changed_lines(await at.text("git_diff", commit="main", commit2="side")) == ["+side"]
    assert changed_lines(await at.text("git_diff", commit="main..")) == ["-two", "+side"]
    assert changed_lines(await at.text("git_diff", commit="..main")) == ["+two", "-side"]
    assert changed_lines(await at.text("git_diff", commit="main")) == ["-two", "+side"]
    assert changed_lines(await at.text("git_diff", commit="main", staged=True)) == ["-two", "+side"]


async def test_a_path_narrows_it_and_names_below_the_root_are_explained(at: GitTools) -> None:
    at.lair.write("deep/inner.txt", "changed\n")
    assert changed_lines(await at.text("git_diff", path="deep")) == ["-inner", "+changed"]
    assert await at.text("git_diff", path="nowhere") == "[no differences]"
    text = await at.like(roots=[at.lair.folder]).text("git_diff", path="repository/file.txt")
    assert changed_lines(text) == ["+two"]
    assert text.endswith("\n[names are relative to repository]")


async def test_a_long_patch_is_cut_and_saved_whole_and_of_a_longer_one_lines_are_counted(
    at: GitTools,
) -> None:
    at.lair.write("file.txt", "many words\n" * 20_000)
    result = await at.ask("git_diff")
    assert result.truncated
    assert result.saved_output is not None
    assert Path(result.saved_output.path).read_text(encoding="utf-8").count("+many words") == 20_000
    at.lair.write("file.txt", "many words\n" * 500_000)
    result = await at.ask("git_diff")
    assert result.truncated
    assert "file.txt | 500001 " in result.text
    assert "too long to show whole" in result.text
    assert not (await at.ask("git_diff", stat=True)).truncated


async def test_a_wrong_argument_is_explained(at: GitTools) -> None:
    invalid = (
        *({"commit": "HEAD..nowhere"}, {"commit2": "HEAD"}, {"commit": "HEAD..HEAD", "commit2": "HEAD"}),
        *({"commit": "HEAD..HEAD", "staged": True}, {"commit": "HEAD:file.txt"}),
        *({"commit": "HEAD", "commit2": "--output=x"}, {"path": "a\0b"}),
    )
    await at.refuses("git_diff", {"invalid_input": invalid, "denied": ({"path": "deep/../../home"},)})
    assert not list(at.lair.repository.glob("x*"))


async def test_files_and_folders_by_their_id_are_no_commits(at: GitTools) -> None:
    """An id has no path that a rule could hide."""
    names = ("HEAD:deep/inner.txt", "HEAD:file.txt", "HEAD^{tree}")
    blob, other, tree = (at.lair.git("rev-parse", name).strip() for name in names)
    assert "-inner" in at.lair.git("diff", blob, other)
    await at.refuses("git_diff", {"invalid_input": ({"commit": f"{blob}..{other}"}, {"commit": blob})})
    for tool in ("git_show", "git_log"):
        ids = (blob, tree, f"{blob}^{{blob}}")
        await at.refuses(tool, {"invalid_input": ({"commit": one} for one in ids)})


async def test_hidden_files_are_left_out_of_a_patch_and_counted(at: GitTools) -> None:
    lair = at.lair
    lair.write("secret/key", "hunter2\n")
    lair.git("add", ".")
    assert "secret" in await at.text("git_diff", staged=True)
    for arguments in ({"staged": True}, {"commit": "HEAD"}, {"staged": True, "stat": True}):
        text = await at.like(hides=["secret/**"]).text("git_diff", **arguments)
        assert "file.txt" in text
        assert "[1 file left out, hidden by a rule of the operator]" in text
        assert "secret" not in text
        assert "hunter2" not in text
    # It is mentioned only where it changed, and lends its name to no other.
    assert "left out" not in await at.like(hides=["secret/**"]).text("git_diff")
    lair.git("rm", "-qf", "--cached", "secret/key")
    lair.write("secret/key", "a line\n" * 20)
    lair.commit()
    lair.git("mv", "secret/key", "shown.txt")
    assert "rename from secret/key" in await at.text("git_diff", staged=True)
    text = await at.like(hides=["secret/**"]).text("git_diff", staged=True)
    assert "+a line" in text
    assert "secret" not in text


async def test_what_was_a_file_and_is_a_folder_shows_nothing_hidden_in_it(at: GitTools) -> None:
    lair = at.lair
    lair.write("place", "a file\n")
    lair.commit()
    lair.git("rm", "-q", "place")
    lair.write("place/key", "hunter2\n")
    lair.git("add", ".")
    lair.git("commit", "-qm", "folder")
    assert "hunter2" in lair.git("diff", "HEAD~1", "HEAD", "--", "place")
    text = await at.like(hides=["place/**"]).text("git_diff", commit="HEAD~1..HEAD")
    assert "hunter2" not in text
    assert "key" not in text


async def test_too_many_files_with_a_hidden_one_need_a_path(at: GitTools) -> None:
    lair = at.lair
    lair.write("secret", "x\n")
    for number in range(600):
        lair.write(f"many/{'long' * 30}{number}", "x\n")
    lair.git("add", ".")
    at = at.like(hides=["secret"])
    assert (await at.ask("git_diff", staged=True)).error == "invalid_input"
    assert "600 files changed" in await at.text("git_diff", staged=True, stat=True, path="many")


@pytest.fixture
def changed(at: GitTools) -> GitTools:
    """The tools, after a second commit, `more`, which changes file.txt and deep/inner.txt."""
    at.lair.write("deep/inner.txt", "changed\n")
    at.lair.commit()
    return at


async def test_a_commit_has_a_message_and_a_patch(changed: GitTools) -> None:
    text = await changed.text("git_show")
    head = "commit <id>\nparents <id>\nauthor n <n@example.org>\ndate <time>\n\nmore\n"
    assert without_ids(text).startswith(head)
    assert "+two" in text
    assert "+changed" in text
    first = await changed.text("git_show", commit="HEAD~1")
    assert "first" in first
    assert "+inner" in first


async def test_there_is_less_on_request(changed: GitTools) -> None:
    metadata = await changed.text("git_show", format="metadata")
    assert metadata.endswith("\n\nmore")
    assert "diff" not in metadata
    stat = await changed.text("git_show", stat=True)
    assert "2 files changed" in stat
    assert "+two" not in stat
    assert stat == await changed.text("git_show", format="stat")
    folder = await changed.text("git_show", path="deep")
    assert "+changed" in folder
    assert "+two" not in folder


async def test_a_file_has_the_content_it_had_and_what_is_no_text_is_named(changed: GitTools) -> None:
    lair = changed.lair
    assert await changed.text("git_show", path="file.txt", commit="HEAD~1") == "one"
    (lair.repository / "file.txt").unlink()
    assert await changed.text("git_show", path="file.txt") == "one\ntwo"
    lair.write("file.txt", "")
    (lair.repository / "binary").write_bytes(b"a\0b")
    (lair.repository / "link").symlink_to("../../etc/passwd")
    lair.git("update-index", "--add", "--cacheinfo", f"160000,{lair.git('rev-parse', 'HEAD').strip()},module")
    lair.git("add", "binary", "link", "file.txt")
    lair.git("commit", "-qm", "odd")
    (lair.repository / "link").unlink()
    assert await changed.text("git_show", path="file.txt") == "[empty]"
    assert await changed.text("git_show", path="binary") == "[a binary file]"
    assert await changed.text("git_show", path="link") == "[a link to ../../etc/passwd]"
    assert without_ids(await changed.text("git_show", path="module")) == "[a submodule, at its commit <id>]"


async def test_a_folder_that_is_gone_is_listed_as_it_was(changed: GitTools) -> None:
    lair = changed.lair
    lair.write("old/key", "x\n")
    lair.write("old/other", "x\n")
    lair.commit()
    lair.git("rm", "-qr", "old")
    assert await changed.text("git_show", path="old") == "old/key\nold/other"
    hiding = changed.like(hides=["old/key"])
    assert await hiding.text("git_show", path="old") == (
        "old/other\n[1 file left out, hidden by a rule of the operator]"
    )


REFUSED_BY_SHOW = {
    "invalid_input": (
        # GITOPT03 and GITOPT12.
        *({"commit": "--output=x"}, {"commit": "HEAD:../home/.gitconfig"}, {"commit": "HEAD~1..HEAD"}),
        *({"commit": "nowhere", "path": "file.txt"}, {"format": "metadata", "stat": True}),
        *({"format": "metadata", "path": "file.txt"}, {"stat": True, "path": "file.txt"}),
    ),
    "not_found": ({"path": "missing"},),
    "denied": ({"path": "../home/.gitconfig"},),
}


async def test_a_wrong_argument_of_git_show_is_explained(changed: GitTools) -> None:
    await changed.refuses("git_show", REFUSED_BY_SHOW)
    hiding = changed.like(hides=["secret"])
    assert (await hiding.ask("git_show", commit="nowhere")).error == "invalid_input"


async def test_hidden_files_are_left_out_of_a_commit_and_counted(changed: GitTools) -> None:
    changed.lair.write("secret", "hunter2\n")
    changed.lair.write("file.txt", "shown\n")
    changed.lair.commit()
    hiding = changed.like(hides=["secret"])
    assert "secret" in await changed.text("git_show")
    for arguments in ({}, {"stat": True}, {"path": "."}):
        text = await hiding.text("git_show", **arguments)
        assert "file.txt" in text
        assert "[1 file left out, hidden by a rule of the operator]" in text
        assert "secret" not in text
        assert "hunter2" not in text
    assert (await hiding.ask("git_show", path="secret")).error == "denied"


async def test_a_merge_names_no_hidden_file_either(changed: GitTools) -> None:
    """Its patch shows less than its count, which is taken against the first parent."""
    lair = changed.lair
    lair.branch("side", {"secret": "hunter2\n"})
    lair.write("file.txt", "main\n")
    lair.commit()
    lair.git("merge", "-q", "-m", "merged", "side")
    assert "secret" in await changed.text("git_show", stat=True)
    hiding = changed.like(hides=["secret"])
    for arguments in ({}, {"stat": True}):
        text = await hiding.text("git_show", **arguments)
        assert "merged" in text
        assert "secret" not in text


@pytest.fixture
def aged(at: GitTools) -> GitTools:
    """The tools on three commits: first, second (the second line of file.txt, by Ann), third (of deep)."""
    lair = at.lair
    lair.environ = {**lair.environ, "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z"}
    lair.git("commit", "-qam", "second\n\nWhy it was done.", "--author=Ann Other <ann@example.org>")
    lair.write("deep/inner.txt", "changed\n")
    lair.git("commit", "-qam", "third")
    return at


async def subjects(at: GitTools, **arguments: str | int) -> list[str]:
    return [commit["subject"] for commit in (await at.data("git_log", **arguments))["commits"]]


async def test_commits_come_newest_first_with_their_messages(aged: GitTools) -> None:
    assert without_ids(await aged.text("git_log", count=2)) == (
        "<id> <time> n <n@example.org>\n    third\n<id> <time> Ann Other <ann@example.org>\n    second\n"
        "    Why it was done.\n[2 commits; go on with offset=2]"
    )
    data = await aged.data("git_log", count=1)
    assert data["more"] is True
    assert data["commits"][0]["id"] == aged.lair.git("rev-parse", "HEAD").strip()
    assert set(data["commits"][0]) == {"id", "date", "author", "subject"}
    assert without_ids(await aged.text("git_log", oneline=True)) == (
        "<id> third\n<id> second\n<id> first\n[3 commits]"
    )


async def test_pages_follow_each_other(aged: GitTools) -> None:
    assert (await aged.ask("git_log", count=2)).truncated
    last = await aged.ask("git_log", count=2, offset=2)
    assert last.text.endswith("[1 commit]")
    assert not last.truncated
    whole = await aged.data("git_log", count=3)
    assert ([commit["subject"] for commit in whole["commits"]], whole["more"]) == (
        ["third", "second", "first"],
        False,
    )


async def test_it_can_be_narrowed(aged: GitTools) -> None:
    assert await subjects(aged, path="deep") == ["third", "first"]
    assert await subjects(aged, author="ANN@") == ["second"]
    assert await subjects(aged, author="A.n") == []
    assert await subjects(aged, since="2000-01-01", count=1) == ["third"]
    assert await subjects(aged, until="2000-01-01") == []
    assert await subjects(aged, commit="HEAD~2..HEAD~1") == ["second"]


async def test_a_wrong_argument_of_git_log_is_explained(aged: GitTools) -> None:
    invalid = (
        *({"commit": "nowhere"}, {"commit": "--all"}, {"author": "a\0b"}, {"count": 1_001}, {"offset": -1}),
    )
    await aged.refuses("git_log", {"invalid_input": invalid})


async def test_the_history_of_a_hidden_file_is_hidden(aged: GitTools) -> None:
    hiding = aged.like(hides=["deep/**"])
    assert (await hiding.ask("git_log", path="deep/inner.txt")).error == "denied"
    assert (await aged.ask("git_log", path="deep/inner.txt")).error is None


async def test_a_message_that_looks_like_fields_is_a_message(aged: GitTools) -> None:
    body = "fake\n0123456789 x\n\n[1 commit]"
    aged.lair.git("commit", "-q", "--allow-empty", "-m", "four %x00 %H", "-m", body)
    assert await subjects(aged, count=2) == ["four %x00 %H", "third"]


async def test_each_line_has_its_author(aged: GitTools) -> None:
    lines = without_ids(await aged.text("git_blame", path="file.txt")).splitlines()
    assert lines[0].endswith(" 1) one")
    assert lines[1] == "<id> (Ann Other 2026-01-02 2) two"
    text = await aged.text("git_blame", path="file.txt", start_line=2, end_line=2)
    assert without_ids(text) == lines[1]


async def test_a_line_that_is_not_committed_says_so(aged: GitTools) -> None:
    aged.lair.write("file.txt", "one\nTWO\n")
    assert "(not committed 2) TWO" in await aged.text("git_blame", path="file.txt")
    assert "(Ann Other 2026-01-02 2) two" in await aged.text("git_blame", path="file.txt", commit="HEAD")
    assert "2)" not in await aged.text("git_blame", path="file.txt", commit="HEAD~2")


async def test_a_long_file_comes_in_pages(aged: GitTools) -> None:
    aged.lair.write("long", "".join(f"line {number}\n" for number in range(1, 1_502)))
    aged.lair.commit()
    first = await aged.ask("git_blame", path="long")
    assert first.truncated
    assert "1000) line 1000\n[lines 1-1000; go on with start_line=1001, end_line=" in first.text
    rest = await aged.ask("git_blame", path="long", start_line=1_001, end_line=2_001)
    assert not rest.truncated
    assert rest.text.endswith("1501) line 1501")


REFUSED_BY_BLAME = {
    "invalid_input": (
        *({"start_line": 1}, {"start_line": 2, "end_line": 1}, {"start_line": 0, "end_line": 1}),
        *({"commit": "nowhere"}, {"commit": "--contents=x"}),
    ),
    "not_found": (*({"start_line": 9, "end_line": 9}, {"path": "missing"}, {"path": "deep"}),),
    "denied": ({"path": "../home/.gitconfig"},),
}


async def test_a_wrong_argument_is_explained_and_a_hidden_file_not_shown(aged: GitTools) -> None:
    await aged.refuses("git_blame", REFUSED_BY_BLAME, path="file.txt")
    hiding = aged.like(hides=["file.txt"])
    assert (await hiding.ask("git_blame", path="file.txt")).error == "denied"
    assert (await hiding.ask("git_blame", path="deep/inner.txt")).error is None


@pytest.mark.requirement("GR-69")
async def test_it_tells_what_there_is_but_for_what_is_hidden(at: GitTools) -> None:
    lair = at.lair
    for name in ("src/a.py", "src/b.py", "web/c.ts", "Makefile", "LICENSE"):
        lair.write(name, "x\n")
    lair.commit()
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
    text = await at.like(hides=["web/**"]).text("repo_overview")
    assert "6 files" in text
    assert "web" not in text
    assert "TypeScript" not in text


ADDRESSES = {
    "https://example.org/x.git": "https://example.org/x.git",
    "https://hunter2@example.org/x.git": "https://[redacted]@example.org/x.git",
    "https://me:hunter2@example.org:8443/x.git": "https://[redacted]@example.org:8443/x.git",
    "https://me:hunter@2@example.org/x": "https://[redacted]@example.org/x",
    "https://example.org/x.git?token=hunter2": "https://example.org/x.git?[redacted]",
    "https://example.org/x.git#hunter2": "https://example.org/x.git#[redacted]",
    "https://example.org?hunter2@x": "https://example.org?[redacted]",
    "HTTPS://hunter2@example.org/x": "HTTPS://[redacted]@example.org/x",
    "ssh://git@example.org/x.git": "ssh://git@example.org/x.git",
    "ssh://me:hunter2@example.org/x.git": "ssh://me:[redacted]@example.org/x.git",
    "../library": "../library",
    "": "",
}


def test_an_address_is_shown_without_credentials() -> None:
    assert {address: blanked(address) for address in ADDRESSES} == ADDRESSES


@examples(20)
@given(st.text(max_size=40))
def test_every_end_is_peeled(text: str) -> None:
    try:
        found = peeled(text)
    except InvalidInput:
        return
    assert all(end.endswith("^{commit}") for end in ends(found))


HEADS = b"# branch.oid 1234\0# branch.head main\0"


def test_a_status_that_was_cut_loses_its_last_entry() -> None:
    answer = HEADS + b"? one\0? two\0? thr"
    one = GitChange(path="one", staged="?", unstaged="?", origin="")
    assert parsed(answer, complete=False).changes == (one,)
    renamed = b"2 R. N... 100644 100644 100644 aa bb R100 new\0ol"
    assert parsed(HEADS + b"? one\0" + renamed, complete=False).changes == (one,)
    assert not parsed(answer, complete=False).complete


@examples(20)
@given(st.binary(max_size=300))
def test_a_status_of_anything_is_no_crash_when_it_is_cut(tail: bytes) -> None:
    assert parsed(HEADS + b"? " + tail.replace(b"\0", b"") + b"\0\0", complete=False).branch == "main"


def test_a_commit_that_was_cut_is_left_out() -> None:
    whole = b"id\0name\0mail\0date\0subject\0body\n\0"
    assert [commit.id for commit in commits(whole + whole)] == ["id", "id"]
    assert [commit.body for commit in commits(whole + whole[:-9])] == ["body"]
    assert commits(b"") == ()
