"""The loopback interface that the commands of a session share: it works, and it leads nowhere else.

Real servers in both confined modes, as root and unprivileged, and real clients over stdio and HTTP.
"""

import os
import re
import shlex
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.lsp.stranger import stranger
from tests.sandbox.locked import python
from tests.sandbox.sessions import called, each_once, holders, two_sessions
from tests.support import live
from tests.support.confinement import (
    READ_ONLY,
    USERS,
    Server,
    as_user,
    by_mode,
    by_user,
    put,
    scene,
    serving,
)
from tests.support.processes import until
from tests.support.without import around

Servers = Callable[[str, str], Server]

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
        one.settimeout(0.5)
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


def fetching(tries: int = 200) -> str:
    """A command that says `got` and a status once the web server of its session answers."""
    return script(
        "import time, urllib.request\n"
        f"for _ in range({tries}):\n"
        "    try:\n"
        f"        with urllib.request.urlopen('http://127.0.0.1:{PORT}/', timeout=5) as got:\n"
        "            print('got', got.status)\n"
        "            break\n"
        "    except OSError as error:\n"
        "        print('failed', error)\n"
        "    time.sleep(0.05)\n"
    )


# --- it works --------------------------------------------------------------------------------------------


@each_once
def test_a_server_in_the_background_answers_later_calls(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    job = server.start(WEB_SERVER)
    assert "got 200" in server.bash(fetching())
    session = server.call("REPL", language="shell", code=fetching().removeprefix("exec "), session="new")
    assert "got 200" in session.text
    server.call("TaskStop", task_id=job)
    assert "got" not in server.bash(fetching(tries=1))


UNIX_BY_PATH = """
import os, socket, threading
path = os.environ["TMPDIR"] + "/s"
with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
    one.bind(path)
    one.listen()
    other.connect(path)
    print("connected")
"""


@each_once
def test_each_kind_of_socket_works_between_commands(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    jobs = [server.start(script(ECHO.format(where=where))) for where in WHERE.values()]
    for kind, where in WHERE.items():
        assert "echo hello" in server.bash(script(ASK.format(where=where))), kind
    for job in jobs:
        server.call("TaskStop", task_id=job)
    assert server.bash(f"python3 - <<'END'\n{UNIX_BY_PATH}\nEND") == "connected\n"


HOVER_NETWORK = """
def behave(method, number, params, message):
    if method == "textDocument/hover":
        contents = os.readlink("/proc/self/ns/net")
        send(id=number, result={"contents": contents})
    elif number is not None:
        send(id=number, result=None)
"""


def network_in(said: str) -> str:
    """The network namespace that a text names."""
    found = re.search(r"net:\[\d+\]", said)
    assert found is not None, said
    return found[0]


NETWORK = "readlink /proc/self/ns/net"


async def test_a_language_server_is_in_the_network_of_its_session() -> None:
    with scene(USERS[0]) as made:
        programs = stranger(put(made.base / "run/a", "").parent, HOVER_NETWORK, "gopls")
        put(made.root / "go.mod", "")
        file = put(made.root / "a.go", "package x\n")
        environ = {"PATH": f"{programs}:{os.environ['PATH']}"}
        setup = live.Setup(root=made.root, home=made.base, around=as_user(made), environ=environ)
        asked = {"operation": "hover", "path": str(file), "line": 1, "query": "x"}
        made.own()
        with live.serving(setup, "http") as url:
            async with live.connected_to(url, "http", mode="legacy") as one:
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


# --- it leads nowhere else -------------------------------------------------------------------------------

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


@by_user
@by_mode
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
    if "missing" in server.bash("npm --version || echo missing"):
        return
    for registry in ("http://10.255.255.1/", "https://registry.example.com/"):
        said = server.bash(f"cd $TMPDIR && npm install --registry={registry} left-pad 2>&1")
        assert "npm error" in said
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


@by_user
@by_mode
def test_a_command_cannot_change_the_interface(servers: Servers, user: str, mode: str) -> None:
    said = servers(user, mode).bash(f"python3 - <<'END'\n{CHANGES}\nEND")
    assert "done" not in said, said
    assert said.count("refused") == 8, said


@by_user
@by_mode
def test_nobody_outside_reaches_a_server_of_a_session(servers: Servers, user: str, mode: str) -> None:
    server = servers(user, mode)
    with socket.create_server(("127.0.0.1", 0)) as here:
        port: int = here.getsockname()[1]
    job = server.start(f"exec python3 -m http.server {port} --bind 0.0.0.0 --directory /usr")
    assert "got 200" in server.bash(fetching().replace(str(PORT), str(port)))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    server.call("TaskStop", task_id=job)


@pytest.mark.parametrize("era", live.ERAS)
async def test_another_session_does_not_reach_it(url: str, era: str) -> None:
    asked = script(ASK.format(where=WHERE["abstract"]).replace("range(200)", "range(1)"))
    async with two_sessions(url, era) as (one, other):
        echo = script(ECHO.format(where=WHERE["abstract"]))
        for command in (WEB_SERVER, echo):
            await called(one, "bash", command=command, run_in_background=True)
        assert "got 200" in await called(one, "bash", command=fetching())
        assert "got" not in await called(other, "bash", command=fetching(tries=1))
        waiting = script(ASK.format(where=WHERE["abstract"]))
        assert "echo hello" in await called(one, "bash", command=waiting)
        assert "echo" not in await called(other, "bash", command=asked)
        # Both have the same port: each its own.
        await called(other, "bash", command=WEB_SERVER, run_in_background=True)
        assert "got 200" in await called(other, "bash", command=fetching())


REACH = """
import socket, sys
for path in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as one:
            try:
                one.connect(path)
                print("reached", path)
            except OSError as error:
                print("refused", path)
"""


@by_user
def test_a_read_only_command_reaches_no_service_by_its_socket(servers: Servers, user: str) -> None:
    server = servers(user, READ_ONLY)
    made = server.scene
    with ExitStack() as stack:
        paths = [made.root / "s", made.root / "d" / "s", made.outside / "s", made.home / "s"]
        for path in paths:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            stack.callback(path.unlink)
            path.chmod(0o777)
            listener.listen()
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
        named = shlex.join([*map(str, paths), "s", "d/s"])
        for _ in range(2):
            said = server.bash(f"python3 -I -c {shlex.quote(REACH)} {named}")
            assert said.count("refused") == 12, said
            assert "reached" not in said


# --- its end, and machines without it --------------------------------------------------------------------


def members(network: str) -> list[str]:
    """The processes in a network namespace."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found += [place.name] if os.readlink(place / "ns/net") == network else []
    return found


@by_user
async def test_no_process_stays_for_it_and_it_ends_with_a_server_that_is_killed(user: str) -> None:
    with scene(user) as made, serving(made, READ_ONLY) as server:
        network = network_in(server.bash(NETWORK))
        assert network_in(server.bash(NETWORK)) == network
        assert members(network) == []
        assert holders(network.__eq__) or os.geteuid() != 0
        assert server.start("exec sleep 600")
        assert members(network)
        involved = {*members(network), *holders(network.__eq__)}
        os.kill(server.client.pid, 9)
        # Its number may be another namespace's by then, so only these processes are looked at.
        await until(lambda: not involved & {*members(network), *holders(network.__eq__)})


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
import os, resource, sys, tempfile
sys.path.insert(0, sys.argv[1])
from mcp_toolserver.runtime.sandbox.broker import main as module
module._MOST_SESSIONS = 3
with tempfile.TemporaryDirectory() as state:
    sessions = module._Sessions(state, network=False, devices=-1)
    def of(name):
        session = sessions.of(name.encode())
        return session and os.fstat(session.namespaces.network).st_ino
    first, second, third = map(of, ("first", "second", "third"))
    print(len({first, second, third}) == 3, of("first") == first, of("fourth"))
    sessions.end(b"first")
    sessions.end(b"unknown")
    print(of("fourth") not in (None, second, third))
    sessions.end(b"third")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, before[1]))
    print(of("fifth"))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    sessions.close()
"""


def test_without_room_for_a_session_its_commands_share_nothing() -> None:
    assert python(SESSIONS).split() == ["True", "True", "None", "True", "None"]
