"""What git_commit commits, and what it refuses."""

import os
from typing import Any

import anyio
import pytest

from mcp_toolserver.text.git.names import parse_author
from tests.git.hostile_git import Lair
from tests.git.repositories import GitTools

EXAMPLE: dict[str, Any] = {"paths": ["README.md"], "message": "Say that taxes are in percent"}


def committed(lair: Lair) -> list[str]:
    """The files of the last commit, with what became of them."""
    listed = lair.git("show", "--format=", "--name-status", "--no-renames", "-z", "HEAD", "--")
    fields = listed.split("\0")
    return sorted(f"{letter} {name}" for letter, name in zip(fields[::2], fields[1::2], strict=False))


async def refused(at: GitTools, kind: str, **arguments: Any) -> str:
    """The error of a call that changes nothing."""
    return await at.unchanged(kind, "git_commit", **{"message": "m", **arguments})


async def test_a_named_file_is_committed_and_nothing_else(at: GitTools) -> None:
    lair = at.lair
    lair.write("deep/inner.txt", "changed\n")
    lair.write("staged.txt", "staged\n")
    lair.git("add", "staged.txt")
    result = await at.ask("git_commit", message="Change a file\n\nBecause.\n", paths="file.txt")
    head = lair.git("rev-parse", "HEAD").strip()
    files = [{"change": "M", "path": "file.txt"}]
    author = {"author": "n <n@example.org>"}
    assert result.data == {"id": head, "branch": "main", **author, "total": 1, "files": files}
    assert result.text == (
        f"Committed {head[:12]} on main, 1 file: Change a file\nAuthor: n <n@example.org>\nM file.txt"
    )
    assert (
        lair.git("log", "-1", "--format=%B%an%ae%cn%ce")
        == "Change a file\n\nBecause.\nnn@example.orgnn@example.org\n"
    )
    assert committed(lair) == ["M file.txt"]
    assert lair.git("status", "--porcelain") == " M deep/inner.txt\nA  staged.txt\n"


async def test_a_folder_means_all_that_changed_in_it_and_all_what_is_not_ignored(at: GitTools) -> None:
    lair = at.lair
    lair.write("deep/new/file", "new\n")
    (lair.repository / "deep/new/file").chmod(0o755)
    (lair.repository / "deep/inner.txt").unlink()
    await at.text("git_commit", message="m", paths=["deep"])
    assert committed(lair) == ["A deep/new/file", "D deep/inner.txt"]
    assert lair.git("ls-tree", "HEAD", "deep/new/file").startswith("100755 ")
    assert lair.git("status", "--porcelain") == " M file.txt\n"
    lair.write(".gitignore", "ignored\n")
    lair.write("ignored", "x\n")
    (lair.repository / "link").symlink_to("../home/.gitconfig")
    await at.text("git_commit", message="m", all=True)
    assert committed(lair) == ["A .gitignore", "A link", "M file.txt"]
    assert lair.git("show", "HEAD:link") == "../home/.gitconfig"
    assert lair.git("status", "--porcelain") == ""


ODD = ("-rf", "--amend", ":(top)file.txt", ":!x", "*", "a b", "größer", '"quoted"', "\\", "HEAD")


async def test_odd_names_and_messages_are_taken_by_their_letters(at: GitTools) -> None:
    """ATTACK: options, pathspec magic, patterns and a line break."""
    lair = at.lair
    for name in (*ODD, "a\nM b"):
        lair.write(name, "x\n")
    message = "--amend --author=x\n\n# kept\n"
    await at.text("git_commit", message=message, paths=list(ODD))
    assert committed(lair) == sorted(f"A {name}" for name in ODD)
    assert lair.git("log", "-1", "--format=%B") == f"{message}\n"
    assert lair.git("rev-list", "--count", "main") == "2\n"
    assert "A a\\x0aM b" in await at.text("git_commit", message="m", all=True)
    assert committed(lair) == ["A a\nM b", "M file.txt"]


BAD = (
    *({}, {"paths": ["file.txt"], "all": True}, {"amend": True, "message": "\t"}),
    *({"paths": ["file.txt"], "message": message} for message in (" \n", "x" * 16_001, "a\0b", "a\ud800")),
    *({"paths": ["deep"]}, {"paths": ["missing"]}, {"paths": ["a\nb"]}),
    {"paths": [f"{'x' * 200}/{number}" for number in range(400)]},
)


async def test_bad_arguments_and_an_empty_commit_are_refused(at: GitTools) -> None:
    """ATTACK: also huge and unprintable messages, line breaks, and very many paths."""
    for arguments in BAD:
        await refused(at, "invalid_input", **arguments)
    at.lair.git("checkout", "-q", "file.txt")
    assert "nothing to commit" in await refused(at, "invalid_input", all=True)


async def test_a_path_outside_the_roots_is_refused(at: GitTools) -> None:
    """ATTACK: by spelling and through a link."""
    lair = at.lair
    (lair.folder / "outside").mkdir()
    (lair.folder / "outside/x").write_text("x\n", encoding="utf-8")
    (lair.repository / "link").symlink_to("../outside")
    for path in ("..", "../outside", "/etc/passwd", "link/x"):
        await refused(at, "denied", paths=[path])


async def test_what_a_rule_hides_or_denies_is_not_committed(at: GitTools) -> None:
    lair = at.lair
    for name in ("secret/key", "plain", "deep/secret.pem", "kept/out", "asked/about"):
        lair.write(name, "x\n")
    rules = {"deny": ["git_commit(kept/**)"], "ask": ["git_commit(asked/**)"]}
    hiding = at.like(hides=["secret/**", "*.pem"], **rules)
    text = await hiding.text("git_commit", message="m", all=True)
    assert "[4 changes left out, hidden by a rule of the operator]" in text
    assert "secret" not in text
    assert committed(lair) == ["A plain", "M file.txt"]
    assert "hidden" in await refused(hiding, "denied", paths=["secret/key"])
    await refused(hiding, "denied", paths=["kept/out"])
    assert "4 changed files left out by a rule" in await refused(hiding, "invalid_input", all=True)
    await refused(at.like(deny=["git_commit(kept/out)"]), "invalid_input", paths=["kept"])


async def test_the_author_is_the_operators(at: GitTools) -> None:
    lair = at.lair
    for section in ("user", "author", "committer"):
        lair.config(f"{section}.name Evil", f"{section}.email evil@example.org")
    at = at.like(author="Ada L. <ada@example.org>")
    assert "Author: Ada L <ada@example.org>\n" in await at.text("git_commit", message="m", all=True)
    assert (
        lair.git("log", "-1", "--format=%an %ae %cn %ce") == "Ada L ada@example.org Ada L ada@example.org\n"
    )


def test_a_text_that_is_no_author_is_refused() -> None:
    for text in ("", "n", "<a@b>", "n <>", "n <a b>", "n\n <a@b>", "... <a@b>", "n <a@b> <c@d>"):
        with pytest.raises(ValueError, match="Name <email>"):
            parse_author(text)


async def test_the_last_commit_is_replaced(at: GitTools) -> None:
    lair = at.lair
    await at.text("git_commit", message="first try", paths=["file.txt"])
    lair.write("new", "x\n")
    text = await at.text("git_commit", paths=["new"], amend=True)
    assert text.startswith("Amended ")
    assert committed(lair) == ["A new", "M file.txt"]
    lair.write("other", "staged\n")
    lair.git("add", "other")
    await at.text("git_commit", message="better", amend=True)
    assert lair.git("log", "--format=%s") == "better\nfirst\n"
    assert committed(lair) == ["A new", "M file.txt"]
    assert lair.git("status", "--porcelain") == "A  other\n"


async def test_a_pushed_commit_and_one_of_another_author_are_not_amended(at: GitTools) -> None:
    lair = at.lair
    another = at.like(author="m <n@example.org>")
    assert "not by m <n@example.org>" in await refused(another, "denied", amend=True)
    lair.git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert "pushed" in await refused(at, "denied", amend=True)
    lair.git("checkout", "-q", "--detach")
    assert " on no branch, 1 file: next" in await at.text("git_commit", message="next", all=True)
    assert (await at.data("git_commit", message="changed", amend=True))["branch"] == ""
    assert lair.git("log", "--format=%s") == "changed\nfirst\n"


async def test_the_first_commit_can_be_made(at: GitTools) -> None:
    lair = at.lair
    empty = lair.folder / "empty"
    lair.git("init", "-q", "empty", cwd=lair.folder)
    (empty / "a").write_text("a\n", encoding="utf-8")
    at = at.like(roots=[empty])
    result = await at.ask("git_commit", message="m", amend=True)
    assert result.error == "invalid_input"
    assert " on main, 1 file: m" in await at.text("git_commit", message="m", all=True)
    assert lair.git("log", "--format=%s", cwd=empty) == "m\n"


async def test_another_git_at_work_and_an_operation_that_is_not_finished_are_in_the_way(
    at: GitTools,
) -> None:
    lair = at.lair
    lock = lair.repository / ".git/index.lock"
    lock.touch()
    assert "index.lock" in await refused(at, "conflict", all=True)
    lock.unlink()
    await at.text("git_commit", message="m", all=True)
    lair.git("checkout", "-qb", "side", "HEAD~1")
    lair.write("file.txt", "side\n")
    lair.commit()
    for operation in ("rebase", "cherry-pick", "merge"):
        lair.naive(operation, "main")
        assert f"in the middle of a {operation}" in await refused(at, "conflict", all=True)
        if operation != "merge":
            lair.git(operation, "--abort")
    (lair.repository / ".git/MERGE_HEAD").unlink()
    assert "'file.txt': not merged" in await refused(at, "conflict", all=True)


async def test_a_repository_inside_is_left_out_and_can_be_named(at: GitTools) -> None:
    lair = at.lair
    lair.found(lair.repository / "nested")
    (lair.repository / "nested/file.txt").write_text("changed\n", encoding="utf-8")
    text = await at.text("git_commit", message="m", all=True)
    assert "[1 path in repositories of their own left out]" in text
    assert committed(lair) == ["M file.txt"]
    await refused(at, "invalid_input", paths=["file.txt", "nested/file.txt"])
    assert "M nested/file.txt" in await at.text("git_commit", message="inner", paths=["nested"])
    assert lair.git("log", "-1", "--format=%s", cwd=lair.repository / "nested") == "inner\n"


async def test_a_git_folder_that_is_a_link_or_a_file_that_leads_elsewhere_is_only_read(at: GitTools) -> None:
    """ATTACK: git would write where the link leads."""
    lair = at.lair
    place = lair.repository / ".git"
    for where in ("real", ".git-real/.git"):
        real = lair.repository / where
        real.parent.mkdir(exist_ok=True)
        place.rename(real)
        place.symlink_to(real)
        assert ".git is a link" in await refused(at, "denied", paths=["file.txt"])
        place.unlink()
        real.rename(place)
    place.rename(lair.repository / "elsewhere")
    place.write_text(f"gitdir: {lair.repository}/elsewhere\n", encoding="utf-8")
    await refused(at, "denied", paths=["file.txt"])


async def test_a_configured_filter_is_not_run_and_its_files_are_refused(at: GitTools) -> None:
    lair = at.lair
    lair.write(".gitattributes", "*.bin filter=odd\n*.raw filter=unknown\n")
    lair.write("a.bin", "x\n")
    lair.write("a.raw", "x\n")
    lair.config("filter.odd.clean {evil}", "filter.odd.required true")
    assert "'a.bin': stored through a filter" in await refused(at, "invalid_input", all=True)
    await at.text("git_commit", message="m", paths=["a.raw", ".gitattributes"])
    assert not lair.ran()


async def test_line_ends_are_stored_as_git_stores_them(at: GitTools) -> None:
    lair = at.lair
    lair.write(".gitattributes", "*.txt text eol=crlf\n")
    (lair.repository / "dos.txt").write_bytes(b"a\r\nb\r\n")
    await at.text("git_commit", message="m", all=True)
    assert lair.naive("cat-file", "-p", "HEAD:dos.txt").stdout == b"a\nb\n"


async def test_commits_at_the_same_time_follow_each_other(at: GitTools) -> None:
    names = [f"new-{number}" for number in range(4)]
    for name in names:
        at.lair.write(name, name)
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(lambda name=name: at.text("git_commit", message=name, paths=[name]))
    assert sorted(at.lair.git("log", "-4", "--format=%s").split()) == names
    assert not os.path.lexists(at.lair.repository / ".git/index.lock")
