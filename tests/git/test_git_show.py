"""What git_show answers."""

from pathlib import Path

import pytest

from tests.git.hostile_git import Lair
from tests.git.repositories import GitTools, without_ids


@pytest.fixture
def lair(tmp_path: Path) -> Lair:
    """The second commit, `more`, adds a line to file.txt and changes deep/inner.txt."""
    made = Lair(tmp_path)
    made.write("deep/inner.txt", "changed\n")
    made.commit()
    return made


async def test_a_commit_has_a_message_and_a_patch(at: GitTools) -> None:
    text = await at.text("git_show")
    head = "commit <id>\nparents <id>\nauthor n <n@example.org>\ndate <time>\n\nmore\n"
    assert without_ids(text).startswith(head)
    assert "+two" in text
    assert "+changed" in text
    first = await at.text("git_show", commit="HEAD~1")
    assert "first" in first
    assert "+inner" in first


async def test_there_is_less_on_request(at: GitTools) -> None:
    metadata = await at.text("git_show", format="metadata")
    assert metadata.endswith("\n\nmore")
    assert "diff" not in metadata
    stat = await at.text("git_show", stat=True)
    assert "2 files changed" in stat
    assert "+two" not in stat
    assert stat == await at.text("git_show", format="stat")
    folder = await at.text("git_show", path="deep")
    assert "+changed" in folder
    assert "+two" not in folder


async def test_a_file_has_the_content_it_had_and_what_is_no_text_is_named(at: GitTools) -> None:
    lair = at.lair
    assert await at.text("git_show", path="file.txt", commit="HEAD~1") == "one"
    (lair.repository / "file.txt").unlink()
    assert await at.text("git_show", path="file.txt") == "one\ntwo"
    lair.write("file.txt", "")
    (lair.repository / "binary").write_bytes(b"a\0b")
    (lair.repository / "link").symlink_to("../../etc/passwd")
    lair.git("update-index", "--add", "--cacheinfo", f"160000,{lair.git('rev-parse', 'HEAD').strip()},module")
    lair.git("add", "binary", "link", "file.txt")
    lair.git("commit", "-qm", "odd")
    (lair.repository / "link").unlink()
    assert await at.text("git_show", path="file.txt") == "[empty]"
    assert await at.text("git_show", path="binary") == "[a binary file]"
    assert await at.text("git_show", path="link") == "[a link to ../../etc/passwd]"
    assert without_ids(await at.text("git_show", path="module")) == "[a submodule, at its commit <id>]"


async def test_a_folder_that_is_gone_is_listed_as_it_was(at: GitTools) -> None:
    lair = at.lair
    lair.write("old/key", "x\n")
    lair.write("old/other", "x\n")
    lair.commit()
    lair.git("rm", "-qr", "old")
    assert await at.text("git_show", path="old") == "old/key\nold/other"
    hiding = at.like(hides=["old/key"])
    assert await hiding.text("git_show", path="old") == (
        "old/other\n[1 file left out, hidden by a rule of the operator]"
    )


REFUSED = {
    "invalid_input": (
        # GITOPT03 and GITOPT12.
        *({"commit": "--output=x"}, {"commit": "HEAD:../home/.gitconfig"}, {"commit": "HEAD~1..HEAD"}),
        *({"commit": "nowhere", "path": "file.txt"}, {"format": "metadata", "stat": True}),
        *({"format": "metadata", "path": "file.txt"}, {"stat": True, "path": "file.txt"}),
    ),
    "not_found": ({"path": "missing"},),
    "denied": ({"path": "../home/.gitconfig"},),
}


async def test_a_wrong_argument_is_explained(at: GitTools) -> None:
    await at.refuses("git_show", REFUSED)
    hiding = at.like(hides=["secret"])
    assert (await hiding.ask("git_show", commit="nowhere")).error == "invalid_input"


async def test_hidden_files_are_left_out_and_counted(at: GitTools) -> None:
    at.lair.write("secret", "hunter2\n")
    at.lair.write("file.txt", "shown\n")
    at.lair.commit()
    hiding = at.like(hides=["secret"])
    assert "secret" in await at.text("git_show")
    for arguments in ({}, {"stat": True}, {"path": "."}):
        text = await hiding.text("git_show", **arguments)
        assert "file.txt" in text
        assert "[1 file left out, hidden by a rule of the operator]" in text
        assert "secret" not in text
        assert "hunter2" not in text
    assert (await hiding.ask("git_show", path="secret")).error == "denied"


async def test_a_merge_names_no_hidden_file_either(at: GitTools) -> None:
    """Its patch shows less than its count, which is taken against the first parent."""
    lair = at.lair
    lair.branch("side", {"secret": "hunter2\n"})
    lair.write("file.txt", "main\n")
    lair.commit()
    lair.git("merge", "-q", "-m", "merged", "side")
    assert "secret" in await at.text("git_show", stat=True)
    hiding = at.like(hides=["secret"])
    for arguments in ({}, {"stat": True}):
        text = await hiding.text("git_show", **arguments)
        assert "merged" in text
        assert "secret" not in text
