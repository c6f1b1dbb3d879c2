"""What git_diff answers."""

from pathlib import Path

from tests.git.repositories import GitTools


def changed(text: str) -> list[str]:
    """The lines that were added or removed."""
    return [line for line in text.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]


async def test_what_is_staged_is_apart_from_what_is_not(at: GitTools) -> None:
    text = await at.text("git_diff")
    assert text == at.lair.git("diff").removesuffix("\n")
    assert changed(text) == ["+two"]
    assert await at.text("git_diff", staged=True) == "[no differences]"
    at.lair.git("add", ".")
    result = await at.ask("git_diff", stat=True)
    assert (result.error, result.text, result.truncated) == (None, "[no differences]", False)
    at.lair.write("file.txt", "one\ntwo\nthree\n")
    assert changed(await at.text("git_diff")) == ["+three"]
    assert changed(await at.text("git_diff", staged=True)) == ["+two"]
    assert changed(await at.text("git_diff", commit="HEAD")) == ["+two", "+three"]


async def test_commits_are_compared_with_the_files_and_with_each_other(at: GitTools) -> None:
    lair = at.lair
    lair.commit()
    lair.git("checkout", "-qb", "side", "HEAD~1")
    lair.write("side.txt", "side\n")
    lair.commit()
    assert changed(await at.text("git_diff", commit="main..side")) == ["-two", "+side"]
    assert changed(await at.text("git_diff", commit="main...side")) == ["+side"]
    assert changed(await at.text("git_diff", commit="main", commit2="side")) == ["+side"]
    assert changed(await at.text("git_diff", commit="main..")) == ["-two", "+side"]
    assert changed(await at.text("git_diff", commit="..main")) == ["+two", "-side"]
    assert changed(await at.text("git_diff", commit="main")) == ["-two", "+side"]
    assert changed(await at.text("git_diff", commit="main", staged=True)) == ["-two", "+side"]


async def test_a_path_narrows_it_and_names_below_the_root_are_explained(at: GitTools) -> None:
    at.lair.write("deep/inner.txt", "changed\n")
    assert changed(await at.text("git_diff", path="deep")) == ["-inner", "+changed"]
    assert await at.text("git_diff", path="nowhere") == "[no differences]"
    text = await at.like(roots=[at.lair.folder]).text("git_diff", path="repository/file.txt")
    assert changed(text) == ["+two"]
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


async def test_hidden_files_are_left_out_and_counted(at: GitTools) -> None:
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
