"""EnterWorktree and ExitWorktree through the dispatcher, on real repositories."""

import re
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import Conflict
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.git import work_trees
from mcp_toolserver.runtime.worktrees.worktrees import CallWorktrees
from mcp_toolserver.stores import worktrees as stores
from tests.git.hostile_git import GIT, Lair
from tests.git.repositories import RepositoryTools
from tests.support.confinement import RIPGREP
from tests.support.workbench import Person
from tests.support.workshop import granted, workshop

EXAMPLE: dict[str, Any] = {"name": "fix-rounding"}

FOUND = HostExecutables(git=GIT, ripgrep=RIPGREP)


class Bench(RepositoryTools):
    """A server whose root is the folder of a repository, and that repository."""

    @property
    def folder(self) -> Path:
        return self.lair.repository / ".worktrees"

    async def enter(self, name: str = "x", **arguments: Any) -> str:
        """Enter a worktree; its id."""
        return _id(await self.text("EnterWorktree", name=name, path="repository", **arguments))

    async def leave(self, id_: str, **arguments: Any) -> str:
        return await self.text("ExitWorktree", id=id_, **arguments)


def _id(text: str) -> str:
    found = re.search(r"\bworktree_[0-9a-f]{32}\b", text)
    assert found, text
    return found[0]


@pytest.fixture
def lair(tmp_path: Path) -> Lair:
    """A clean repository in the root, and the user's home."""
    (tmp_path / "root").mkdir()
    made = Lair(tmp_path / "root")
    made.git("checkout", "-q", "file.txt")
    return made


@pytest.fixture
async def at(tmp_path: Path, lair: Lair, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Bench]:
    monkeypatch.setenv("HOME", lair.environ["HOME"])
    async with workshop(tmp_path, found=FOUND, git_author="n <n@example.org>") as made:
        yield Bench(lair=lair, at=made)


# --- entering --------------------------------------------------------------------------------------------


async def test_a_worktree_has_the_files_of_the_commit_on_a_branch_of_its_own(at: Bench) -> None:
    result = await at.ask("EnterWorktree", name="x", path="repository")
    head = at.lair.git("rev-parse", "HEAD")[:12]
    assert result.data is not None
    assert (result.data["path"], result.data["branch"]) == (f"{at.folder}/x", "worktree-x")
    assert result.text.splitlines()[0] == (
        f"Created and entered the worktree x: {at.folder}/x, branch worktree-x from {head}, 2 files."
    )
    assert at.lair.git("status", "--porcelain", "--branch", cwd=at.folder / "x") == "## worktree-x\n"
    assert at.lair.git("status", "--porcelain") == ""
    assert (at.folder / "x/deep/inner.txt").read_text(encoding="utf-8") == "inner\n"
    assert at.lair.git("fsck", "--strict") == ""
    assert not list((at.lair.repository / ".git").glob("mcp-toolserver-*"))


async def test_relative_paths_commands_and_searches_start_there(at: Bench) -> None:
    id_ = await at.enter()
    tree = at.folder / "x"
    assert (await at.text("bash", command="pwd")).strip() == str(tree)
    await at.text("write_file", path="new.txt", content="needle\n")
    assert (tree / "new.txt").exists()
    assert not (at.lair.repository / "new.txt").exists()
    assert "new.txt" in await at.text("grep_search", pattern="needle")
    assert "new.txt" in await at.text("glob_search", pattern="*.txt")
    assert "? new.txt" in (await at.text("git_status")).replace("??", "?")
    assert " on worktree-x, 1 file" in await at.text("git_commit", message="m", paths=["new.txt"])
    assert "one" in await at.text("read_file", path=str(at.lair.repository / "file.txt"))
    await at.leave(id_)
    assert (await at.text("bash", command="pwd")).strip() == str(at.lair.repository.parent)
    assert "new.txt" in await at.text("grep_search", pattern="needle", path=str(tree))
    assert "No " in await at.text("grep_search", pattern="needle", path="repository")


async def test_it_is_the_first_root_of_its_owner_only(at: Bench) -> None:
    other = Person(owner="client:other")
    id_ = await at.enter()
    assert (await at.text("bash", other, command="pwd")).strip() == str(at.lair.repository.parent)
    await at.refused("not_found", "ExitWorktree", other, id=id_)
    await at.refused("conflict", "EnterWorktree", other, name="x", path="repository")
    assert (await at.text("bash", command="pwd")).strip() == str(at.folder / "x")


async def test_a_base_is_any_commit(at: Bench) -> None:
    first = at.lair.git("rev-parse", "HEAD").strip()
    at.lair.write("later.txt", "later\n")
    at.lair.commit()
    await at.enter(base=first)
    assert not (at.folder / "x/later.txt").exists()
    assert at.lair.git("rev-parse", "worktree-x").strip() == first


async def test_what_is_no_commit_and_no_name_is_refused(at: Bench) -> None:
    for base in ("nothing", "-f", "main..HEAD", "HEAD:file.txt", ":/first", "HEAD^{/x}"):
        await at.refused("invalid_input", "EnterWorktree", name="x", path="repository", base=base)
    assert at.lair.git("branch", "--list", "worktree-*") == ""
    for name in (
        *("", ".", "..", "../x", "a/b", "-f", "--force", "x y", "x\n", "x\0", "é", ".git", "x..y", "x.lock"),
        *("x.git", "x.", "a" * 65, "x~1", "x:y", "x\\y", "@{-1}", ".worktrees", ".claude"),
    ):
        await at.refused("invalid_input", "EnterWorktree", name=name, path="repository")
    assert not at.folder.exists()


async def test_a_session_is_in_one_worktree_and_finds_its_own_again(at: Bench) -> None:
    id_ = await at.enter()
    assert id_ in await at.refused("conflict", "EnterWorktree", name="y", path=".")
    await at.leave(id_)
    await at.refused("invalid_input", "EnterWorktree", name="x", path="repository", base="HEAD")
    text = await at.text("EnterWorktree", name="x", path="repository")
    assert text.startswith("Entered x again: ")
    assert _id(text) == id_


async def test_what_is_taken_is_left_alone(at: Bench) -> None:
    at.lair.git("branch", "worktree-taken")
    assert "worktree-taken" in await at.refused("conflict", "EnterWorktree", name="taken", path="repository")
    (at.folder / "mine").mkdir(parents=True)
    await at.refused("conflict", "EnterWorktree", name="mine", path="repository")
    assert at.lair.git("branch", "--list", "worktree-mine") == ""
    assert at.lair.git("worktree", "list", "--porcelain").count("worktree ") == 1
    assert not list((at.lair.repository / ".git").glob("mcp-toolserver-*"))
    await at.enter("other")


async def test_where_no_worktree_can_be_made_the_error_says_why(at: Bench, tmp_path: Path) -> None:
    root = at.lair.repository.parent
    at.lair.git("init", "-q", "--bare", str(root / "bare"))
    at.lair.git("init", "-q", str(root / "empty"))
    (root / "plain").mkdir()
    for path, kind, why in (
        ("bare", "not_found", "no git repository"),
        ("plain", "not_found", "no git repository"),
        ("empty", "invalid_input", "make the first with git_commit"),
    ):
        assert why in await at.refused(kind, "EnterWorktree", name="x", path=path)
    at.lair.git("sparse-checkout", "set", "deep")
    assert "sparse" in await at.refused("invalid_input", "EnterWorktree", name="x", path="repository")


async def test_there_is_a_limit_of_files_bytes_and_worktrees(
    at: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_FILES", "MAX_BYTES"):
        with monkeypatch.context() as changed:
            changed.setattr(work_trees, name, 1)
            assert "too much" in await at.refused(
                "invalid_input", "EnterWorktree", name="x", path="repository"
            )
    assert not at.folder.exists()
    monkeypatch.setattr(stores, "MOST", 2)
    for number in range(2):
        await at.leave(await at.enter(f"w{number}"))
    text = await at.refused("invalid_input", "EnterWorktree", name="x", path="repository")
    assert "w0, w1" in text
    await at.leave(_id(await at.text("EnterWorktree", name="w0", path="repository")), action="remove")
    await at.enter("x")


async def test_a_rule_on_a_file_holds_in_a_worktree_too(
    tmp_path: Path, lair: Lair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ATTACK: a worktree has copies of what a rule hides or keeps from being changed."""
    monkeypatch.setenv("HOME", lair.environ["HOME"])
    lair.write("secret.key", "secret\n")
    lair.commit()
    deny = ("read_file(repository/secret.key)", "write_file(repository/deep/**)")
    async with workshop(tmp_path, Permission.WORKSPACE_WRITE, found=FOUND, deny=deny) as server:
        at = Bench(lair=lair, at=server)
        assert "secret" not in await at.text("EnterWorktree", name="x", path="repository")
        assert not (at.folder / "x/secret.key").exists()
        assert at.lair.git("status", "--porcelain", cwd=at.folder / "x") == ""
        (at.folder / "x/secret.key").write_text("secret\n", encoding="utf-8")
        await at.refused("denied", "read_file", path="secret.key")
        await at.refused("denied", "write_file", path="deep/inner.txt", content="x")
        await at.refused("denied", "write_file", path=f"{at.folder}/x/deep/other", content="x")
        await at.text("write_file", path="other.txt", content="x")


# --- leaving ---------------------------------------------------------------------------------------------


async def test_a_clean_worktree_is_removed_with_its_branch(at: Bench) -> None:
    text = await at.leave(await at.enter(), action="remove")
    assert text == "The worktree x was removed. The branch worktree-x is gone, it had no commits."
    assert at.lair.git("branch", "--list", "worktree-*") == ""
    assert at.lair.git("worktree", "list", "--porcelain").count("worktree ") == 1
    assert not (at.lair.repository / ".git/worktrees").exists()
    assert {path.name for path in at.folder.iterdir()} == {".gitignore"}
    await at.enter()


WORK = {
    "echo x > new": "new (not committed)",
    "mkdir d && echo x > d/deep": "d/deep (not committed)",
    "echo x >> file.txt": "file.txt (not committed)",
    "rm file.txt": "file.txt (not committed)",
    "git mv file.txt g": "g (not committed)",
    "git commit -qam m --allow-empty": "commit ",
    "git checkout -q --detach && git commit -qm other --allow-empty": "commit ",
    "rm .git": "what lies in its folder",
    "echo gitdir: /nowhere > .git": "what lies in its folder",
}


async def test_work_is_discarded_only_on_demand(at: Bench) -> None:
    who = "export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e"
    for number, (script, named) in enumerate(WORK.items()):
        tree = at.folder / f"w{number}"
        id_ = await at.enter(tree.name)
        await at.text("bash", command=f"{who}; {script}")
        assert named in await at.refused("conflict", "ExitWorktree", id=id_, action="remove"), script
        assert (await at.text("bash", command="pwd")).strip() == str(tree)
        assert named in await at.leave(id_, action="remove", discard_changes=True), script
        assert not tree.exists()
        kept = at.lair.git("branch", "--list", f"worktree-{tree.name}") != ""
        assert kept == script.startswith("git commit"), script


async def test_a_file_where_git_looks_no_further_is_work(at: Bench) -> None:
    """In the place of a file that was left out, and in the folder of a submodule."""
    at.lair.found(at.lair.folder / "library")
    at.lair.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "../library", "module")
    at.lair.write(".gitattributes", "*.odd filter=odd\n")
    at.lair.write("a.odd", "odd\n")
    at.lair.commit()
    at.lair.git("config", "filter.odd.clean", "cat")
    for place in ("a.odd", "module/new"):
        id_ = await at.enter()
        await at.text("write_file", path=place, content="work\n")
        assert "not committed" in await at.refused("conflict", "ExitWorktree", id=id_, action="remove")
        await at.leave(id_, action="remove", discard_changes=True)


async def test_a_branch_goes_if_another_has_its_commits_and_nobody_has_checked_it_out(at: Bench) -> None:
    id_ = await at.enter()
    await at.text("write_file", path="new", content="x")
    await at.text("git_commit", message="m", paths=["new"])
    at.lair.git("merge", "-q", "worktree-x")
    assert "is gone" in await at.leave(id_, action="remove")
    assert (at.lair.repository / "new").exists()
    id_ = await at.enter()
    at.lair.git("checkout", "-q", "--detach", cwd=at.folder / "x")
    at.lair.git("checkout", "-q", "worktree-x")
    assert "worktree-x stays" in await at.leave(id_, action="remove")
    assert at.lair.git("symbolic-ref", "HEAD").strip() == "refs/heads/worktree-x"


async def test_a_worktree_that_the_user_locked_is_not_removed(at: Bench) -> None:
    id_ = await at.enter()
    at.lair.git("worktree", "lock", str(at.folder / "x"))
    assert "locked" in await at.refused("conflict", "ExitWorktree", id=id_, action="remove")
    assert (at.folder / "x/file.txt").exists()


async def test_where_the_folder_is_gone_nothing_is_written_elsewhere(at: Bench) -> None:
    id_ = await at.enter()
    shutil.rmtree(at.folder / "x")
    for tool, arguments in (
        ("write_file", {"path": "new", "content": "x"}),
        ("bash", {"command": "touch new"}),
        ("git_status", {}),
    ):
        assert id_ in await at.refused("denied", tool, **arguments)
    assert not list(at.lair.repository.parent.rglob("new"))
    assert "was gone already" in await at.leave(id_)
    assert at.lair.git("worktree", "list", "--porcelain").count("worktree ") == 1
    await at.text("write_file", path="new", content="x")
    await at.enter()


async def test_a_name_whose_folder_is_gone_is_free_and_one_whose_folder_is_something_else_is_not(
    at: Bench,
) -> None:
    await at.leave(await at.enter())
    shutil.rmtree(at.folder / "x")
    text = await at.text("EnterWorktree", name="x", path="repository")
    assert text.startswith("Created")
    await at.leave(_id(text))
    (at.folder / "x/.git").unlink()
    assert _id(text) in await at.refused("conflict", "EnterWorktree", name="x", path="repository")


async def test_the_next_server_finds_it(tmp_path: Path, lair: Lair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", lair.environ["HOME"])
    ids: list[str] = []
    for _ in range(2):
        async with workshop(tmp_path, found=FOUND) as server:
            ids.append(await Bench(lair=lair, at=server).enter())
    assert ids[0] == ids[1]
    async with workshop(tmp_path, found=FOUND) as server:
        at = Bench(lair=lair, at=server)
        await at.refused("not_found", "ExitWorktree", id="worktree_" + "0" * 32)
        await at.leave(ids[0], action="remove")


async def test_a_session_of_an_interpreter_stays_where_it_is(at: Bench) -> None:
    text = await at.text("REPL", language="bash", code="pwd", session="new")
    handle = re.findall(r"repl_[0-9a-f]+", text)[0]
    await at.enter()
    said = await at.refused("conflict", "REPL", language="bash", code="pwd", session=handle)
    assert "worktree" in said
    assert str(at.folder / "x") in await at.text("REPL", language="bash", code="pwd")


# --- agents ----------------------------------------------------------------------------------------------


def _worktrees(server: Dispatcher) -> CallWorktrees:
    service = granted(server, Capability.WORKTREES).worktrees
    assert isinstance(service, CallWorktrees)
    return service


async def test_an_isolated_agent_sees_its_worktree_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outer").mkdir()
    lair = Lair(tmp_path / "outer")
    (tmp_path / "root").symlink_to(lair.repository)
    lair.commit()
    monkeypatch.setenv("HOME", lair.environ["HOME"])
    async with workshop(tmp_path, found=FOUND, git_author="n <n@example.org>") as server:
        at, worktrees, agent = Bench(lair=lair, at=server), _worktrees(server), Person(owner="agent_1")
        made = await worktrees.isolate("agent_1")
        assert made.path == str(at.folder / "agent_1")
        await at.refused("denied", "read_file", agent, path=str(lair.repository / "file.txt"))
        await at.refused("denied", "write_file", agent, path=str(lair.repository / "new"), content="x")
        await at.refused("denied", "git_status", agent, path=str(lair.repository))
        await at.text("write_file", agent, path="new", content="x")
        assert "new" in await at.text("git_status", agent)
        assert " on worktree-agent_1" in await at.text("git_commit", agent, message="m", paths=["new"])
        await at.refused("conflict", "EnterWorktree", agent, name="y")
        await at.refused("not_found", "ExitWorktree", agent, id=made.id)
        assert "agent works" in await at.refused("conflict", "ExitWorktree", id=made.id, action="remove")
        await worktrees.end_isolation("agent_1", made)
        await at.leave(made.id, action="remove", discard_changes=True)
        with pytest.raises(Conflict, match="branch"):
            await worktrees.isolate("agent_1")
