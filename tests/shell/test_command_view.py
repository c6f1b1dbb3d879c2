"""What commands, sessions, language servers and jobs see and reach: sockets, deny rules, client roots.

Real servers, as root and unprivileged, and real clients over stdio and HTTP.
"""

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client
from pydantic import FileUrl

from mcp_toolserver.app.policy import hide_from_commands
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.runtime.sandbox.broker.messages import Script
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import ALWAYS, candidates, spelled
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import MOST_HIDDEN, HiddenPaths
from mcp_toolserver.runtime.sandbox.mounts.mounts import MOST_SOCKETS
from mcp_toolserver.settings import Settings
from tests.lsp.hostile import stranger
from tests.support import live
from tests.support.confinement import (
    AS_ROOT_IN_LONG,
    READ_ONLY,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Server,
    Servers,
    as_user,
    free,
    put,
    scene,
    serving,
    visible_folder,
)
from tests.support.processes import broker, call, outcome, sandbox_in
from tests.support.sessions import PAIRS, called
from tests.support.workbench import dispatcher, machine
from tests.support.workshop import workshop

WORD = "the-word-that-is-hidden"


@pytest.fixture(params=AS_ROOT_IN_LONG)
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    """A shared server in workspace-write."""
    return servers(request.param, WORKSPACE_WRITE)


def background(server: Server, script: str) -> str:
    """All that a background command prints."""
    said = ""
    # A socket of another test that was to be covered may have gone meanwhile, and nobody else tries again.
    for _ in range(3):
        task = server.start(script)
        said = server.call("TaskOutput", task_id=task, offset=0, until="end", wait_ms=20_000).text
        if "SANDBOX_UNAVAILABLE" not in said:
            break
    return said


WAYS: dict[str, Callable[[Server, str], str]] = {
    "command": Server.bash,
    "job": background,
    # Of a shell, started for it.
    "session": lambda server, script: server.call("REPL", language="shell", code=script, session="new").text,
}


CONNECT = """
import os, socket, sys
for name in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as one:
            try:
                os.chdir(os.path.dirname(name))
                one.connect(os.path.basename(name))
                print("reached", repr(name))
            except OSError as error:
                print("failed", error.strerror)
"""
"""Relative to its folder, because a socket's path must be short."""


def connecting(*paths: Path) -> str:
    return f"cd / && python3 -I -c {shlex.quote(CONNECT)} {shlex.join(map(str, paths))}"


@contextmanager
def listening(
    *paths: Path, kind: socket.SocketKind = socket.SOCK_STREAM, bound_as: str | None = None
) -> Generator[None]:
    """Sockets that everybody may connect to; `bound_as` is the name that the kernel gets."""
    with ExitStack() as stack:
        for path in paths:
            one = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            with contextlib.chdir(path.parent):
                one.bind(bound_as or str(path))
            if kind != socket.SOCK_DGRAM:
                one.listen(64)
            path.chmod(0o777)
        yield


def test_no_socket_outside_the_roots_is_reached(server: Server) -> None:
    with visible_folder() as folder, ExitStack() as stack:
        names = ("stream", "with space", "line\nend", "forged\n0: 00000002", "ünï")
        streams = [folder / name for name in names]
        datagram, packets = folder / "datagram", folder / "packets"
        stack.enter_context(listening(*streams))
        stack.enter_context(listening(datagram, kind=socket.SOCK_DGRAM))
        stack.enter_context(listening(packets, kind=socket.SOCK_SEQPACKET))
        script = connecting(*streams, datagram, packets)
        assert free(server.scene, script).stdout.count("reached") == len(streams) + 2
        for way, run in WAYS.items():
            said = run(server, script)
            assert "reached" not in said, (way, said)
            assert said.count("failed") == 3 * (len(streams) + 2), way


def test_a_socket_that_was_bound_to_a_relative_name_is_not_reached(
    servers: Servers,
) -> None:
    server = servers(USERS[0], WORKSPACE_WRITE)
    with visible_folder() as folder:
        server.bash("true")
        with contextlib.chdir(folder), listening(folder / "relative", bound_as="relative"):
            said = server.bash(connecting(folder / "relative"))
    assert said.count("failed") == 3, said


def test_a_socket_that_comes_between_two_commands_is_not_reached_by_the_second(server: Server) -> None:
    """Nor one that was bound behind a link in a folder that commands do not see."""
    with visible_folder() as folder, tempfile.TemporaryDirectory(dir="/tmp") as hidden, ExitStack() as stack:
        server.bash("true")
        Path(hidden).chmod(0o755)
        (Path(hidden) / "link").symlink_to(folder)
        stack.enter_context(listening(folder / "late", Path(hidden) / "link/socket"))
        said = server.bash(connecting(folder / "late", folder / "socket"))
    assert said.count("failed") == 6, said


def test_a_socket_that_goes_while_the_sandbox_is_set_up_stops_no_command() -> None:
    with visible_folder() as folder, listening(folder / "stays"):
        program = candidates(os.environ["PATH"], ())[0]
        gone, stays = str(folder / "gone"), str(folder / "stays")
        arguments = spelled((program, *ALWAYS, "--ro-bind", "/", "/"), (gone, stays), isolates_network=False)
        command = [*arguments, "sh", "-c", connecting(folder / "stays")]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    assert ran.stdout.count("failed") == 3, ran.stdout


def test_sockets_in_the_roots_and_the_private_folder_work(server: Server) -> None:
    # A process of the root's owner; a socket's path must be short.
    own = server.scene.root / "s"
    with listening(own):
        os.lchown(own, server.scene.root.stat().st_uid, -1)
        assert "reached" in server.bash(connecting(own))
        said = server.bash(
            "python3 - <<'END'\n"
            "import os, socket\n"
            "for path in ('/tmp/own', '/dev/shm/own', 'own'):\n"
            "    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:\n"
            "        one.bind(path)\n"
            "        one.listen()\n"
            "        other.connect(path)\n"
            "        print('connected', path)\n"
            "    os.unlink(path)\n"
            "END"
        )
    own.unlink()
    assert said.count("connected") == 3, said


BINDING = """
import os, socket, sys
for path in sys.argv[1].split(":"):
    one = socket.socket(socket.AF_UNIX)
    one.bind(path)
    one.listen()
    os.set_inheritable(one.detach(), True)
os.execv(sys.argv[2], sys.argv[2:])
"""


def with_sockets(*paths: Path) -> tuple[str, ...]:
    """What goes before a server for it to find these sockets, and none of the rest of this machine.

    The kernel lists the sockets of one network namespace; others who use this machine see none of them.
    """
    apart = ("unshare", "--net", *(() if os.geteuid() == 0 else ("--user", "--map-current-user")))
    return (*apart, sys.executable, "-I", "-c", BINDING, ":".join(map(str, paths)))


def test_with_too_many_sockets_no_command_runs_and_the_error_says_why() -> None:
    with scene("root" if os.geteuid() == 0 else USERS[0]) as made, visible_folder() as folder:
        many = [folder / str(number) / "s" for number in range(MOST_SOCKETS)]
        for path in many:
            path.parent.mkdir()
        # A folder of many sockets counts as one: it is hidden whole.
        (folder / "full").mkdir()
        full = [folder / "full" / str(number) for number in range(MOST_SOCKETS + 1)]
        with serving(made, WORKSPACE_WRITE, around=with_sockets(*many, *full)) as server:
            said = server.call("bash", command="touch ran")
            assert said.is_error
            assert str(folder) in said.text
            assert not (made.root / "ran").exists()
            many[0].unlink()
            assert server.bash(connecting(many[1], full[0])).count("failed") == 6
            assert server.bash(f"ls {folder / 'full'}") == "(no output)"


RULES = ["Read(secrets/**)", "Read(*.key)", "Read(conf/private/**)", "read_file(deep/**/*.pem)"]
HIDDEN = ("secrets/word", "secrets/inner/word", "a.key", "d/b.key", "conf/private/word", "deep/x/y/z.pem")
PROTECTED = (".git", ".mcp.json", ".vscode", "hostile")
SHOWN = ("conf/public", "deep/x/readable", "d/tracked")


@pytest.fixture(scope="module")
def ruled() -> Generator[Callable[[str], Server]]:
    """A server with these rules for each user, started when first asked for; its root is as new."""
    with ExitStack() as stack:
        started: dict[str, tuple[Server, Path]] = {}

        def server(user: str) -> Server:
            if user not in started:
                made, pattern = stack.enter_context(scene(user)), stack.enter_context(visible_folder())
                for name in HIDDEN:
                    put(made.root / name, WORD)
                put(made.root / "conf/public", "public\n")
                put(made.root / "deep/x/readable", "readable\n")
                put(made.outside / "far/word", WORD)
                rules = [*RULES, f"Read({made.outside}/far/**)", f"Read({made.outside}/target)"]
                config = put(made.base / "config.toml", f"[rules]\ndeny = {rules}\n")
                made.own()
                subprocess.run(["cp", "--archive", f"{made.root}/.", pattern], check=True)
                at = stack.enter_context(serving(made, WORKSPACE_WRITE, "--config", str(config)))
                started[user] = at, pattern
                return started[user][0]
            found, pattern = started[user]
            # No command changes what is protected, and while a session is there it would be moved away if it
            # were made again.
            for path in found.scene.root.iterdir():
                if path.name not in PROTECTED:
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            subprocess.run(["cp", "--archive", "--force", f"{pattern}/.", found.scene.root], check=True)
            return found

        yield server


ATTACKS = {
    "read": [f"cat {' '.join(HIDDEN)}; ls -R secrets conf/private"],
    "copy": ["cp -r . /tmp/copy; cat /tmp/copy/*.key /tmp/copy/secrets/*; cp -r . copied"],
    "rename": ["mv secrets open; mv a.key a.txt; mv d/b.key b.txt", "cat open/word a.txt b.txt"],
    "rename an ancestor": [
        "mv deep/x deep/w; mv deep/x out; mv conf other; mv deep shallow; mv d e",
        "cat deep/w/y/z.pem out/y/z.pem other/private/word shallow/x/y/z.pem e/b.key",
    ],
    "link": [
        "ln a.key hard; ln secrets/word hard2; ln -s a.key soft; ln d/b.key conf/hard3",
        "cat hard hard2 soft conf/hard3",
    ],
    "exchange": [
        "python3 -c \"import ctypes; ctypes.CDLL(None).renameat2(-100, b'conf', -100, b'd', 2)\"",
        "cat d/private/word conf/b.key",
    ],
    "remove": ["rm -rf secrets a.key conf deep", "cat secrets/word a.key conf/private/word"],
    "unmount": ["umount secrets; mount --bind conf d; unshare -r umount -l secrets", "cat secrets/word"],
    "move the root's content": ["mkdir in; mv [a-d]* in", "cat in/a.key in/conf/private/word"],
    "archive": ["tar cf /tmp/t . ; tar xOf /tmp/t; tar cf t.tar .", "tar xOf t.tar"],
    "git": ["git add -A; git stash; git hash-object -w a.key secrets/word", "git diff; git log -p --all"],
}


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_no_sequence_of_commands_reads_what_a_rule_hides(ruled: Callable[[str], Server], user: str) -> None:
    read: list[str] = []
    for attack, scripts in ATTACKS.items():
        server = ruled(user)
        root = server.scene.root
        said = [server.call("bash", command=f"{script}; grep -r -a . .").text for script in scripts]
        read += [f"{attack}: {text}" for text in said if WORD in text]
        # It is where it was, and nowhere else.
        holding = {
            str(file.relative_to(root))
            for file in root.rglob("*")
            if file.is_file() and not file.is_symlink() and WORD.encode() in file.read_bytes()
        }
        assert holding == set(HIDDEN), attack
    assert not read


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_what_a_rule_hides_is_hidden_from_every_kind_of_command(
    ruled: Callable[[str], Server], user: str
) -> None:
    """`test_broker.py` asks a broker of root in read-only."""
    server = ruled(user)
    for way, run in WAYS.items():
        # The second time in a sandbox that was built before.
        for _ in range(2):
            said = run(server, f"cat {' '.join((*HIDDEN, *SHOWN))}; ls -a secrets")
            assert WORD not in said, way
            assert "public\nreadable\ntracked\n" in said, way


@pytest.mark.xdist_group(USERS[-1])
def test_what_comes_to_match_between_two_commands_is_hidden_from_the_second(
    ruled: Callable[[str], Server],
) -> None:
    server = ruled(USERS[-1])
    for name in ("new.key", "conf/new.key", "new/folder/new.key"):
        assert "No such file" in server.bash(f"cat {name}")
        put(server.scene.root / name, WORD)
        server.scene.own()
        assert "Permission denied" in server.bash(f"cat {name}")


@pytest.mark.xdist_group(USERS[-1])
def test_an_absolute_rule_holds_outside_the_roots(ruled: Callable[[str], Server]) -> None:
    said = ruled(USERS[-1]).bash("cat $O/far/word $O/target $O/kept")
    assert WORD not in said
    assert said.count("outside\n") == 1


async def test_in_full_access_nothing_is_hidden_from_commands(tmp_path: Path) -> None:
    async with workshop(tmp_path, deny=["Read(secrets/**)"]) as server:
        word = put(tmp_path / "root/secrets/word", WORD)
        assert (await call(server, "read_file", path=str(word))).error == "denied"
        assert (await call(server, "bash", command="cat secrets/word")).text == WORD


def test_a_rule_that_may_match_anywhere_stops_the_start(tmp_path: Path) -> None:
    policy = dispatcher(machine(tmp_path), deny=["Read(/**/id_rsa)"]).policy
    with broker(READ_ONLY) as started, pytest.raises(SettingsError, match="starts from"):
        hide_from_commands(Settings(), policy, started, None)


@pytest.mark.xdist_group(USERS[-1])
def test_a_rule_with_too_many_matches_stops_commands_and_says_why(
    ruled: Callable[[str], Server],
) -> None:
    server = ruled(USERS[-1])
    for number in range(MOST_HIDDEN):
        put(server.scene.root / f"many/{number}.key", "")
    server.scene.own()
    said = server.call("bash", command="touch ran")
    assert said.is_error
    assert "deny rules on reading" in said.text
    assert not (server.scene.root / "ran").exists()
    assert not server.call("read_file", path="conf/public").is_error


def test_a_folder_that_cannot_be_listed_is_hidden(ruled: Callable[[str], Server]) -> None:
    """From everybody but root, who lists every folder."""
    server = ruled("unprivileged")
    closed = put(server.scene.root / "closed/c.key", WORD).parent
    server.scene.own()
    closed.chmod(0o311)
    assert WORD not in server.bash("cat closed/c.key; chmod 700 closed; cat closed/c.key")
    closed.chmod(0o755)


def test_hidden_paths_are_found_by_patterns_of_every_kind(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path)) / "root"
    for name in ("a/b/c.x", "a/c.y", "d/c.x", "e/f/g", "e.z/inner"):
        put(root / name, "")
    (root / "link.x").symlink_to("d/c.x")
    roots = (str(root),)

    def found(*patterns: str, seen: Sequence[str] = roots) -> set[str]:
        hidden = HiddenPaths(patterns)
        first = hidden.find(roots, seen)
        assert hidden.find(roots, seen) == first
        return {path.removeprefix(f"{root}/") for path in first}

    assert found("*.x") == {"a/b/c.x", "d/c.x"}
    assert found("./a/*.y", "e/**") == {"a/c.y", "e"}
    assert found("a/{b,c.y}") == {"a/b", "a/c.y"}
    assert found("*.z/") == {"e.z"}
    assert found("link.x", "missing/**") == set()
    assert found(f"{root}/d/*") == {"d/c.x"}
    assert found("**/*.x", seen=[f"{root}/a"]) == {"a/b/c.x"}
    assert found("a/**", seen=[f"{root}/a/b"]) == {"a/b"}
    assert found("d/**", seen=[f"{root}/a/b"]) == set()
    with pytest.raises(ValueError, match="top"):
        HiddenPaths(["/*"])


CONTENT = {"mine": "mine\n", "theirs": WORD}


def works_in(folders: Iterable[Path]) -> Callable[[Any], Awaitable[mcp.ListRootsResult]]:
    """A client's answer about its roots."""

    async def roots(_: Any) -> mcp.ListRootsResult:
        return mcp.ListRootsResult(roots=[mcp.Root(uri=FileUrl(folder.as_uri())) for folder in folders])

    return roots


async def output_by(client: Client, way: str, script: str) -> str:
    """What a command of this kind prints."""
    if way == "session":
        return await called(client, "REPL", language="shell", code=script, session="new")
    said = await called(client, "bash", command=script, run_in_background=way == "job")
    if way == "command":
        return said
    (task,) = re.findall(r"bg_\w+", said)
    return await called(client, "TaskOutput", task_id=task, offset=0, until="end", wait_ms=20_000)


PEEKING = """
def behave(method, number, params, message):
    seen = []
    if method == "textDocument/hover":
        root = os.path.dirname(os.path.dirname(params["textDocument"]["uri"].removeprefix("file://")))
        for path in os.listdir(root):
            try:
                seen.append(path + "=" + open(os.path.join(root, path, "f")).read().strip())
            except OSError:
                pass
    if number is not None:
        send(id=number, result={"contents": " ".join(seen)} if seen else None)
"""


@dataclass(frozen=True)
class Listening:
    """A server over HTTP, for clients that each name roots of their own."""

    place: Scene
    mode: str
    url: str

    def client(self, folders: Iterable[Path]) -> AbstractAsyncContextManager[Client]:
        """A client that works in these folders of the root."""
        return live.connected_to(self.url, "http", mode="legacy", list_roots_callback=works_in(folders))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(pair, id="-".join(pair), marks=[pytest.mark.xdist_group(pair[0]), *marks])
        for pair, marks in zip(PAIRS, ([pytest.mark.long], []), strict=True)
    ],
)
def narrowed(request: pytest.FixtureRequest) -> Generator[Listening]:
    """With the folders `mine` and `theirs` in its root, a second root, a rule, and a language server."""
    user, mode = request.param
    with scene(user) as made:
        programs = stranger(put(made.base / "run/a", "").parent, PEEKING, "gopls")
        put(made.root / "mine/f", "mine\n")
        second = made.base / "second"
        for folder in (made.root / "theirs", made.root / "hidden", made.root, second):
            put(folder / "f", WORD)
        put(made.root / "mine/a.go", "package x\n")
        put(made.root / "mine/go.mod", "")
        config = put(made.base / "config.toml", '[rules]\ndeny = ["Read(hidden/**)"]\n')
        made.own()
        setup = live.Setup(
            root=made.root,
            home=made.base,
            mode=mode,
            flags=("--config", str(config), "--root", str(second)),
            environ={**made.environment, "PATH": f"{programs}:{os.environ['PATH']}"},
            around=as_user(made),
        )
        with live.serving(setup, "http") as url:
            yield Listening(made, mode, url)


async def test_a_command_sees_the_roots_of_its_client_and_no_others(narrowed: Listening) -> None:
    place, second = narrowed.place, narrowed.place.base / "second"
    async with narrowed.client([place.root / "mine"]) as client:
        for way in WAYS:
            outward = f"{place.root} {place.root}/theirs {second}"
            said = await output_by(
                client,
                way,
                f"cat f; cat ../f ../theirs/f {place.root}/theirs/f {second}/f; ls -A {outward}; pwd; "
                f"for f in {way} ../{way} ../theirs/{way} {second}/{way}; do echo x >$f; done",
            )
            assert WORD not in said, way
            assert "mine\n" in said, way
            assert f"{place.root}/mine\n" in said, way
            written = set(place.base.rglob(way))
            assert written == ({place.root / "mine" / way} if narrowed.mode == WORKSPACE_WRITE else set())


async def test_two_clients_over_http_see_each_their_own_roots(narrowed: Listening) -> None:
    for name, other in (("mine", "theirs"), ("theirs", "mine"), ("mine", "theirs")):
        async with narrowed.client([narrowed.place.root / name]) as client:
            said = await called(client, "bash", command=f"cat f; cat ../{other}/f")
            assert CONTENT[name] in said
            assert CONTENT[other] not in said


async def test_a_language_server_sees_the_roots_of_its_client_and_nothing_hidden(narrowed: Listening) -> None:
    place = narrowed.place
    asked = {"operation": "hover", "path": str(place.root / "mine/a.go"), "line": 1, "query": "x"}
    async with narrowed.client([place.root]) as client:
        said = await called(client, "LSP", **asked)
        assert f"theirs={WORD}" in said, said
        assert f"hidden={WORD}" not in said
    # The next client does not share that language server.
    async with narrowed.client([place.root / "mine"]) as client:
        said = await called(client, "LSP", **asked)
        assert "mine=mine" in said, said
        assert "theirs" not in said


async def test_a_session_does_not_outlast_the_roots_it_was_started_with(narrowed: Listening) -> None:
    reading = {"language": "shell", "code": "cat ../theirs/f"}
    works = [narrowed.place.root / "mine", narrowed.place.root / "theirs"]
    async with narrowed.client(works) as client:
        said = await called(client, "REPL", **reading, session="new")
        assert WORD in said
        handle = re.findall(r"repl_[0-9a-f]{6}", said)[0]
        works.pop()
        await client.session.send_roots_list_changed()
        said = await called(client, "REPL", **reading, session=handle)
        assert WORD not in said
        assert "Start another" in said


async def test_a_root_that_holds_the_system_cannot_be_narrowed_and_the_error_says_so(tmp_path: Path) -> None:
    setup = live.Setup(root=Path("/usr"), home=tmp_path)
    async with live.connected(setup, list_roots_callback=works_in([Path("/usr/share")])) as client:
        said = await called(client, "bash", command="echo ran")
    assert "--root" in said
    assert "ran\n" not in said


def test_a_request_to_the_broker_only_narrows() -> None:
    """In read-only; real clients work in workspace-write here, and in both modes in the step `long`."""
    with visible_folder() as folder:
        sandbox = sandbox_in(folder)
        (root,) = sandbox.roots
        for name, word in CONTENT.items():
            put(Path(root, name, "f"), word)
        elsewhere = (("/etc",), ("/",), (), (f"{root}/../outside",), (f"{root}2",), (root, "/etc"))
        with broker(sandbox=sandbox) as started:
            for roots in elsewhere:
                end, said = outcome(started, Script(script="echo ran", timeout=10, roots=roots), cwd=root)
                assert ("refused" in end, said) == (True, ""), (roots, end)
            mine = f"{root}/mine"
            reading = Script(script=f"cat f; cat ../theirs/f {root}/theirs/f", timeout=10, roots=(mine,))
            end, said = outcome(started, reading, cwd=mine)
    assert "mine\n" in said, end
    assert WORD not in said
