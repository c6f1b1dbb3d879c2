"""Commands do not get from git what a deny rule on reading hides; the server's own git tools go on working.

Real servers, as root and as an ordinary user, on many repositories at once: each is a row of a table.
"""

import os
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.cases import until
from tests.support.confinement import (
    AS_ROOT_IN_LONG,
    READ_ONLY,
    WORKSPACE_WRITE,
    Scene,
    Server,
    free,
    git,
    git_environment,
    put,
    scene,
    serving,
)
from tests.support.extent import IN_FULL

WORD = "the-word-that-is-hidden"
SECRET = "inner/secret.txt"
RULE, OTHER_RULE = "Read(secret.txt)", "Read(nothing-has-this-name/**)"


FUNCTIONS = f"""
S={SECRET}
commit() {{ git add --all; git commit --quiet --allow-empty --message=one; }}
clean() {{ git init --quiet --initial-branch=main $1; cd $1; echo tracked >tracked; commit; }}
hide() {{ mkdir -p $(dirname $1); printf '{WORD} of %s.' $ROW >$1; }}
staged() {{ clean $1; hide $S; git add --all; }}
committed() {{ staged $1; commit; }}
"""

HIDING = {
    "staged": "staged one",
    "committed": "committed one",
    "untracked": "committed one; git rm --quiet --cached $S; git commit --quiet --message=two",
    "stashed": "staged one; git stash --quiet; git stash drop --quiet",
    # The blob has a name that no rule hides as well.
    "renamed": "clean one; hide open.txt; commit; mkdir inner; git mv open.txt $S; commit; git rm -q $S;"
    " commit",
    "reset": "committed one; git reset --quiet --hard HEAD~1; rm -r .git/logs",
    "dangling": "clean one; hide x; : $(git hash-object -w x); rm x",
    "packed": "committed one; git gc --quiet",
    "grafted": "committed one; set -- $(git rev-parse HEAD HEAD~1); mkdir -p .git/info;"
    r" printf '%s %s %s\n%s %s\n' $1 $2 $1 $2 $1 >.git/info/grafts",
    "superproject": "committed module; cd ..; clean one;"
    " git -c protocol.file.allow=always submodule --quiet add $PWD/../module sub; rm -rf ../module; commit",
    "borrower": "committed lender; cd ..; git clone --quiet --shared lender one",
    # A file staged in a linked work tree, in another folder.
    "linked": "clean one; git worktree add --quiet ../tree; cd ../tree; hide $S; git add --all",
    "bare": "committed one; cd ..; git clone --quiet --bare one bare.git; rm -rf one",
    "stored_elsewhere": "committed one; mv .git/objects ../store; ln -s ../../store .git/objects",
}
MORE = {
    "tag_of_a_tree": "staged one; git tag tree $(git write-tree); git rm --quiet --cached $S",
    "replaced": "committed one; git replace HEAD HEAD~1",
    # The repository has settings that would keep paths out of what git prints.
    "configured": "committed one; for name in diff.relative core.sparseCheckout core.quotePath"
    " diff.ignoreSubmodules; do git config $name true; done",
    # Only a merge brings it in.
    "merged": "clean one; git checkout --quiet -b side; echo more >more; commit; git checkout --quiet main;"
    " echo own >own; commit; git merge --quiet --no-commit side; hide $S; commit",
}
HIDING |= MORE if IN_FULL else {}
CLEAN = "clean one; git worktree add --quiet ../tree; cd ..; git clone --quiet --bare one bare.git"
UNKNOWN = {"dangling", "tag_of_a_tree", "grafted", "superproject", "borrower", "stored_elsewhere"}
"""Nobody can tell what paths these hold."""


def build(folder: Path, script: str) -> None:
    """Run a script with `FUNCTIONS` in `folder`, which names the row of the table."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["sh", "-ec", FUNCTIONS + script], cwd=folder, env=git_environment(ROW=folder.name), check=True
    )


READS = """
here=$PWD
for place in $(cat repositories); do
  cd $here/$place
  git log -p --all --reflog; git show HEAD:inner/secret.txt; git show :inner/secret.txt; git archive HEAD
  git clone -q . $T/c; git checkout-index --all --prefix=$T/i/; cat $T/[ci]/inner/*; rm -rf $T/[ci]
  git cat-file --batch-all-objects --batch
done 2>/dev/null
cd $here
export GIT_OBJECT_DIRECTORY=$here/stored_elsewhere/store
git --git-dir=clean/one/.git cat-file --batch-all-objects --batch 2>&1
"""
"""What a command may try in each repository, with files in `$T`. It runs in the root, which is itself in no
repository."""


@pytest.fixture(scope="module", params=AS_ROOT_IN_LONG)
def place(request: pytest.FixtureRequest) -> Generator[Scene]:
    """A root with a repository for each row, and with one that has nothing to hide, with a linked work tree
    and a bare clone. Around two more roots, `around/root` and a work tree, lies another repository."""
    with scene(request.param) as made:
        shutil.rmtree(made.root)
        for name, script in {**HIDING, "clean": CLEAN}.items():
            build(made.root / name, script)
        for path in made.root.rglob("inner"):
            if path.is_dir() and ".git" not in path.parts:
                shutil.rmtree(path)
        found = (path.parent for path in made.root.rglob(".git"))
        names = [str(path.relative_to(made.root)) for path in (*found, *made.root.rglob("bare.git"))]
        put(made.root / "repositories", "\n".join(sorted(names)))
        secret = f"mkdir root; printf {WORD} >root/secret.txt; commit"
        build(made.base, f"clean around; {secret}; git worktree add --quiet ../root-of-a-tree")
        made.own()
        yield made


@pytest.fixture(scope="module")
def hiding(place: Scene) -> Generator[Server]:
    """A server with the rule."""
    roots = (place.root, place.base / "around/root", place.base / "root-of-a-tree")
    with serving(place, WORKSPACE_WRITE, *with_rule(place, RULE), roots=roots) as server:
        yield server


def with_rule(made: Scene, rule: str) -> tuple[str, ...]:
    """The flags of a server with this deny rule."""
    config = put(made.base / "run/config.toml", f"[rules]\ndeny = ['{rule}']\n")
    made.own()
    return "--config", str(config)


def test_a_repository_around_the_root_or_outside_is_hidden_and_the_log_of_the_start_names_rule_and_file(
    hiding: Server,
) -> None:
    place = hiding.scene
    finding = f"the rule {RULE} hides {place.root}/committed/one/{SECRET}"
    # No command makes the server look.
    log = hiding.client._log.fileno()
    until(lambda: finding in os.pread(log, 1 << 16, 0).decode())
    around = place.base / "around"
    for root in (around / "root", place.base / "root-of-a-tree"):
        said = hiding.bash(
            f"cd {root}; git log -p; git -C {around} log -p; git --git-dir={around}/.git log -p"
        )
        assert WORD not in said
        assert "outside" in said or "above a root" in said


@pytest.mark.rounds
def test_commands_get_nothing_from_a_repository_that_holds_what_a_rule_hides(hiding: Server) -> None:
    hiding.bash(f"T=/tmp; ({READS}) >/tmp/read")
    assert "+tracked" in hiding.bash("cat /tmp/read | tr -d '\\0'")
    assert "0" in hiding.bash(f"grep -ac '{WORD}' /tmp/read; true").split()
    said = hiding.bash("cat */*/.git/HEAD clean/bare.git/HEAD bare/bare.git/HEAD; true")
    # Only the two clean ones are there: a work tree's `.git` is a file.
    assert said.count("ref: refs/heads/main") == 2, said
    for name in ("clean/one", "clean/tree", "clean/bare.git"):
        assert "+tracked" in hiding.bash(f"git -C {name} log -p"), name
    # The server's own tools check paths.
    said = hiding.call("git_log", path="untracked/one").text
    assert "two" in said
    assert WORD not in hiding.call("git_show", path="untracked/one", revision="HEAD~1").text


def test_a_repository_is_examined_again_when_it_changes(hiding: Server) -> None:
    one = hiding.scene.root / "clean/one"
    # What belongs to the user already counts as changed if it is given to them again.
    own = Scene(base=one, user=hiding.scene.user).own
    log = f"git -C {one} log -p --all"

    def shown() -> bool:
        return "+tracked" in hiding.bash(log)

    def shown_elsewhere() -> list[bool]:
        job = hiding.call("TaskOutput", task_id=hiding.start(log), offset=0, until="end", wait_ms=20_000)
        session = hiding.call("REPL", language="shell", code=log, session="new")
        return ["+tracked" in text for text in (job.text, session.text)]

    # A blob that loses its path while the server watches is known.
    hiding.bash("cd clean/one && echo a >new && git add new")
    identity = "-c user.name=a -c user.email=a"
    hiding.bash(f"cd clean/one && echo b >new && git add new && git {identity} commit -qm three")
    assert shown()
    put(one / SECRET, WORD)
    git(one, "add", SECRET)
    own()
    assert not shown()
    assert shown_elsewhere() == [False, False]
    assert ".git is empty for commands: " in hiding.bash(log)
    git(one, "rm", "--quiet", "--cached", SECRET)
    own()
    assert not shown()
    git(one, "gc", "--quiet", "--prune=now")
    own()
    assert shown()
    assert shown_elsewhere() == [True, True]


@pytest.mark.rounds
def test_the_same_commands_read_it_without_a_sandbox_and_with_a_rule_that_matches_nothing(
    place: Scene,
) -> None:
    trusted = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'"
    said = free(place, f"{trusted}; T=$O; ({READS}) | grep -aoh '{WORD} of [a-z_]*' | sort -u")
    assert HIDING.keys() <= set(said.stdout.split())
    # A rule comes with a new start. This one hides what nobody can tell the paths of.
    names = sorted(HIDING.keys() if IN_FULL else HIDING.keys() & UNKNOWN | {"committed", "bare"})
    roots = [place.root / name for name in names]
    with serving(place, READ_ONLY, *with_rule(place, OTHER_RULE), roots=roots) as server:
        said = server.bash(
            f"cd ..; for name in {' '.join(names)}; do ls $name/one/.git/HEAD $name/bare.git/HEAD; done"
        )
        shown = {path.partition("/")[0] for path in said.splitlines() if path.endswith("/HEAD")}
        assert shown & set(names) == set(names) - UNKNOWN, said
        assert WORD in server.bash(f"cd {place.root}/committed/one && git log -p")
