"""Commands do not get from git what a deny rule on reading hides; the server's own git tools go on working.

Real servers, as root and as an ordinary user, on many repositories at once: each is a row of a table.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.confinement import (
    AS_ROOT_IN_LONG,
    BY_USER,
    READ_ONLY,
    ROOT,
    WORKSPACE_WRITE,
    Scene,
    as_user,
    git,
    put,
    scene,
    serving,
)
from tests.support.process_layer import server_command

WORD = "the-word-that-is-hidden"
SECRET = "inner/secret.txt"
RULE, OTHER_RULE = "Read(secret.txt)", "Read(nothing-has-this-name/**)"


def put_word(path: Path, at: Path) -> None:
    """Write a file with the word of the row that `at` belongs to."""
    put(path, f"{WORD} of {at.parent.name}.")


def commit(at: Path) -> None:
    git(at, "add", "--all")
    git(at, "commit", "--quiet", "--allow-empty", "--message=one")


def clean(at: Path) -> None:
    git(at.parent, "init", "--quiet", "--initial-branch=main", str(at))
    put(at / "tracked", "tracked\n")
    commit(at)


def staged(at: Path) -> None:
    clean(at)
    put_word(at / SECRET, at)
    git(at, "add", "--all")


def committed(at: Path) -> None:
    staged(at)
    commit(at)


def untracked(at: Path) -> None:
    committed(at)
    git(at, "rm", "--quiet", "--cached", SECRET)
    git(at, "commit", "--quiet", "--message=two")


def stashed(at: Path) -> None:
    staged(at)
    git(at, "stash", "--quiet")
    git(at, "stash", "drop", "--quiet")


def renamed(at: Path) -> None:
    """The blob has a name that no rule hides as well."""
    clean(at)
    put_word(at / "open.txt", at)
    commit(at)
    (at / "inner").mkdir()
    git(at, "mv", "open.txt", SECRET)
    commit(at)
    git(at, "rm", "--quiet", SECRET)
    commit(at)


def merged(at: Path) -> None:
    """Only a merge brings it in."""
    clean(at)
    git(at, "checkout", "--quiet", "-b", "side")
    put(at / "more", "more\n")
    commit(at)
    git(at, "checkout", "--quiet", "main")
    put(at / "own", "own\n")
    commit(at)
    git(at, "merge", "--quiet", "--no-commit", "side")
    put_word(at / SECRET, at)
    commit(at)


def reset(at: Path) -> None:
    committed(at)
    git(at, "reset", "--quiet", "--hard", "HEAD~1")
    shutil.rmtree(at / ".git/logs")


def dangling(at: Path) -> None:
    clean(at)
    put_word(at / "x", at)
    git(at, "hash-object", "-w", "x")
    (at / "x").unlink()


def packed(at: Path) -> None:
    committed(at)
    git(at, "gc", "--quiet")


def tag_of_a_tree(at: Path) -> None:
    staged(at)
    git(at, "tag", "tree", git(at, "write-tree").strip())
    git(at, "rm", "--quiet", "--cached", SECRET)


def replaced(at: Path) -> None:
    committed(at)
    git(at, "replace", "HEAD", "HEAD~1")


def grafted(at: Path) -> None:
    committed(at)
    head, first = git(at, "rev-parse", "HEAD", "HEAD~1").split()
    put(at / ".git/info/grafts", f"{head} {first} {head}\n{first} {head}\n")


def configured(at: Path) -> None:
    """The repository has settings that would keep paths out of what git prints."""
    committed(at)
    for name in ("diff.relative", "core.sparseCheckout", "core.quotePath", "diff.ignoreSubmodules"):
        git(at, "config", name, "true")


def superproject(at: Path) -> None:
    clean(at)
    committed(at.parent / "module")
    source = str(at.parent / "module")
    git(at, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", source, "sub")
    shutil.rmtree(at.parent / "module")
    commit(at)


def borrower(at: Path) -> None:
    committed(at.parent / "lender")
    git(at.parent, "clone", "--quiet", "--shared", "lender", str(at))


def linked(at: Path) -> None:
    """A file staged in a linked work tree, in another folder."""
    clean(at)
    git(at, "worktree", "add", "--quiet", "../tree")
    put_word(at.parent / "tree" / SECRET, at)
    git(at.parent / "tree", "add", "--all")


def bare(at: Path) -> None:
    committed(at)
    git(at.parent, "clone", "--quiet", "--bare", str(at), "bare.git")
    shutil.rmtree(at)


def stored_elsewhere(at: Path) -> None:
    committed(at)
    shutil.move(at / ".git/objects", at.parent / "store")
    (at / ".git/objects").symlink_to("../../store")


HIDING = (
    *(staged, committed, untracked, stashed, renamed, merged, reset, dangling, packed, tag_of_a_tree),
    *(replaced, grafted, configured, superproject, borrower, linked, bare, stored_elsewhere),
)
UNKNOWN = (dangling, tag_of_a_tree, grafted, superproject, borrower, stored_elsewhere)
"""Nobody can tell what paths these hold."""

READS = """
here=$PWD
for place in $(cat repositories); do
  cd $here/$place
  git log -p --all --reflog; git show HEAD:inner/secret.txt; git show :inner/secret.txt; git archive HEAD
  git clone -q . /tmp/c; git checkout-index --all --prefix=/tmp/i/; cat /tmp/[ci]/inner/*; rm -rf /tmp/[ci]
  git cat-file --batch-all-objects --batch
done 2>/dev/null
cd $here
export GIT_OBJECT_DIRECTORY=$here/stored_elsewhere/store
git --git-dir=clean/one/.git cat-file --batch-all-objects --batch 2>&1
"""
"""What a command may try in each repository. It runs in the root, which is itself in no repository."""


@pytest.fixture(scope="module", params=AS_ROOT_IN_LONG)
def place(request: pytest.FixtureRequest) -> Generator[Scene]:
    """A root with a repository for each row, and with one that has nothing to hide, with a linked work tree
    and a bare clone."""
    with scene(request.param) as made:
        shutil.rmtree(made.root)
        for build in (*HIDING, clean):
            (made.root / build.__name__).mkdir(parents=True)
            build(made.root / build.__name__ / "one")
        git(made.root / "clean/one", "worktree", "add", "--quiet", "../tree")
        git(made.root / "clean", "clone", "--quiet", "--bare", "one", "bare.git")
        for path in made.root.rglob("inner"):
            if path.is_dir() and ".git" not in path.parts:
                shutil.rmtree(path)
        found = (path.parent for path in made.root.rglob(".git"))
        names = [str(path.relative_to(made.root)) for path in (*found, *made.root.rglob("bare.git"))]
        put(made.root / "repositories", "\n".join(sorted(names)))
        made.own()
        yield made


def with_rule(made: Scene, rule: str) -> tuple[str, ...]:
    """The flags of a server with this deny rule."""
    config = put(made.base / "run/config.toml", f"[rules]\ndeny = ['{rule}']\n")
    made.own()
    return "--config", str(config)


def test_commands_get_nothing_from_a_repository_that_holds_what_a_rule_hides(place: Scene) -> None:
    with serving(place, WORKSPACE_WRITE, *with_rule(place, RULE)) as server:
        server.bash(f"({READS}) >/tmp/read")
        assert "+tracked" in server.bash("cat /tmp/read | tr -d '\\0'")
        assert "0" in server.bash(f"grep -ac '{WORD}' /tmp/read; true").split()
        said = server.bash("cat */*/.git/HEAD clean/bare.git/HEAD bare/bare.git/HEAD; true")
        # Only the two clean ones are there: a work tree's `.git` is a file.
        assert said.count("ref: refs/heads/main") == 2, said
        for name in ("clean/one", "clean/tree", "clean/bare.git"):
            assert "+tracked" in server.bash(f"git -C {name} log -p"), name
        # The server's own tools check paths.
        said = server.call("git_log", path="untracked/one").text
        assert "two" in said
        assert WORD not in server.call("git_show", path="untracked/one", revision="HEAD~1").text


def test_the_same_commands_read_it_without_a_rule_and_with_one_that_matches_nothing(place: Scene) -> None:
    with serving(place, READ_ONLY) as server:
        server.bash(f"({READS}) >/tmp/read")
        said = server.bash(f"grep -aoh '{WORD} of [a-z_]*' /tmp/read | sort -u").split()
        assert {build.__name__ for build in HIDING} <= set(said)
    # A rule comes with a new start. This one hides what nobody can tell the paths of.
    with serving(place, READ_ONLY, *with_rule(place, OTHER_RULE)) as server:
        said = server.bash("ls -d */one/.git/HEAD */bare.git/HEAD").split()
        assert not {f"{build.__name__}/one/.git/HEAD" for build in UNKNOWN} & set(said)
        rest = {build.__name__ for build in HIDING} - {build.__name__ for build in UNKNOWN}
        assert rest <= {path.partition("/")[0] for path in said}
        assert WORD in server.bash("cd committed/one && git log -p")


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_a_repository_is_examined_again_when_it_changes(user: str) -> None:
    with scene(user) as made, serving(made, WORKSPACE_WRITE, *with_rule(made, RULE)) as server:

        def shown() -> list[bool]:
            log = "git log -p --all"
            task = server.start(log)
            job = server.call("TaskOutput", task_id=task, offset=0, until="end", wait_ms=20_000)
            session = server.call("REPL", language="shell", code=log, session="new")
            return ["+tracked" in text for text in (server.bash(log), job.text, session.text)]

        # A blob that loses its path while the server watches is known.
        server.bash("echo a >new && git add new")
        server.bash("echo b >new && git add new && git commit -qm three")
        assert shown() == [True] * 3
        put(made.root / SECRET, WORD)
        git(made.root, "add", SECRET)
        made.own()
        assert shown() == [False] * 3
        said = server.bash("git log")
        assert f"the rule {RULE} hides {made.root}/{SECRET}" in said
        git(made.root, "rm", "--quiet", "--cached", SECRET)
        made.own()
        assert shown() == [False] * 3
        git(made.root, "gc", "--quiet", "--prune=now")
        made.own()
        assert shown() == [True] * 3


@pytest.mark.parametrize("place", BY_USER[-1:], indirect=True)
def test_a_repository_around_the_root_or_outside_is_hidden(place: Scene) -> None:
    around = place.base / "around"
    clean(around)
    put(around / "root/secret.txt", WORD)
    commit(around)
    git(around, "worktree", "add", "--quiet", "../root-of-a-tree")
    place.own()
    for root in (around / "root", place.base / "root-of-a-tree"):
        with serving(place, READ_ONLY, *with_rule(place, RULE), roots=[root]) as server:
            said = server.bash(f"git log -p; git -C {around} log -p; git --git-dir={around}/.git log -p")
        assert WORD not in said
        assert "outside" in said or "above a root" in said


@pytest.mark.parametrize("place", BY_USER[-1:], indirect=True)
def test_doctor_and_the_log_of_the_start_name_rule_and_file(place: Scene) -> None:
    root, flags = place.root / "committed", with_rule(place, RULE)
    finding = f"the rule {RULE} hides {root}/one/{SECRET}"
    arguments = ("doctor", "--root", str(root), "--state-dir", str(place.state), *flags)
    done = subprocess.run(
        [*as_user(place), *server_command(), *arguments], cwd=ROOT, capture_output=True, encoding="utf-8",
        env={**place.environment, "COLUMNS": "500"}, timeout=60, check=False,
    )  # fmt: skip
    assert finding in done.stdout
    # No command makes the server look.
    with serving(place, READ_ONLY, *flags, roots=[root]) as server:
        log, deadline = server.client._log.fileno(), time.monotonic() + 20
        while finding not in (said := os.pread(log, 4096, 0).decode()) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert finding in said
