"""What git_restore writes, and what it refuses."""

from typing import Any

import pytest

from tests.git.hostile_git import Lair
from tests.git.repositories import GitTools
from tests.support.calling import HANDLE

EXAMPLE: dict[str, Any] = {"paths": ["README.md"]}


def content(lair: Lair, name: str) -> str:
    return (lair.repository / name).read_text(encoding="utf-8")


async def refused(at: GitTools, kind: str, *paths: str, **arguments: Any) -> str:
    """The error of a call that changes nothing."""
    return await at.unchanged(kind, "git_restore", paths=list(paths), **arguments)


async def test_a_file_gets_the_content_of_the_last_commit(at: GitTools) -> None:
    text = await at.text("git_restore", paths=["file.txt"])
    undo = "To undo a file: write_file with its path and the id after restore."
    assert HANDLE.sub("", text) == f'Restored 1 file from HEAD.\n{undo}\n- file.txt, 4 bytes (restore "")'
    assert content(at.lair, "file.txt") == "one\n"
    assert at.lair.git("status", "--porcelain") == ""
    text = await at.text("git_restore", paths=["file.txt"])
    assert text == "Restored 1 file from HEAD.\n- file.txt, 4 bytes (was the same)"


async def test_several_files_come_from_an_older_commit(at: GitTools) -> None:
    lair = at.lair
    lair.write("deep/inner.txt", "changed\n")
    lair.commit()
    (lair.repository / "deep/inner.txt").unlink()
    text = await at.text("git_restore", paths=["file.txt", "deep/inner.txt"], commit="HEAD~1")
    assert text.startswith("Restored 2 files from HEAD~1.\n")
    assert HANDLE.sub("", text).endswith(
        '- file.txt, 4 bytes (restore "")\n- deep/inner.txt, 6 bytes (created)'
    )
    assert (content(lair, "file.txt"), content(lair, "deep/inner.txt")) == ("one\n", "inner\n")
    assert lair.git("diff", "--cached") == ""


async def test_a_folder_is_restored_but_for_what_a_rule_hides_and_none_if_one_forbids_a_file(
    at: GitTools,
) -> None:
    lair = at.lair
    for name in ("deep/inner.txt", "deep/secret", "deep/er/gone", "deep/same"):
        lair.write(name, "one\n")
    lair.commit()
    for name in ("deep/inner.txt", "deep/secret", "deep/new"):
        lair.write(name, "two\n")
    (lair.repository / "deep/er/gone").unlink()
    hiding = at.like(hides=["deep/secret"])
    forbidding = at.like(hides=["deep/secret"], deny=["capability:fs_write(deep/inner.txt)"])
    assert "deep/inner.txt" in await refused(forbidding, "denied", "deep")
    text = HANDLE.sub("", await hiding.text("git_restore", paths=["deep"]))
    assert text.splitlines()[2:] == [
        "- deep/er/gone, 4 bytes (created)",
        '- deep/inner.txt, 4 bytes (restore "")',
    ]
    assert lair.git("status", "--porcelain", "deep").splitlines() == [" M deep/secret", "?? deep/new"]
    lair.git("restore", "deep")
    (lair.repository / "deep/er/gone").unlink()
    (lair.repository / "deep/er").rmdir()
    (lair.repository / "deep/er").symlink_to("..")
    assert "behind a link" in await refused(at, "invalid_input", "deep")


async def test_what_is_staged_can_be_taken(at: GitTools) -> None:
    lair = at.lair
    lair.git("add", "file.txt")
    lair.write("file.txt", "three\n")
    text = await at.text("git_restore", paths=["file.txt"], staged=True)
    assert text.startswith("Restored 1 file from the index.")
    assert content(lair, "file.txt") == "one\ntwo\n"
    assert lair.git("status", "--porcelain") == "M  file.txt\n"


async def test_all_are_restored_or_none(at: GitTools) -> None:
    assert "not in HEAD" in await refused(at, "not_found", "file.txt", "missing")


REFUSED = {
    "invalid_input": (
        *((".", {}), ("link", {}), ("nested/file.txt", {}), ("both.txt", {"staged": True}), ("a\nb", {})),
        *(("file.txt", {"commit": one}) for one in ("HEAD~1..HEAD", "HEAD:file.txt", "--output=x")),
    ),
    "denied": (("../outside", {}), ("way/x", {})),
    "not_found": (("missing", {"staged": True}), ("*.txt", {}), (":(top)file.txt", {})),
}


async def test_what_is_no_file_of_the_repository_is_refused(at: GitTools) -> None:
    """ATTACK: also options, patterns, line breaks, and ways out."""
    lair = at.lair
    lair.write("both.txt", "base\n")
    (lair.repository / "link").symlink_to("nowhere")
    lair.git("add", "link", "both.txt")
    lair.git("commit", "-qm", "link")
    lair.git("checkout", "-qb", "side")
    lair.write("both.txt", "side\n")
    lair.git("commit", "-qm", "side", "both.txt")
    lair.git("checkout", "-q", "main")
    lair.write("both.txt", "main\n")
    lair.git("commit", "-qm", "main", "both.txt")
    lair.naive("merge", "side")
    lair.found(lair.repository / "nested")
    (lair.folder / "outside").mkdir()
    (lair.repository / "way").symlink_to("../outside")
    (lair.repository / "link").unlink()
    assert lair.git("ls-files", "-u"), "there is no conflict"
    for kind, cases in REFUSED.items():
        for path, arguments in cases:
            await refused(at, kind, "file.txt", path, **arguments)


async def test_rules_and_protection_hold_for_what_is_restored(at: GitTools) -> None:
    lair = at.lair
    lair.write(".envrc", "one\n")
    lair.write("secret", "one\n")
    lair.commit()
    lair.write(".envrc", "two\n")
    at = at.like(
        hides=["secret"],
        deny=["capability:fs_write(file.txt)"],
        protects=lambda path: "is protected" if path.endswith(".envrc") else None,
    )
    assert "is protected" in await refused(at, "denied", ".envrc")
    assert "hidden" in await refused(at, "denied", "secret")
    await refused(at, "denied", "file.txt")


CHECKED_OUT = (
    ("*.txt text eol=crlf\n", {}, b"a\r\nb\r\n"),
    ("*.txt text=auto\n", {"core.autocrlf": "true"}, b"a\r\nb\r\n"),
    ("*.txt text=auto\n", {"core.autocrlf": "input"}, b"a\nb\n"),
    ("*.txt text\n", {"core.eol": "crlf"}, b"a\r\nb\r\n"),
    ("*.txt text=auto eol=lf\n", {}, b"a\nb\n"),
    ("*.txt text working-tree-encoding=UTF-16LE\n", {}, "a\nb\n".encode("utf-16-le")),
)


async def test_line_ends_and_encodings_are_as_git_checks_them_out(at: GitTools) -> None:
    lair = at.lair
    lair.write("dos.txt", "a\nb\n")
    lair.commit()
    for attributes, settings, expected in CHECKED_OUT:
        lair.write(".gitattributes", attributes)
        lair.config(*(f"{name} {value}" for name, value in settings.items()))
        await at.text("git_restore", paths=["dos.txt", "deep/inner.txt"])
        assert (lair.repository / "dos.txt").read_bytes() == expected, attributes
        for name in settings:
            lair.git("config", "--unset", name)


async def test_content_that_is_too_large_or_missing_is_refused(
    at: GitTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    lair = at.lair
    monkeypatch.setattr("mcp_toolserver.runtime.git.versions.MAX_CONTENTS", 10)
    assert "too large" in await refused(at, "invalid_input", "file.txt")
    monkeypatch.undo()
    blob = lair.git("rev-parse", "HEAD:file.txt").strip()
    (lair.repository / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    assert "git fsck" in await at.refused("unavailable", "git_restore", paths=["file.txt"])


async def test_a_content_that_looks_like_a_header_is_content(at: GitTools) -> None:
    """ATTACK: one object imitates the output of git for the next one."""
    lair = at.lair
    blob = lair.git("rev-parse", "HEAD:file.txt").strip()
    lair.write("a", f"x\n{blob} blob 4\nevil\n")
    lair.write("b", "b\n")
    lair.commit()
    for name in ("a", "b"):
        lair.write(name, "changed\n")
    await at.text("git_restore", paths=["a", "b"])
    assert (content(lair, "a"), content(lair, "b")) == (f"x\n{blob} blob 4\nevil\n", "b\n")
