"""git_push: to a bare repository on this disk and over HTTP, and what a hostile repository cannot do."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.executables import HostExecutables
from tests.git.hostile_git import GIT, Lair
from tests.support.cases import collected
from tests.support.workbench import Person
from tests.support.workshop import names, workshop
from tests.web.web import Reply, site

FOUND = HostExecutables(git=GIT)
FULL, WRITE = Permission.DANGER_FULL_ACCESS, Permission.WORKSPACE_WRITE


@pytest.fixture
def bare(folder: Path) -> Path:
    return folder / "bare"


@pytest.fixture
def lair(rooted: Lair, bare: Path) -> Lair:
    """A repository in the root, with a bare one outside as its remote."""
    rooted.git("init", "-q", "--bare", str(bare))
    rooted.git("remote", "add", "origin", str(bare))
    rooted.git("push", "-q", "origin", "main")
    rooted.commit()
    return rooted


async def push(server: Dispatcher, person: Person | None = None, **arguments: Any) -> Result:
    with anyio.fail_after(60):
        at = {"path": "repository", **arguments}
        return await server.call("git_push", at, person or Person(says=True))


def head(lair: Lair, bare: Path, branch: str = "main") -> str:
    return lair.git("rev-parse", "--verify", "--quiet", branch, cwd=bare).strip()


async def test_a_push_shows_remote_branch_and_commits_and_needs_a_yes(
    server: Dispatcher, lair: Lair, bare: Path
) -> None:
    no, yes = Person(), Person(says=True)
    before, commit = head(lair, bare), head(lair, lair.repository)
    refused = await push(server, no)
    assert refused.error == "denied"
    assert head(lair, bare) == before
    for part in (f"To origin: {bare}", "Branch main", commit, before[:12], f"{commit[:7]} more"):
        assert part in no.asked[0]
    assert "first" not in no.asked[0].split("Branch main")[1]
    result = await push(server, yes)
    assert result.text == f"Pushed to origin, branch main: 1 commit up to {commit}, after {before[:12]}."
    assert head(lair, bare) == commit
    assert lair.git("rev-parse", "origin/main").strip() == commit
    assert (await push(server, yes)).error == "conflict"
    lair.branch("side", {"new": "x"})
    assert "on a branch that is new there" not in yes.asked[0]
    assert (await push(server, yes, branch="side")).error is None
    assert "on a branch that is new there" in yes.asked[-1]
    assert head(lair, bare, "side") == lair.git("rev-parse", "side").strip()


async def test_only_the_commits_that_were_shown_are_pushed_and_nothing_is_overwritten(
    server: Dispatcher, lair: Lair, bare: Path
) -> None:
    shown = head(lair, lair.repository)

    class Late(Person):
        async def ask(self, question: str) -> bool:
            lair.write("late", "x")
            lair.commit()
            return True

    assert (await push(server, Late())).error is None
    assert head(lair, bare) == shown
    # A forged record of what the remote has would leave commits out of the question.
    lair.git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert (await push(server)).error == "conflict"
    lair.write("after", "x")
    lair.commit()
    assert (await push(server)).error == "conflict"
    assert head(lair, bare) == shown
    lair.git("update-ref", "refs/remotes/origin/main", shown)
    lair.git("reset", "-q", "--hard", f"{shown}~1")
    lair.write("other", "x")
    lair.commit()
    assert (await push(server)).error == "conflict"
    assert head(lair, bare) == shown


async def test_a_forged_history_is_neither_shown_nor_pushed(
    server: Dispatcher, lair: Lair, bare: Path
) -> None:
    before = head(lair, bare)
    lair.git("checkout", "-q", "--orphan", "other")
    lair.commit()
    lair.git("branch", "-qf", "main")
    grafts = lair.repository / ".git/info/grafts"
    grafts.parent.mkdir(exist_ok=True)
    grafts.write_text(f"{head(lair, lair.repository)} {before}\n", encoding="utf-8")
    refused = await push(server, branch="main")
    assert refused.error == "conflict"
    assert "grafts" in refused.text
    grafts.unlink()
    assert "overwritten" in (await push(server, branch="main")).text
    assert head(lair, bare) == before


async def test_no_argument_or_address_reaches_elsewhere(server: Dispatcher, lair: Lair, bare: Path) -> None:
    before, yes = head(lair, bare), Person(says=True)
    inner = lair.folder / "inner"
    lair.git("init", "-q", "--bare", str(inner))
    (lair.folder / "link").symlink_to(inner)
    addresses = {
        "in-a-root": str(inner),
        "link": str(lair.folder / "link"),
        "file-url": f"file://{lair.folder}/%69nner",
        "program": f"ext::{lair.evil} %S",
        "option": f"--receive-pack={lair.evil}",
        "host": f"ssh://-oProxyCommand={lair.evil}/x",
        "missing": str(bare.parent / "missing"),
    }
    for name, address in addresses.items():
        lair.git("config", f"remote.{name}.url", address)
    lair.git("config", "submodule.sub.url", str(bare))
    lair.git("config", "--add", "remote.two.url", "https://localhost/a")
    lair.git("config", "--add", "remote.two.url", "https://localhost/b")
    with collected() as case:
        for arguments, error in (
            *(({"remote": name}, "denied") for name in addresses),
            ({"remote": "none"}, "not_found"),
            ({"remote": "sub"}, "not_found"),
            ({"remote": "two"}, "invalid_input"),
            ({"branch": "none"}, "not_found"),
            *(({"remote": one}, "invalid_input") for one in ("--mirror", "../bare", "https://localhost/a")),
            *(({"branch": one}, "invalid_input") for one in ("+main", "-f", "main:other")),
            ({"force": True}, "invalid_input"),
        ):
            with case(str(arguments)):
                assert (await push(server, yes, **arguments)).error == error
    assert yes.asked == []
    assert (head(lair, bare), lair.marker.exists()) == (before, False)


HOSTILE = (
    "core.sshCommand {evil}",
    "core.hooksPath {hooks}",
    "core.fsmonitor {evil}",
    "core.alternateRefsCommand {evil}",
    "remote.origin.receivepack {evil}",
    "remote.over-ssh.receivepack {evil}",
    "credential.helper !{evil}",
    "core.askPass {evil}",
    "core.gitProxy {evil}",
    "gpg.program {evil}",
    "push.gpgSign true",
)


async def test_no_program_of_the_repository_runs_and_plain_git_runs_them(
    server: Dispatcher, lair: Lair, bare: Path
) -> None:
    hooks = lair.folder / "hooks"
    hooks.mkdir()
    for hook in ("pre-push", "reference-transaction"):
        (hooks / hook).symlink_to(lair.evil)
    with http_remote(bare) as url:
        remotes = {"origin": str(bare), "over-ssh": "ssh://localhost:9/x", "over-http": url}
        for name, address in remotes.items():
            lair.git("config", f"remote.{name}.url", address)
            lair.git("update-ref", f"refs/remotes/{name}/main", "HEAD~1")
        for setting in HOSTILE:
            name, _, value = setting.format(evil=lair.evil, hooks=hooks).partition(" ")
            lair.git("config", name, value)
        lair.git("config", "url.ext::sh -c touch% x .insteadOf", "ssh://never")
        lair.git("config", f"url.{bare.parent / 'other'}.pushInsteadOf", str(bare))
        results = {name: (await push(server, remote=name)).error for name in remotes}
        assert not lair.marker.exists()
        assert results["origin"] is None
        assert results["over-ssh"] in ("unavailable", "denied")
        assert results["over-http"] == "denied"
        assert head(lair, bare) == head(lair, lair.repository)
        for name in remotes:
            lair.marker.unlink(missing_ok=True)
            command = [GIT, "push", name, "main:again"]
            subprocess.run(command, cwd=lair.repository, env=lair.environ, check=False, timeout=30)
            assert lair.marker.exists(), name


@contextmanager
def http_remote(bare: Path) -> Generator[str]:
    """The address of git's own server over HTTP, which asks for the password `secret`."""

    def backend(reply: Reply) -> None:
        if reply.asked.headers.get("authorization") != "Basic bjpzZWNyZXQ=":
            return reply.say(status=401, headers={"WWW-Authenticate": 'Basic realm="git"'})
        path, _, query = reply.path.partition("?")
        environ = {
            **os.environ, "GIT_PROJECT_ROOT": str(bare.parent), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": reply.command, "REMOTE_USER": "n",
            "CONTENT_TYPE": reply.asked.headers.get("content-type", ""),
            "HTTP_CONTENT_ENCODING": reply.asked.headers.get("content-encoding", ""),
        }  # fmt: skip
        command, given = [GIT, "http-backend"], reply.asked.body
        answer = subprocess.run(command, input=given, env=environ, capture_output=True, check=True)
        head, _, content = answer.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        status, kind = headers.pop("Status", "200"), headers.pop("Content-Type")
        return reply.say(content, status=int(status[:3]), kind=kind, headers=headers)

    with site(other=backend) as made:
        yield f"{made.url}/{bare.name}"


async def test_over_http_the_credentials_of_the_user_are_used_and_no_others(
    server: Dispatcher, lair: Lair, bare: Path
) -> None:
    with http_remote(bare) as url:
        lair.git("config", "remote.origin.url", url.replace("://", "://n:wrong@"))
        person = Person(says=True)
        wrong = await push(server, person)
        assert wrong.error == "denied"
        assert "wrong" not in wrong.text + person.asked[0]
        lair.git("config", "remote.origin.url", url)
        stored = Path(lair.environ["HOME"]) / ".git-credentials"
        stored.write_text(url.replace("://", "://n:secret@").rpartition("/")[0] + "\n", encoding="utf-8")
        lair.git("config", "--global", "credential.helper", "store")
        assert (await push(server)).error is None
    assert head(lair, bare) == head(lair, lair.repository)


async def test_ssh_is_the_one_of_the_user_and_finds_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    lair, seen, ssh = Lair(tmp_path / "root"), tmp_path / "seen", tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$SSH_AUTH_SOCK $@" > {seen}\nexit 255\n', encoding="utf-8")
    ssh.chmod(0o755)
    lair.git("config", "--global", "core.sshCommand", str(ssh))
    lair.git("remote", "add", "origin", "git@localhost:a/b")
    monkeypatch.setenv("HOME", lair.environ["HOME"])
    monkeypatch.setenv("SSH_AUTH_SOCK", "/the/agent")
    async with workshop(tmp_path, found=FOUND) as at:
        assert (await push(at)).error == "unavailable"
        assert seen.read_text(encoding="utf-8").startswith("/the/agent ")
        printed = await at.call("bash", {"command": "echo agent: $SSH_AUTH_SOCK"}, Person())
    assert "/the/agent" not in printed.text


async def test_a_server_of_a_lower_mode_offers_no_push(server: Dispatcher) -> None:
    low = replace(server, policy=replace(server.policy, ceiling=WRITE))
    assert "git_push" in names(server)
    assert "git_push" not in names(low)
    assert "danger-full-access" in (await push(low)).text
