"""EnterWorktree and ExitWorktree through the dispatcher, on real repositories."""

import re
import shutil
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import Conflict
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.git import work_trees
from mcp_toolserver.runtime.worktrees.worktrees import CallWorktrees
from mcp_toolserver.stores import worktrees as stores
from tests.git.hostile_git import GIT, Lair
from tests.git.repositories import RepositoryTools
from tests.git.served import worktree_id
from tests.support.confinement import RIPGREP
from tests.support.workbench import Person
from tests.support.workshop import granted, workshop

EXAMPLE: dict[str, Any] = {"name": "fix-rounding"}

SERVER: dict[str, Any] = {
    "found": HostExecutables(git=GIT, ripgrep=RIPGREP),
    "git_author": "n <n@example.org>",
    "history_size": 0,
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Bench(RepositoryTools):
    """A clean repository in the root of a server, and the owner of its own who works there."""

    async def ask(self, tool: str, person: Person | None = None, /, **arguments: Any) -> Result:
        return await super().ask(tool, person or Person(owner=self.place), **arguments)

    @property
    def place(self) -> str:
        """The repository, relative to the root."""
        return f"{self.lair.folder.name}/repository"

    @property
    def root(self) -> Path:
        return self.lair.folder.parent

    @property
    def folder(self) -> Path:
        return self.lair.repository / ".worktrees"

    async def enter(self, name: str = "x", **arguments: Any) -> str:
        """Enter a worktree; its id."""
        return worktree_id(await self.text("EnterWorktree", name=name, path=self.place, **arguments))

    async def enter_refused(self, kind: str, **arguments: Any) -> str:
        return await self.refused(kind, "EnterWorktree", **{"name": "x", "path": self.place, **arguments})

    async def leave(self, id_: str, **arguments: Any) -> str:
        return await self.text("ExitWorktree", id=id_, **arguments)


def clean(folder: Path) -> Lair:
    """A repository without changes in the root, and its user's home."""
    folder.mkdir(parents=True)
    made = Lair(folder)
    made.write("file.txt", "one\n")
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[tuple[Path, Dispatcher]]:
    """A server that most tests share, each with a repository and an owner of its own."""
    folder = tmp_path_factory.mktemp("worktrees")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        async with workshop(folder, **SERVER) as made:
            yield folder / "root", made


@pytest.fixture
def at(shared: tuple[Path, Dispatcher], tmp_path: Path) -> Generator[Bench]:
    root, server = shared
    lair = clean(root / tmp_path.name)
    yield Bench(lair=lair, at=server)
    shutil.rmtree(lair.folder)


@asynccontextmanager
async def own_server(folder: Path, lair: Lair, **options: Any) -> AsyncGenerator[Bench]:
    """A server on `folder/root`, where the repository is."""
    async with workshop(folder, **{**SERVER, **options}) as made:
        yield Bench(lair=lair, at=made)


@pytest.fixture
def lair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lair:
    """A repository for servers of the test's own, which start in the home of its user."""
    made = clean(tmp_path / "root/own")
    monkeypatch.setenv("HOME", made.environ["HOME"])
    return made


async def test_a_worktree_has_the_files_of_any_commit_on_a_branch_of_its_own(at: Bench) -> None:
    result = await at.ask("EnterWorktree", name="x", path=at.place)
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
    await at.leave(worktree_id(result.text))
    at.lair.write("later.txt", "later\n")
    at.lair.commit()
    await at.enter("older", base="HEAD~1")
    assert not (at.folder / "older/later.txt").exists()
    assert at.lair.git("rev-parse", "worktree-older")[:12] == head


async def test_relative_paths_commands_and_searches_of_its_owner_start_there(at: Bench) -> None:
    text = await at.text("REPL", language="bash", code="pwd", session="new")
    session = re.findall(r"repl_[0-9a-f]+", text)[0]
    id_ = await at.enter()
    tree = at.folder / "x"
    assert (await at.text("bash", command="pwd")).strip() == str(tree)
    assert str(tree) in await at.text("REPL", language="bash", code="pwd")
    # A session stays where it is.
    assert "worktree" in await at.refused("conflict", "REPL", language="bash", code="pwd", session=session)
    other = Person(owner="client:other")
    assert (await at.text("bash", other, command="pwd")).strip() == str(at.root)
    await at.refused("not_found", "ExitWorktree", other, id=id_)
    await at.refused("conflict", "EnterWorktree", other, name="x", path=at.place)
    await at.text("write_file", path="new.txt", content="needle\n")
    assert (tree / "new.txt").exists()
    assert not (at.lair.repository / "new.txt").exists()
    assert "new.txt" in await at.text("grep_search", pattern="needle")
    assert "new.txt" in await at.text("glob_search", pattern="*.txt")
    assert "? new.txt" in (await at.text("git_status")).replace("??", "?")
    assert " on worktree-x, 1 file" in await at.text("git_commit", message="m", paths=["new.txt"])
    assert "one" in await at.text("read_file", path=str(at.lair.repository / "file.txt"))
    await at.leave(id_)
    assert (await at.text("bash", command="pwd")).strip() == str(at.root)
    assert "new.txt" in await at.text("grep_search", pattern="needle", path=str(tree))
    assert "No " in await at.text("grep_search", pattern="needle", path=at.place)


async def test_what_is_no_commit_and_no_name_is_refused_and_what_is_taken_left_alone(at: Bench) -> None:
    for base in ("nothing", "-f", "main..HEAD", "HEAD:file.txt", ":/first"):
        await at.enter_refused("invalid_input", base=base)
    for name in (
        *("", ".", "..", "../x", "a/b", "-f", "x y", "x\n", "x\0", "é", ".git", "x..y", "x.lock"),
        *("x.git", "x.", "a" * 65, "x~1", "x:y", "x\\y", "@{-1}", ".worktrees", ".claude"),
    ):
        await at.enter_refused("invalid_input", name=name)
    assert not at.folder.exists()
    at.lair.git("branch", "worktree-taken")
    assert "worktree-taken" in await at.enter_refused("conflict", name="taken")
    (at.folder / "mine").mkdir(parents=True)
    await at.enter_refused("conflict", name="mine")
    assert at.lair.git("branch", "--list", "worktree-*") == "  worktree-taken\n"
    assert at.lair.git("worktree", "list", "--porcelain").count("worktree ") == 1
    assert not list((at.lair.repository / ".git").glob("mcp-toolserver-*"))
    await at.enter("other")


async def test_a_session_is_in_one_worktree_and_finds_its_own_again(at: Bench) -> None:
    id_ = await at.enter()
    assert id_ in await at.refused("conflict", "EnterWorktree", name="y", path=".")
    await at.leave(id_)
    await at.enter_refused("invalid_input", base="HEAD")
    text = await at.text("EnterWorktree", name="x", path=at.place)
    assert text.startswith("Entered x again: ")
    assert worktree_id(text) == id_
    # A name whose folder is gone is free, and one whose folder is something else is not.
    await at.leave(id_)
    shutil.rmtree(at.folder / "x")
    text = await at.text("EnterWorktree", name="x", path=at.place)
    assert text.startswith("Created")
    await at.leave(worktree_id(text))
    (at.folder / "x/.git").unlink()
    assert worktree_id(text) in await at.enter_refused("conflict")


async def test_where_no_worktree_can_be_made_the_error_says_why(
    at: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = at.lair.folder
    at.lair.git("init", "-q", "--bare", str(around / "bare"))
    at.lair.git("init", "-q", str(around / "empty"))
    (around / "plain").mkdir()
    for path, kind, why in (
        ("bare", "not_found", "no git repository"),
        ("plain", "not_found", "no git repository"),
        ("empty", "invalid_input", "make the first with git_commit"),
    ):
        assert why in await at.enter_refused(kind, path=str(around / path))
    for name in ("MAX_FILES", "MAX_BYTES"):
        with monkeypatch.context() as changed:
            changed.setattr(work_trees, name, 1)
            assert "too much" in await at.enter_refused("invalid_input")
    assert not at.folder.exists()
    at.lair.git("sparse-checkout", "set", "deep")
    assert "sparse" in await at.enter_refused("invalid_input")


async def test_a_rule_on_a_file_holds_in_a_worktree_and_for_git_too(tmp_path: Path, lair: Lair) -> None:
    """ATTACK: a worktree and the history have copies of what a rule hides or keeps from being changed."""
    lair.write("secret.key", "secret\n")
    lair.commit()
    deny = (
        *("read_file(own/repository/secret.key)", "write_file(own/repository/deep/**)"),
        "git_commit(own/repository/kept)",
    )
    async with own_server(tmp_path, lair, mode=Permission.WORKSPACE_WRITE, deny=deny) as at:
        assert "secret" not in await at.text("EnterWorktree", name="x", path=at.place)
        assert not (at.folder / "x/secret.key").exists()
        assert at.lair.git("status", "--porcelain", cwd=at.folder / "x") == ""
        (at.folder / "x/secret.key").write_text("secret\n", encoding="utf-8")
        await at.refused("denied", "read_file", path="secret.key")
        await at.refused("denied", "write_file", path="deep/inner.txt", content="x")
        await at.refused("denied", "write_file", path=f"{at.folder}/x/deep/other", content="x")
        await at.text("write_file", path="other.txt", content="x")
        lair.write("secret.key", "changed\n")
        lair.write("kept", "x\n")
        lair.write("new", "x\n")
        asked = {"path": str(lair.repository)}
        for tool, arguments in (("git_diff", {"commit": "HEAD~1"}), ("git_show", {}), ("git_status", {})):
            assert "secret" not in await at.text(tool, **asked, **arguments), tool
        for tool in ("git_blame", "git_show"):
            await at.refused("denied", tool, path=f"{lair.repository}/secret.key")
        text = await at.text("git_commit", message="m", paths=[str(lair.repository)])
        assert "[2 changes left out, hidden by a rule of the operator]" in text
        assert lair.git("show", "--format=", "--name-only", "HEAD") == "new\n"


async def test_a_clean_worktree_is_removed_with_its_branch_unless_the_user_locked_it(at: Bench) -> None:
    id_ = await at.enter()
    at.lair.git("worktree", "lock", str(at.folder / "x"))
    assert "locked" in await at.refused("conflict", "ExitWorktree", id=id_, action="remove")
    assert (at.folder / "x/file.txt").exists()
    at.lair.git("worktree", "unlock", str(at.folder / "x"))
    text = await at.leave(id_, action="remove")
    assert text == "The worktree x was removed. The branch worktree-x is gone, it had no commits."
    assert at.lair.git("branch", "--list", "worktree-*") == ""
    assert at.lair.git("worktree", "list", "--porcelain").count("worktree ") == 1
    assert not (at.lair.repository / ".git/worktrees").exists()
    assert {path.name for path in at.folder.iterdir()} == {".gitignore"}
    await at.enter()


WORK = (
    (
        "echo x > new; mkdir d; echo x > d/deep; echo x >> file.txt; git mv deep/inner.txt g",
        "git reset -q --hard; rm -r new d",
        *("new (not committed)", "d/deep (not committed)", "file.txt (not committed)", "g (not committed)"),
    ),
    ("rm file.txt", "git checkout -q file.txt", "file.txt (not committed)"),
    ("git checkout -q --detach && git commit -qm o --allow-empty", "git checkout -q worktree-x", "commit "),
    ("mv .git ../kept", "mv ../kept .git", "what lies in its folder"),
    ("cp .git ../kept; echo gitdir: /nowhere > .git", "mv ../kept .git", "what lies in its folder"),
    ("git commit -qam m --allow-empty", "true", "commit "),
)
"""Work, and how it goes again without ExitWorktree, which names it."""


async def test_work_is_discarded_only_on_demand(at: Bench) -> None:
    id_, tree = await at.enter(), at.folder / "x"

    def run(script: str) -> None:
        subprocess.run(["sh", "-c", script], cwd=tree, env=dict(at.lair.environ), check=True)

    for script, undo, *named in WORK:
        run(script)
        said = await at.refused("conflict", "ExitWorktree", id=id_, action="remove")
        assert [one for one in named if one not in said] == [], script
        run(undo)
    assert (await at.text("bash", command="pwd")).strip() == str(tree)
    for script, named, branch in (("true", "commit ", "  worktree-x\n"), ("echo x > new", "new (not", "")):
        run(script)
        assert named in await at.leave(id_, action="remove", discard_changes=True)
        assert not tree.exists()
        assert at.lair.git("branch", "--list", "worktree-x") == branch
        if branch:
            at.lair.git("branch", "-qD", "worktree-x")
            id_ = await at.enter()


async def test_a_file_where_git_looks_no_further_is_work(at: Bench) -> None:
    """In the place of a file that was left out, and in the folder of a submodule."""
    at.lair.found(at.lair.folder / "library")
    at.lair.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "../library", "module")
    at.lair.write(".gitattributes", "*.odd filter=odd\n")
    at.lair.write("a.odd", "odd\n")
    at.lair.commit()
    at.lair.git("config", "filter.odd.clean", "cat")
    id_ = await at.enter()
    for place in ("a.odd", "module/new"):
        await at.text("write_file", path=place, content="work\n")
        assert "not committed" in await at.refused("conflict", "ExitWorktree", id=id_, action="remove")
        (at.folder / "x" / place).unlink()


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


async def test_where_the_folder_is_gone_nothing_is_written_elsewhere(at: Bench) -> None:
    id_ = await at.enter()
    shutil.rmtree(at.folder / "x")
    for tool, arguments in (
        ("write_file", {"path": "new", "content": "x"}),
        ("bash", {"command": "touch new"}),
        ("git_status", {}),
    ):
        assert id_ in await at.refused("denied", tool, **arguments)
    assert not list(at.root.rglob("new"))
    assert "was gone already" in await at.leave(id_)
    assert at.lair.git("worktree", "list", "--porcelain").count("worktree ") == 1
    await at.text("write_file", path="new", content="x")
    (at.root / "new").unlink()
    await at.enter()


async def test_the_next_server_finds_it_and_they_are_limited(
    tmp_path: Path, lair: Lair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MOST", 2)
    async with own_server(tmp_path, lair) as at:
        await at.leave(await at.enter("w0"))
        id_ = await at.enter("w1")
    async with own_server(tmp_path, lair) as at:
        assert await at.enter("w1") == id_
        await at.refused("not_found", "ExitWorktree", id="worktree_" + "0" * 32)
        await at.leave(id_)
        assert "w0, w1" in await at.enter_refused("invalid_input")
        await at.leave(await at.enter("w1"), action="remove")
        await at.enter()


def _worktrees(server: Dispatcher) -> CallWorktrees:
    service = granted(server, Capability.WORKTREES).worktrees
    assert isinstance(service, CallWorktrees)
    return service


async def test_an_isolated_agent_sees_its_worktree_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lair = clean(tmp_path / "outer")
    (tmp_path / "root").symlink_to(lair.repository)
    monkeypatch.setenv("HOME", lair.environ["HOME"])
    async with own_server(tmp_path, lair) as at:
        worktrees, agent, me = _worktrees(at.at), Person(owner="agent_1"), Person()
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
        assert "agent works" in await at.refused("conflict", "ExitWorktree", me, id=made.id, action="remove")
        await worktrees.end_isolation("agent_1", made)
        await at.text("ExitWorktree", me, id=made.id, action="remove", discard_changes=True)
        with pytest.raises(Conflict, match="branch"):
            await worktrees.isolate("agent_1")
