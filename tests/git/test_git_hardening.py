"""git on a hostile repository: nothing of the repository's runs, nothing changes, no word is an option."""

import os
import shutil
import signal
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.errors import Denied, InvalidInput, NotFound, TimedOut, ToolError, Unavailable
from mcp_toolserver.runtime.git.allowed_commands import (
    CHANGES,
    FORMS,
    GitInvocation,
    build_argv,
    check_revision,
    pathspec_input,
)
from mcp_toolserver.runtime.git.hardening import MAX_NAMED, environment, helper, parse_config
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.sandbox.broker.messages import Program, decode, encode
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, Helper, SandboxPlan, plan_for
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, SandboxSpec
from tests.git.hostile_git import GIT, Asked, Lair, asker, asking, user_environment
from tests.git.served import PROGRAMS
from tests.support.processes import FULL, broker
from tests.support.snapshot import snapshot


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A folder for one repository after the other, and a broker whose user has the home there."""

    folder: Path
    broker: Broker

    def lair(self) -> tuple[Lair, Asked]:
        """A new repository in the place of the last one, and our git, which remembers nothing of that."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        made = Lair(self.folder)
        return made, asker(made, self.broker)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Generator[Ground]:
    folder = tmp_path_factory.mktemp("ground")
    with broker(FULL, helper(GIT), environ=user_environment(folder / "home")) as started:
        yield Ground(folder=folder, broker=started)


@pytest.fixture
def at(ground: Ground) -> tuple[Lair, Asked]:
    return ground.lair()


@pytest.fixture
def lair(at: tuple[Lair, Asked]) -> Lair:
    return at[0]


@pytest.fixture
def ask(at: tuple[Lair, Asked]) -> Asked:
    return at[1]


def refuses(check: Callable[[Any], object], given: Any) -> bool:
    """Whether this is invalid input."""
    try:
        check(given)
    except InvalidInput:
        return True
    return False


build_changing_argv = partial(build_argv, changing=True)

Plant = Callable[[Lair], None]

ATTRIBUTES = ".gitattributes"
FILTERED = {ATTRIBUTES: "*.txt filter=odd\n"}
SHOWN = {ATTRIBUTES: "*.txt diff=odd\n"}


def planting(*settings: str, **files: str) -> Plant:
    """Puts settings into the configuration, where {evil} is the program, and files into the work tree."""

    def plant(lair: Lair) -> None:
        for name, content in files.items():
            lair.write(name, content.replace("{evil}", str(lair.evil)))
        lair.config(*settings)
        stale(lair)

    return plant


def stale(lair: Lair) -> None:
    """Make git think that a file may have changed."""
    os.utime(lair.repository / "deep/inner.txt", (1, 1))


def hooks(lair: Lair) -> None:
    (lair.repository / ".git/hooks/post-index-change").symlink_to(lair.evil)
    stale(lair)


def hooks_path(lair: Lair) -> None:
    planting("core.hooksPath my-hooks", **{"my-hooks/post-index-change": "#!/bin/sh\nexec {evil}\n"})(lair)
    (lair.repository / "my-hooks/post-index-change").chmod(0o755)


external_diff = planting("diff.external {evil}")
textconv = planting("diff.odd.textconv {evil}", "diff.odd.cachetextconv true", **SHOWN)


def user_filter(lair: Lair) -> None:
    """The program is the user's, but the repository decides what it is fed."""
    planting(**FILTERED)(lair)
    lair.git("config", "--global", "filter.odd.clean", str(lair.evil))


def signed_commit(lair: Lair) -> None:
    body = lair.git("cat-file", "-p", "HEAD")
    head, _, message = body.partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n AAAA\n -----END PGP SIGNATURE-----"
    (lair.folder / "commit").write_text(f"{head}\n{signature}\n\n{message}", encoding="utf-8")
    made = lair.git("hash-object", "-t", "commit", "-w", str(lair.folder / "commit")).strip()
    lair.git("update-ref", "refs/heads/main", made)
    lair.config("gpg.program {evil}", "log.showSignature true")


def submodule(lair: Lair) -> None:
    """A submodule is looked into by a git of its own, which does not know our settings."""
    lair.found(lair.folder / "library")
    lair.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "../library", "module")
    lair.git("commit", "-qm", "submodule")
    lair.config("submodule.module.ignore none", "diff.submodule diff", "submodule.recurse true")
    module = lair.repository / "module"
    (module / "file.txt").write_text("other\n", encoding="utf-8")
    lair.git("commit", "-qam", "second", cwd=module)
    lair.config("core.fsmonitor {evil}", "core.fsmonitorHookVersion 1", cwd=module)


def promised(lair: Lair) -> None:
    """A file that is not here, and a program that would fetch it."""
    blob = lair.git("rev-parse", "HEAD:file.txt").strip()
    (lair.repository / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    lair.config(
        "remote.origin.url ext::{evil}",
        "remote.origin.promisor true",
        "extensions.partialClone origin",
        "core.repositoryFormatVersion 1",
        "protocol.ext.allow always",
    )


MONITOR = "[core]\nfsmonitor = {evil}\n"
FILTER = '[filter "odd"]\nclean = {evil}\n'

READS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "fsmonitor": (
        planting("core.fsmonitor {evil}", "core.fsmonitorHookVersion 1"),
        ("status", "ls-files --others"),
    ),
    "hooks": (hooks, ("diff",)),
    "hooks path": (hooks_path, ("status",)),
    "external diff": (external_diff, ("diff",)),
    "diff driver": (planting("diff.odd.command {evil}", **SHOWN), ("diff",)),
    "textconv": (textconv, ("diff", "show HEAD", "log --patch HEAD", "blame")),
    "GIT03": (
        planting(
            "filter.odd.clean {evil}", "filter.odd.smudge {evil}", "filter.odd.required true", **FILTERED
        ),
        ("status", "cat-file --filters HEAD:file.txt"),
    ),
    "GIT03-process": (
        planting("filter.odd.process {evil}", **{".git/info/attributes": FILTERED[ATTRIBUTES]}),
        ("diff",),
    ),
    "GIT03-odd-name": (
        planting("filter.a=b.c.clean {evil}", **{ATTRIBUTES: "*.txt filter=a=b.c\n"}),
        ("diff",),
    ),
    "GIT03-of-the-user": (user_filter, ("diff",)),
    "work tree's configuration": (
        planting("extensions.worktreeConfig true", **FILTERED, **{".git/config.worktree": FILTER}),
        ("diff",),
    ),
    "included": (
        planting("include.path ../settings.inc", **FILTERED, **{"settings.inc": MONITOR + FILTER}),
        ("diff",),
    ),
    "included on a condition": (
        planting("includeIf.onbranch:main.path ../settings.inc", **{"settings.inc": MONITOR}),
        ("status",),
    ),
    "signature": (signed_commit, ("log HEAD", "show --format=%G? HEAD")),
    "GIT14": (submodule, ("status", "diff")),
}


async def test_a_program_that_a_repository_names_is_not_run(
    ground: Ground, subtests: pytest.Subtests
) -> None:
    for name, command in ((name, command) for name, (_, commands) in READS.items() for command in commands):
        with subtests.test(f"{name}: {command}"):
            lair, ask = ground.lair()
            READS[name][0](lair)
            subcommand, *words = command.split(" ")
            options = [word for word in words if word.startswith("-")]
            revisions = [word for word in words if word not in options]
            paths = ("file.txt",) if subcommand == "blame" else ()
            assert lair.springs(subcommand, *words, *paths), "the attack is not one"
            stale(lair)
            answer = await ask(subcommand, *options, revisions=revisions, paths=paths)
            assert not lair.ran()
            assert answer.status == 0, answer.stderr


async def test_an_object_that_is_missing_is_not_fetched(lair: Lair, ask: Asked) -> None:
    """GIT10: the repository names a transport that is a program, and allows it."""
    promised(lair)
    assert lair.springs("cat-file", "-p", "HEAD:file.txt")
    answer = await ask("cat-file", "-p", revisions=["HEAD:file.txt"])
    assert not lair.ran()
    assert answer.status != 0


FOR_CHANGES = (
    # What only the user's own configuration may name is not overridden.
    *(name for name in PROGRAMS if name != "uploadpack.packObjectsHook"),
    *("core.gitProxy", "credential.https://example.invalid.helper", "interactive.diffFilter", "pager.log"),
    *("gpg.x509.program", "gpg.ssh.defaultKeyCommand", "submodule.module.update", "core.hooksPath"),
    *("core.alternateRefsCommand", "trailer.odd.cmd", "remote.origin.uploadpack"),
    "remote.origin.receivepack",
)


def test_no_setting_that_names_a_program_holds(lair: Lair) -> None:
    """The second line: what would read these is refused already. GIT08, GIT11, GIT13, GIT14, GIT19, GIT21."""
    lair.config(*(f"{name} {{evil}}" for name in FOR_CHANGES), "protocol.allow always")
    asked = ("config", "--get-regexp", ".")
    assert lair.naive(*asked).stdout.decode().count(str(lair.evil)) == len(FOR_CHANGES)
    pairs = (line.partition(" ") for line in lair.hardened(*asked).stdout.decode().splitlines())
    last = {name: value for name, _, value in pairs}
    assert [name for name, value in last.items() if str(lair.evil) in value] == []
    assert (last["protocol.allow"], last["submodule.module.update"]) == ("never", "none")


async def test_a_work_tree_elsewhere_is_refused(lair: Lair, ask: Asked) -> None:
    """GIT15."""
    private = lair.folder / "private"
    private.mkdir()
    (private / "secret.txt").write_text("secret\n", encoding="utf-8")
    lair.config(f"core.worktree {private}")
    assert b"secret.txt" in lair.naive("status").stdout
    with pytest.raises(Denied):
        await ask("status")


async def test_a_bare_repository_in_the_work_tree_is_not_read(lair: Lair, ask: Asked) -> None:
    """GIT17: it looks like any folder, and its configuration is a file like any other."""
    bare = lair.repository / "docs"
    lair.git("clone", "-q", "--bare", ".", str(bare))
    lair.config("core.bare false", "core.worktree .", cwd=bare)
    lair.config("core.fsmonitor {evil}", "core.fsmonitorHookVersion 1", cwd=bare)
    assert lair.springs("status", cwd=bare)
    with pytest.raises(ToolError) as refusal:
        await ask("status", cwd=bare)
    assert refusal.value.kind == "not_found"
    assert not lair.ran()


async def test_a_repository_of_somebody_else_is_not_read(lair: Lair, ask: Asked) -> None:
    """GIT24: git takes this variable of its own tests for another owner; we add no exception."""
    somebody = lair.folder / "git"
    somebody.write_text(f'#!/bin/sh\nGIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {GIT} "$@"\n', encoding="utf-8")
    somebody.chmod(0o755)
    assert lair.naive("status", environ={"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}).returncode == 128
    assert (await ask("status")).status == 0
    async with asking(lair, program=str(somebody)) as other:
        with pytest.raises(NotFound):
            await other("status")


async def test_variables_for_git_in_the_server_s_environment_are_dropped(lair: Lair) -> None:
    """GIT23."""
    other = lair.folder / "other"
    lair.found(other)
    hostile = {
        "GIT_DIR": f"{other}/.git",
        "GIT_WORK_TREE": str(other),
        "GIT_EXTERNAL_DIFF": str(lair.evil),
        "GIT_SSH_COMMAND": str(lair.evil),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(lair.evil),
        "GIT_TRACE": str(lair.folder / "trace"),
    }
    assert lair.naive("rev-parse", "--show-toplevel", environ=hostile).stdout == f"{other}\n".encode()
    apart = {name: value for name, value in hostile.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    lair.naive("diff", environ=apart)
    assert lair.ran()
    (lair.folder / "trace").unlink()
    async with asking(lair, environ=hostile) as ask:
        top = await ask("rev-parse", "--show-toplevel")
        assert top.stdout == f"{lair.repository}\n".encode()
        assert b"+two" in (await ask("diff")).stdout
    assert not lair.ran()
    assert not (lair.folder / "trace").exists()


async def test_a_file_that_cannot_be_included_is_not_quoted(lair: Lair, ask: Asked) -> None:
    """GIT18."""
    (lair.folder / "key").write_text("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n", encoding="utf-8")
    lair.config(f"include.path {lair.folder}/key")
    assert b"/key" in lair.naive("status").stderr
    with pytest.raises(ToolError) as refusal:
        await ask("status")
    assert not any(word in str(refusal.value) for word in ("PRIVATE", "c2Vj", str(lair.folder)))


async def test_a_file_of_the_repository_s_choice_is_not_quoted(ground: Ground) -> None:
    """GIT18, by settings that name a file whose words git repeats in its complaints."""
    for setting, words in (
        ("core.attributesFile", ("diff",)),
        ("blame.ignoreRevsFile", ("blame", "file.txt")),
    ):
        lair, ask = ground.lair()
        (lair.folder / "netrc").write_text("machine -hunter2!\n", encoding="utf-8")
        lair.config(f"{setting} {lair.folder}/netrc")
        assert b"hunter2" in lair.naive(*words).stderr
        answer = await ask(words[0], paths=["file.txt"])
        assert answer.status == 0
        assert b"hunter2" not in answer.stdout + answer.stderr


async def test_settings_of_the_user_still_hold(lair: Lair, ask: Asked) -> None:
    ignored = lair.folder / "ignored"
    ignored.write_text("*.tmp\n", encoding="utf-8")
    lair.write("a.tmp", "")
    lair.write("b.new", "")
    lair.git("config", "--global", "core.excludesFile", str(ignored))
    answer = await ask("status", "--porcelain")
    assert answer.stdout == b" M file.txt\n?? b.new\n"


async def test_asking_changes_nothing_in_the_repository(lair: Lair, ask: Asked) -> None:
    textconv(lair)
    lair.commit()
    lair.write("file.txt", "three\n")
    for _ in range(2):
        stale(lair)
        before = snapshot(lair.repository)
        lair.naive("diff")
        if snapshot(lair.repository) != before:
            break
    else:
        pytest.fail("git changes nothing by itself")
    stale(lair)
    before = snapshot(lair.repository)
    for subcommand in sorted(FORMS):
        options = {"cat-file": ("-p",), "rev-list": ("--count",), "check-attr": ("eol",)}.get(subcommand, ())
        needs = subcommand in ("cat-file", "ls-tree", "rev-list", "rev-parse", "log", "show")
        paths = ("file.txt",) if subcommand in ("blame", "check-attr") else ()
        answer = await ask(subcommand, *options, revisions=["HEAD"] if needs else [], paths=paths)
        assert answer.status == 0, (subcommand, answer.stderr)
    assert snapshot(lair.repository) == before


async def test_a_revision_that_is_an_option_is_refused(lair: Lair, ask: Asked) -> None:
    """GITOPT03."""
    external_diff(lair)
    lair.commit()
    assert lair.springs("show", "--ext-diff")
    with pytest.raises(InvalidInput):
        await ask("show", revisions=["--ext-diff"])
    with pytest.raises(InvalidInput):
        await ask("show", "--ext-diff")
    assert (await ask("show", revisions=["HEAD"])).status == 0
    assert not lair.ran()


async def test_a_path_is_taken_by_its_letters(lair: Lair, ask: Asked) -> None:
    """GITOPT08."""
    deep = lair.repository / "deep"
    for magic in (":(top)file.txt", ":/file.txt", ":!x", "*"):
        assert lair.naive("ls-files", "--", magic, cwd=deep).stdout
        assert (await ask("ls-files", paths=[magic], cwd=deep)).stdout == b"", magic
    assert (await ask("ls-files", paths=["inner.txt"], cwd=deep)).stdout == b"inner.txt\n"


async def test_two_files_outside_are_not_compared(lair: Lair, ask: Asked) -> None:
    """Given two paths outside of the repository, git compares them as `diff` does."""
    one, other = lair.folder / "one", lair.folder / "other"
    one.write_text("secret\n", encoding="utf-8")
    other.write_text("other\n", encoding="utf-8")
    assert b"-secret" in lair.naive("diff", "--", str(one), str(other)).stdout
    assert b"-secret" in lair.naive("diff", "--", "../one", "../other").stdout
    for pair in ((str(one), str(other)), ("../one", "../other"), ("deep/../../one", "../other")):
        with pytest.raises(InvalidInput):
            await ask("diff", paths=pair)


def test_what_names_a_revision_is_one_and_nothing_else_is() -> None:
    """GITOPT12."""
    names = (
        *("HEAD", "main", "HEAD~3^2", "main..side", "main...HEAD", "^main", "@{u}", "HEAD@{1}", "v1.0^{}"),
        *("@", "feature/größe", "HEAD:deep/inner.txt", "HEAD:a file.txt", "0123abc", "stash@{0}"),
    )
    assert [name for name in names if check_revision(name) != name] == []
    others = (
        *("HEAD:../../x", ":/first", "HEAD^{/first}", "main side", "HEAD:/etc/passwd", "", "-", "--all"),
        *("HEAD\n--all", "HEAD\0", "a" * 300, "$(evil)"),
    )
    assert [other for other in others if not refuses(check_revision, other)] == []


BUILDS = (
    *((build_argv, subcommand) for subcommand in sorted(FORMS)),
    *((build_changing_argv, subcommand) for subcommand in sorted(CHANGES)),
)


@given(st.sampled_from(BUILDS), st.text(max_size=20), st.text(max_size=20))
def test_every_word_of_a_caller_stands_where_no_option_does(
    building: tuple[Callable[[GitInvocation], tuple[str, ...]], str], rev: str, path: str
) -> None:
    build, subcommand = building
    options = len(build(GitInvocation(subcommand=subcommand)))
    for revisions, paths in (((rev,), ()), ((), (path,)), ((rev,), (path,))):
        try:
            words = build(GitInvocation(subcommand=subcommand, revisions=revisions, paths=paths))
        except InvalidInput:
            continue
        assert len(words) == options + len(revisions) + len(paths)
        # Only `worktree` takes a path before a revision.
        at = -1 - len(revisions) * (subcommand == "worktree")
        assert not paths or (words[at] == path and {"--end-of-options", "--"} & set(words[:at]))
        assert not any(word.startswith("-") for word in revisions)


def test_a_path_to_commit_is_below_the_work_tree() -> None:
    paths = ("", "/etc/passwd", "../x", "a/../../x", "a\0b")
    assert [path for path in paths if not refuses(pathspec_input, [path])] == []


async def test_a_git_that_does_not_answer_or_is_gone_is_reported(lair: Lair) -> None:
    for body, error in (
        ("exec sleep 60", TimedOut),
        (f"kill -{signal.SIGKILL} $$", NotFound),
        (None, Unavailable),
    ):
        broken = lair.folder / "git"
        broken.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        broken.chmod(0o755)
        if body is None:
            broken.unlink()
        async with asking(lair, program=str(broken)) as ask:
            with pytest.raises(error):
                await ask("status", timeout=0.5)


def test_a_configuration_built_to_overwhelm_is_refused() -> None:
    listing = b"".join(b"filter.%d.clean\nevil\0" % index for index in range(MAX_NAMED + 1))
    with pytest.raises(Denied):
        environment(listing)


def test_a_setting_without_a_value_is_one() -> None:
    assert list(parse_config(b"core.bare\0user.name\nme\nand you\0")) == [
        ("core.bare", ""),
        ("user.name", "me\nand you"),
    ]


def test_a_name_that_is_no_text_is_overridden_byte_by_byte(lair: Lair) -> None:
    with (lair.repository / ".git/config").open("ab") as file:
        file.write(b'[filter "\xff"]\nclean = ' + str(lair.evil).encode() + b"\n")
    with (lair.repository / ".gitattributes").open("wb") as file:
        file.write(b"*.txt filter=\xff\n")
    stale(lair)
    assert lair.springs("diff")
    stale(lair)
    lair.hardened("diff")
    assert not lair.ran()
    request = Program(argv=("/x",), timeout=1.0, environment=tuple(environment(b"filter.\xff.clean\nx\0")))
    assert decode(encode(request)) == request


def cannot_be_sent(request: Program) -> bool:
    """Whether the broker takes no such request."""
    try:
        decode(encode(request))
    except ValueError:
        return True
    return False


def test_a_helper_program_is_given_settings_for_git_and_no_other_variable() -> None:
    for variable in (
        *(("LD_PRELOAD", "/evil.so"), ("GIT_EXTERNAL_DIFF", "/evil"), ("GIT_CONFIG_GLOBAL", "/evil")),
        *(("GIT_CONFIG_KEY_0=x", "y"), ("GIT_CONFIG_COUNT", "1\0"), ("GIT_CONFIG_COUNT\n", "1")),
    ):
        assert cannot_be_sent(Program(argv=("/x",), timeout=1.0, environment=(variable,))), variable


WRITING = SandboxSpec(mode="workspace-write", roots=("/w", "/x"), home="/home", state="/state")
CONFINED = Proof(commands="bubblewrap", helpers="landlock", program="/bwrap")


def plan(
    *writes: str, mode: str = "workspace-write", proof: Proof = CONFINED, name: str = ".git"
) -> SandboxPlan | str:
    """What the broker makes of a request of git to write."""
    rules = BrokerPolicy(
        sandbox=replace(WRITING, mode=mode),
        environment={},
        helpers=(Helper(argv=("/git",), reach="system", writes=name),),
    )
    return plan_for(rules, proof, Program(argv=("/git", "x"), timeout=1.0, writes=writes))


def test_git_writes_nowhere_else() -> None:
    """ATTACK: a server that was taken over asks the broker for more."""
    for writes in (
        ("/w",),
        ("/w/.git/hooks",),
        ("/w/src",),
        ("/y/.git",),
        ("/wider/.git",),
        ("/w/.git", "/etc"),
    ):
        assert isinstance(plan(*writes), str), writes
    assert isinstance(plan("/w/.git", mode="read-only"), str)
    assert isinstance(plan("/w/.git", proof=Proof(commands="none", helpers="landlock")), str)
    assert isinstance(plan("/w/.git", name=""), str), "another program"


def test_a_folder_to_write_in_has_one_spelling() -> None:
    for place in ("w/.git", "/w/../y/.git", "/w/x/./.git", "//w/.git", "/w/.git/", "/w\0/.git"):
        assert cannot_be_sent(Program(argv=("/git",), timeout=1.0, writes=(place,))), place
