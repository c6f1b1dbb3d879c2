"""The git tools of a real server in its sandbox, on repositories that want their programs run."""

import os
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from mcp_toolserver.runtime.git.executable import find_git
from tests.support.confinement import (
    BY_USER,
    READ_ONLY,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Server,
    changed,
    git,
    put,
    scene,
    serving,
)

ASKED = (
    ("git_status", {}),
    ("git_diff", {}),
    ("git_diff", {"commit": "HEAD~1"}),
    ("git_log", {}),
    ("git_show", {}),
    ("git_show", {"path": "tracked"}),
    ("git_blame", {"path": "tracked"}),
    ("repo_overview", {}),
)
SHOWS = {"git_status": " M ", "git_diff": "+and changed", "git_log": "second", "git_blame": "tracked"}


@pytest.fixture(params=BY_USER)
def place(request: pytest.FixtureRequest) -> Generator[Scene]:
    with scene(request.param) as made:
        yield made


@pytest.fixture
def anywhere() -> Generator[Scene]:
    """Where it makes no difference whose server it is."""
    with scene(USERS[0]) as made:
        yield made


def asked(server: Server, folder: str) -> None:
    """Every question about the repository in `folder`, each answered."""
    for tool, arguments in ASKED:
        path = f"{folder}/{arguments.get('path', '')}".rstrip("/")
        said = server.call(tool, **{**arguments, "path": path})
        assert not said.is_error, (tool, said.text)
        assert SHOWS.get(tool, "") in said.text


def planted(folder: Path) -> None:
    """Programs in every place where git looks for some while it reads."""
    put(folder / ".gitattributes", "* filter=odd diff=odd\n")
    put(folder / "more.inc", f"[core]\nfsmonitor = {folder}/evil.sh\n")
    shutil.copy(folder / "evil.sh", folder / ".git/hooks/post-index-change")
    for name in ("filter.odd.clean", "filter.odd.process", "diff.odd.textconv", "diff.odd.command"):
        git(folder, "config", name, f"{folder}/evil.sh")
    git(folder, "config", "include.path", "../more.inc")
    os.utime(folder / "tracked", (1, 1))


def traps(folder: Path) -> set[Path]:
    """Where programs have left their mark."""
    return set(folder.rglob("evil-ran"))


def naively(folder: Path, *words: str) -> None:
    """Git as anybody runs it, whoever the folder belongs to, and whatever comes of it."""
    subprocess.run(
        ["git", "-c", "safe.directory=*", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True,
        check=False,
        timeout=20,
    )


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_every_question_is_answered_and_nothing_runs_or_changes(mode: str, place: Scene) -> None:
    hostile = place.root / "hostile"
    planted(hostile)
    place.own()
    before = place.seen()
    with serving(place, mode) as server:
        tools = server.tools()
        for tool, _ in ASKED:
            hints = tools[tool]["annotations"]
            assert (hints["readOnlyHint"], hints["openWorldHint"]) == (True, False)
        for folder in ("hostile", "."):
            asked(server, folder)
    assert not changed(before, place.seen())
    assert not traps(place.base)
    naively(hostile, "status")
    assert traps(hostile), "the attack is not one"


def test_what_the_server_keeps_to_itself_is_hidden_from_git_too(place: Scene) -> None:
    """GIT22: objects borrowed from a place that is hidden in the sandbox are not there."""
    for folder in (place.state / "store", place.outside / "store"):
        git(place.root, "init", "--quiet", str(folder))
        put(folder / "borrowed", "borrowed\n")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message=borrowed", f"--author={folder.parent.name} <a@b>")
    heads = {
        folder: git(folder, "rev-parse", "HEAD").strip()
        for folder in (place.state / "store", place.outside / "store")
    }
    lines = "".join(f"{folder}/.git/objects\n" for folder in heads)
    put(place.root / ".git/objects/info/alternates", lines)
    place.own()
    with serving(place, READ_ONLY) as server:
        said = {folder: server.call("git_show", commit=head) for folder, head in heads.items()}
    assert "borrowed" in said[place.outside / "store"].text
    hidden = said[place.state / "store"]
    assert hidden.is_error
    assert "borrowed" not in hidden.text.replace("git_show", "")


def test_a_rule_of_the_operator_hides_a_file_from_git_too(anywhere: Scene) -> None:
    config = put(anywhere.base / "run/config.toml", '[rules]\ndeny = ["read_file(tracked)"]\n')
    anywhere.own()
    with serving(anywhere, READ_ONLY, "--config", str(config)) as server:
        for tool, arguments in (("git_diff", {"commit": "HEAD~1"}), ("git_show", {}), ("git_status", {})):
            said = server.call(tool, **arguments)
            assert not said.is_error, said.text
            assert "second" not in said.text.replace("\nsecond\n", "")
            assert "tracked" not in said.text
        for tool in ("git_blame", "git_show"):
            said = server.call(tool, path="tracked")
            assert said.is_error
            assert "hidden" in said.text


def test_without_git_the_tools_are_not_offered(anywhere: Scene) -> None:
    found = find_git(os.environ["PATH"].split(os.pathsep))
    assert found is not None
    with serving(anywhere, READ_ONLY, around=("env", f"PATH={anywhere.base}/run")) as server:
        assert "git_status" not in server.tools()
        said = server.call("git_status")
        assert said.is_error
        assert "no git was found" in said.text
        assert "grep_search" in server.tools()


def test_git_that_lies_in_a_root_is_not_run(anywhere: Scene) -> None:
    put(anywhere.root / "git", '#!/bin/sh\ntouch "$(dirname "$0")/evil-ran"\n').chmod(0o755)
    anywhere.own()
    path = f"{anywhere.root}:{os.environ['PATH']}"
    with serving(anywhere, READ_ONLY, environ={"PATH": path}) as server:
        assert "second" in server.call("git_log").text
    assert not traps(anywhere.base)
