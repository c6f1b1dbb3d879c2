"""What the commands of a session share: a loopback interface and a temporary folder, which lead nowhere else.

Real servers in both confined modes, as root and unprivileged, and real clients over stdio and HTTP.
"""

import os
import re
import shlex
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mcp_toolserver.capabilities.call_scope import LOCAL, UNCONNECTED
from mcp_toolserver.runtime.processes.sessions import IDLE_SECONDS, Sessions
from mcp_toolserver.runtime.sandbox.broker.limit_settings import session_size
from mcp_toolserver.runtime.sandbox.broker.messages import Script
from mcp_toolserver.runtime.sandbox.layers.spec import may_share
from tests.lsp.hostile import stranger
from tests.sandbox.attempts import python
from tests.support import live
from tests.support.confinement import (
    READ_ONLY,
    USERS,
    WORKSPACE_WRITE,
    Servers,
    as_user,
    put,
    scene,
    serving,
    visible_folder,
)
from tests.support.processes import Daemons, asked, broker, outcome, sandbox_in, until
from tests.support.sessions import as_root, called, each_once, holders, two_sessions
from tests.support.without import around

PORT = 8765
"""The same in every session: each has its own."""

WEB_SERVER = f"exec python3 -m http.server {PORT} --bind 127.0.0.1 --directory /usr"

ECHO = """
import socket, sys, threading
family, kind, address = {where}
with socket.socket(family, kind) as one:
    one.bind(address)
    if kind == socket.SOCK_STREAM:
        one.listen()
        while True:
            with one.accept()[0] as other:
                other.sendall(b"echo " + other.recv(64))
    while True:
        data, sender = one.recvfrom(64)
        one.sendto(b"echo " + data, sender)
"""

ASK = """
import socket, time
family, kind, address = {where}
for _ in range(200):
    with socket.socket(family, kind) as one:
        if kind == socket.SOCK_DGRAM and family == socket.AF_UNIX:
            one.bind("\\0client-" + str(time.monotonic_ns()))
        one.settimeout(5)
        try:
            one.connect(address)
            one.sendall(b"hello")
            print(one.recv(64).decode())
            break
        except OSError as error:
            print(error)
    time.sleep(0.05)
"""

WHERE = {
    "tcp": f"(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', {PORT + 1}))",
    "tcp6": f"(socket.AF_INET6, socket.SOCK_STREAM, ('::1', {PORT + 2}))",
    "udp": f"(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', {PORT + 3}))",
    "abstract": "(socket.AF_UNIX, socket.SOCK_STREAM, '\\0of-the-session')",
    "abstract-datagram": "(socket.AF_UNIX, socket.SOCK_DGRAM, '\\0of-the-session-too')",
}


def script(code: str) -> str:
    """A command that runs Python code."""
    return f"exec python3 -I -c {shlex.quote(code)}"


def fetching(tries: int = 300) -> str:
    """A command that says `got 200` once the web server of its session answers."""
    curl = f"curl -sS -o /dev/null -w 'got %{{http_code}}' http://127.0.0.1:{PORT}/"
    return f"for _ in $(seq {tries}); do {curl} && break; sleep 0.1; done"


@each_once
def test_a_server_in_the_background_answers_later_calls(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    job = server.start(WEB_SERVER)
    assert "got 200" in server.bash(fetching())
    session = server.call("REPL", language="shell", code=fetching(), session="new")
    assert "got 200" in session.text
    server.call("TaskStop", task_id=job)
    assert "got 200" not in server.bash(fetching(tries=1))


@each_once
def test_each_kind_of_socket_works_between_commands(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    jobs = [server.start(script(ECHO.format(where=where))) for where in WHERE.values()]
    for kind, where in WHERE.items():
        assert "echo hello" in server.bash(script(ASK.format(where=where))), kind
    for job in jobs:
        server.call("TaskStop", task_id=job)


HOVER_NETWORK = """
def behave(method, number, params, message):
    if number is not None:
        send(id=number, result={"contents": os.readlink("/proc/self/ns/net")})
"""


def network_in(said: str) -> str:
    """The network namespace that a text names."""
    found = re.search(r"net:\[\d+\]", said)
    assert found is not None, said
    return found[0]


NETWORK = "readlink /proc/self/ns/net"


def held(folder: Path) -> list[str]:
    """The processes that hold a folder open, or something below it."""
    return holders(lambda link: link.startswith(str(folder)))


async def test_a_language_server_is_in_the_network_of_its_session_and_all_goes_with_the_session() -> None:
    with scene(USERS[0]) as made:
        temporary = made.state / "temporary"
        programs = stranger(put(made.base / "run/a", "").parent, HOVER_NETWORK, "gopls")
        put(made.root / "go.mod", "")
        file = put(made.root / "a.go", "package x\n")
        environ = {"PATH": f"{programs}:{os.environ['PATH']}"}
        setup = live.Setup(root=made.root, home=made.base, around=as_user(made), environ=environ)
        asked = {"operation": "hover", "path": str(file), "line": 1, "query": "x"}
        made.own()
        with live.serving(setup, "http") as url:
            async with live.connected_to(url, "http", mode="legacy") as one:
                await called(one, "bash", command="echo mine > /tmp/mine")
                assert "mine" in await called(one, "read_file", path="/tmp/mine")
                assert len(held(temporary)) > 1 or os.geteuid() != 0
                first = network_in(await called(one, "LSP", **asked))
                assert first == network_in(await called(one, "bash", command=NETWORK))
                async with live.connected_to(url, "http", mode="legacy") as other:
                    second = network_in(await called(other, "LSP", **asked))
                    assert second == network_in(await called(other, "bash", command=NETWORK))
                    assert first != second
                    servers = members(second)
                    assert servers
                # Its number may be another namespace's by now, so only these processes are looked at.
                await until(lambda: not set(servers) & set(members(second)))
                assert members(first)
            await until(lambda: not held(temporary))


WAYS_OUT = """
import errno, socket
def attempt(name, family, kind, address):
    with socket.socket(family, kind) as one:
        try:
            one.connect(address)
            print(name, "connected")
        except OSError as error:
            print(name, errno.errorcode[error.errno])
attempt("tcp", socket.AF_INET, socket.SOCK_STREAM, ("10.255.255.1", 80))
attempt("public", socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 443))
attempt("tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700:4700::1111", 443))
attempt("udp", socket.AF_INET, socket.SOCK_DGRAM, ("10.255.255.1", 53))
attempt("multicast", socket.AF_INET, socket.SOCK_DGRAM, ("224.0.0.251", 5353))
attempt("metadata", socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80))
try:
    print("name", socket.getaddrinfo("example.com", 80))
except socket.gaierror as error:
    print("name", error)
print("interfaces", [name for _, name in socket.if_nameindex()])
print("local", socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)[0][4][1])
"""
"""Without a timeout: an attempt that is not refused at once would wait for minutes."""


@each_once
def test_a_connection_to_the_outside_fails_with_an_error(servers: Servers, user: str, mode: str) -> None:
    said = servers(user, mode).bash(f"python3 - <<'END'\n{WAYS_OUT}\nEND")
    found = dict(line.split(" ", 1) for line in said.splitlines())
    for name in ("tcp", "public", "tcp6", "udp", "multicast", "metadata"):
        assert found[name] == "ENETUNREACH", said
    assert "Errno" in found["name"], said
    assert found["interfaces"] == "['lo']"
    assert found["local"] == "80"


@pytest.mark.xdist_group(USERS[0])
def test_a_failed_connection_comes_with_a_hint(servers: Servers) -> None:
    server = servers(USERS[0], READ_ONLY)
    said = server.bash("python3 -c \"import urllib.request as u; u.urlopen('http://example.com')\"")
    assert "--network commands" in said


CHANGES = """
import fcntl, os, socket, struct
def attempt(name, work):
    try:
        work()
        print(name, "done")
    except OSError as error:
        print(name, "refused")
def flags(value):
    with socket.socket() as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", value))
def ask(kind, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as one:
        one.bind((0, 0))
        one.send(struct.pack("=IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
        error = struct.unpack_from("=i", one.recv(4096), 16)[0]
        if error:
            raise OSError(-error, "")
attempt("down", lambda: flags(0))
address = struct.pack("=BBBBI", 2, 8, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes((10, 0, 0, 1)))
attempt("address", lambda: ask(20, address))
route = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 4, 0, 1, 0) + struct.pack("=HHI", 8, 4, 1)
attempt("route", lambda: ask(24, route))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768))
attempt("sysctl", lambda: os.open("/proc/sys/net/ipv4/ip_forward", os.O_WRONLY))
attempt("owner", lambda: fcntl.ioctl(os.open("/proc/self/ns/net", os.O_RDONLY), 0xB701))
attempt("parent", lambda: fcntl.ioctl(os.open("/proc/self/ns/user", os.O_RDONLY), 0xB702))
"""


@each_once
def test_a_command_cannot_change_the_interface(servers: Servers, user: str, mode: str) -> None:
    said = servers(user, mode).bash(f"python3 - <<'END'\n{CHANGES}\nEND")
    assert "done" not in said, said
    assert said.count("refused") == 8, said


@each_once
def test_nobody_outside_reaches_a_server_of_a_session(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    with socket.create_server(("127.0.0.1", 0)) as here:
        port: int = here.getsockname()[1]
    job = server.start(f"exec python3 -m http.server {port} --bind 0.0.0.0 --directory /usr")
    assert "got 200" in server.bash(fetching().replace(str(PORT), str(port)))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    server.call("TaskStop", task_id=job)


async def test_another_session_does_not_reach_it(url: str) -> None:
    asked = script(ASK.format(where=WHERE["abstract"]).replace("range(200)", "range(1)"))
    async with two_sessions(url, live.ERAS[1]) as (one, other):
        echo = script(ECHO.format(where=WHERE["abstract"]))
        for command in (WEB_SERVER, echo):
            await called(one, "bash", command=command, run_in_background=True)
        assert "got 200" in await called(one, "bash", command=fetching())
        assert "got 200" not in await called(other, "bash", command=fetching(tries=1))
        waiting = script(ASK.format(where=WHERE["abstract"]))
        assert "echo hello" in await called(one, "bash", command=waiting)
        assert "echo" not in await called(other, "bash", command=asked)
        # Both have the same port: each its own.
        await called(other, "bash", command=WEB_SERVER, run_in_background=True)
        assert "got 200" in await called(other, "bash", command=fetching())


def members(network: str) -> list[str]:
    """The processes in a network namespace."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found += [place.name] if os.readlink(place / "ns/net") == network else []
    return found


@as_root
async def test_no_process_stays_for_it_and_all_of_it_ends_with_a_server_that_is_killed(
    user: str, mode: str
) -> None:
    daemons = Daemons()
    with scene(user) as made, serving(made, mode) as server:
        temporary = made.state / "temporary"
        network = network_in(server.bash(NETWORK))
        assert network_in(server.bash(NETWORK)) == network
        assert members(network) == []
        assert holders(network.__eq__) or os.geteuid() != 0
        server.bash("head -c 1M /dev/zero > /tmp/large")
        assert held(temporary) or os.geteuid() != 0
        server.start(f"{daemons.script} wait")
        await until(lambda: len(daemons.alive()) == 4)
        assert members(network)
        involved = {*members(network), *holders(network.__eq__)}
        os.kill(server.client.pid, 9)
        # Its number may be another namespace's by then, so only these processes are looked at.
        await until(lambda: not involved & {*members(network), *holders(network.__eq__)})
        await until(lambda: not daemons.alive() and not held(temporary))
        assert list(temporary.iterdir()) == []


def test_where_nothing_can_be_shared_each_command_has_its_own() -> None:
    with scene(USERS[-1]) as made, serving(made, READ_ONLY, around=around("setns")) as server:
        # A session stays, and its network with it.
        session = server.call("REPL", language="shell", code=NETWORK, session="new").text
        assert network_in(session) != network_in(server.bash(NETWORK))
        said = server.bash(f"python3 - <<'END'\n{WAYS_OUT}\nEND")
        assert said.count("ENETUNREACH") == 6, said
        both = f"{WEB_SERVER.removeprefix('exec ')} & {fetching()}"
        assert "got 200" in server.bash(both)
        server.bash("echo gone > /tmp/gone")
        assert "missing" in server.bash("cat /tmp/gone || echo missing")
        assert server.call("read_file", path="/tmp/gone").is_error


SESSIONS = """
import os, resource, tempfile
from types import SimpleNamespace as A
from mcp_toolserver.runtime.sandbox.broker import main as module
module.MOST_SESSIONS = 3
with tempfile.TemporaryDirectory() as state:
    constants = A(
        proof=A(shares_session=True),
        broker_policy=A(sandbox=A(state=state, network=False)),
    )
    loop = module._Loop(requests=None, reserve=None, wake=-1, lifeline_end=-1, roots=(), constants=constants)
    def of(name):
        session = loop._session(name.encode())
        return session and os.fstat(session.network).st_ino
    first, second, third = map(of, ("first", "second", "third"))
    print(len({first, second, third}) == 3, of("first") == first, of("fourth"))
    loop.end_session(b"first")
    loop.end_session(b"unknown")
    print(of("fourth") not in (None, second, third))
    loop.end_session(b"third")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, before[1]))
    print(of("fifth"))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for name in tuple(loop.sessions):
        loop.end_session(name)
"""


def test_without_room_for_a_session_its_commands_share_nothing() -> None:
    assert python(SESSIONS).split() == ["True", "True", "None", "True", "None"]


def test_caches_are_there_unless_the_operator_has_a_place_for_them(tmp_path: Path) -> None:
    config = put(tmp_path / "config.toml", 'command-environment = ["GOCACHE"]\n')
    environ = {"GOCACHE": "/a/place", "UV_CACHE_DIR": "/not/passed", "MCP_TOOLSERVER_CONFIG": str(config)}
    flags = (WORKSPACE_WRITE, "--network", "commands")
    with scene(USERS[0]) as made, serving(made, *flags, environ=environ) as server:
        assert (
            server.bash("echo $GOCACHE $UV_CACHE_DIR $npm_config_cache")
            == "/a/place /var/tmp/caches/uv /var/tmp/caches/npm\n"
        )
        # The folder is there with the network of the machine, too.
        server.bash("echo kept > /tmp/kept")
        assert server.bash("cat /tmp/kept") == "kept\n"


@each_once
def test_what_one_command_leaves_the_next_one_finds(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    server.bash("echo kept > $TMPDIR/kept && mkdir -p /tmp/folder")
    caches = "/tmp/.caches" if mode == READ_ONLY else "/var/tmp/caches"
    assert server.bash("echo $UV_CACHE_DIR") == f"{caches}/uv\n"
    assert server.bash("cat /tmp/kept") == "kept\n"
    session = server.call("REPL", language="shell", code="cat $TMPDIR/kept", session="new").text
    assert session.startswith("kept\n")
    assert server.bash("pwd", cwd="/tmp/folder") == "/tmp/folder\n"
    assert not os.path.lexists("/tmp/kept")


@each_once
def test_file_tools_read_it_under_its_own_name(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    server.bash("mkdir -p /tmp/read/in && echo needle > /tmp/read/in/file && ln -sf in /tmp/read/link")
    assert "needle" in server.call("read_file", path="/tmp/read/in/file").text
    assert "needle" in server.call("read_file", path="/tmp/read/link/file").text
    assert "in/" in server.call("ls", path="/tmp/read").text
    assert "/tmp/read/in/file" in server.call("grep_search", pattern="needle", path="/tmp/read").text
    assert "/tmp/read/in/file" in server.call("glob_search", pattern="**/file", path="/tmp/read").text
    missing = server.call("read_file", path="/tmp/read/missing")
    assert missing.is_error
    assert "/tmp/read/missing" in missing.text


@pytest.mark.xdist_group(USERS[-1])
def test_file_tools_write_in_it(servers: Servers) -> None:
    server = servers(USERS[-1], WORKSPACE_WRITE)
    written = server.call("write_file", path="/tmp/written/by/tool", content="one\n")
    assert not written.is_error, written.text
    edited = server.call("edit_file", path="/tmp/written/by/tool", old_string="one", new_string="two")
    assert not edited.is_error, edited.text
    assert server.bash("cat /tmp/written/by/tool && echo three > /tmp/written/by/tool") == "two\n"
    assert "three" in server.call("read_file", path="/tmp/written/by/tool").text


@each_once
def test_no_link_in_it_leads_a_file_tool_out(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    target = server.scene.outside / "target"
    server.bash(
        f"mkdir -p /tmp/links; cd /tmp/links; ln -sf {target} absolute; ln -sfn {target.parent} folder; "
        f"ln -sf ../..{target} relative; ln -sfn .. up; ln -sf /proc/self/environ proc"
    )
    for name in ("absolute", "folder/target", "relative", "up/..", f"up/..{target}", "proc"):
        for tool, more in (("read_file", {}), ("write_file", {"content": "changed"})):
            said = server.call(tool, path=f"/tmp/links/{name}", **more)
            assert said.is_error, said.text
    assert target.read_text(encoding="utf-8") == "outside\n"
    assert "outside" not in server.call("grep_search", pattern="outside", path="/tmp/links").text


@as_root
def test_its_size_is_bounded(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    said = server.bash("df --block-size=1 --output=size /tmp | tail -1; df --output=itotal /tmp | tail -1")
    size, files = map(int, said.split())
    assert size == session_size()
    assert 0 < files < 1_000_000
    full = server.bash("fallocate -l 2G /tmp/full; echo status $?; rm /tmp/full")
    assert "No space left" in full
    assert "status 1" in full
    assert server.bash("echo again > /tmp/again && cat /tmp/again") == "again\n"


@pytest.mark.parametrize("era", live.ERAS)
async def test_another_session_does_not_see_it(url: str, era: str) -> None:
    async with two_sessions(url, era) as (one, other):
        await called(one, "bash", command="echo mine > /tmp/mine")
        assert "mine" in await called(one, "read_file", path="/tmp/mine")
        assert "no '/tmp/mine'" in await called(other, "read_file", path="/tmp/mine")
        assert "mine" not in await called(other, "bash", command="ls /tmp")
        await called(other, "bash", command="echo theirs > /tmp/mine")
        assert await called(one, "bash", command="cat /tmp/mine") == "mine\n"


def test_it_is_shared_where_no_root_meets_it() -> None:
    assert all(map(may_share, (("/srv/a", "/home/b"), ("/tmpa",))))
    assert not any(map(may_share, (("/tmp",), ("/tmp/a",), ("/srv/a", "/tmp/a/b"), ("/",))))


def test_only_a_session_without_a_connection_or_a_running_command_ends_when_it_is_idle() -> None:
    with visible_folder() as folder, broker(sandbox=sandbox_in(folder)) as at:
        assert at.proof.shares_session, at.proof.reasons
        root = str(folder / "root")
        clock = [0.0]
        sessions = Sessions(at, (root,), now=lambda: clock[0])
        idle, busy = f"{UNCONNECTED} a 1", f"{UNCONNECTED} a 2"
        owners = (LOCAL, "connection 1", busy, idle)

        def ask(owner: str, script: str) -> Script:
            return Script(script=script, timeout=60, session=owner)

        def kept(owner: str) -> bool:
            return outcome(at, ask(owner, "cat /tmp/kept 2>&1"), cwd=root)[1] == "kept\n"

        for owner in owners:
            outcome(at, ask(owner, "echo kept > /tmp/kept"), cwd=root)
            made = sessions.temporary(owner)
            assert made is not None
            assert made.root() is not None
        clock[0] = IDLE_SECONDS - 1
        sessions.expire()
        assert all(map(kept, owners))

        def is_gone(seconds: float) -> bool:
            clock[0] += IDLE_SECONDS + 1
            sessions.expire()
            # The broker ends it when the supervisor of the last command has gone, maybe after its answer.
            time.sleep(seconds)
            gone = not kept(idle)
            sessions.temporary(idle)
            return gone

        with asked(at, ask(busy, "echo on; exec sleep 60"), cwd=root) as command:
            assert command.line() == "on"
            assert any(is_gone(0.1 * 2**trial) for trial in range(9))
            assert all(map(kept, owners[:3]))
