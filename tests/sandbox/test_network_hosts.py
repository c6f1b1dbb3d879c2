"""`--network hosts`: commands reach the hosts that the operator listed, and nothing else.

Real servers and real programs, with a registry on loopback; `unlisted` listens there too and is not listed.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.connections import Connections
from mcp_toolserver.runtime.sandbox.layers.environment import CERTIFICATES
from mcp_toolserver.runtime.sandbox.layers.spec import PROXY_PORT
from mcp_toolserver.runtime.sandbox.proxy.allowed_hosts import AllowedHosts, parse_allowed_host
from tests.sandbox.package_registry import fill
from tests.support import live
from tests.support.cases import table
from tests.support.confinement import (
    AS_ROOT_IN_LONG,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Server,
    as_user,
    put,
    scene,
    serving,
)
from tests.support.process_layer import server_command
from tests.support.sessions import called, holders, two_sessions
from tests.web.authority import Authority
from tests.web.web import Site, files, site, to

PROXY = ("127.0.0.1", PROXY_PORT)


@dataclass(frozen=True, kw_only=True)
class Network:
    server: Server
    secure: Site
    plain: Site
    unlisted: Site

    def spelt(self, text: str) -> str:
        """`text` with the ports of the sites in the place of their names in braces."""
        ports = {"secure": self.secure, "plain": self.plain, "unlisted": self.unlisted}
        for name, of in ports.items():
            text = text.replace(f"{{{name}}}", str(of.port))
        return text

    def bash(self, script: str) -> str:
        return self.server.bash(self.spelt(script), timeout=120_000)


@pytest.fixture(scope="module", params=AS_ROOT_IN_LONG)
def network(request: pytest.FixtureRequest) -> Generator[Network]:
    with ExitStack() as stack:
        made: Scene = stack.enter_context(scene(request.param))
        folder = made.base / "registry"
        folder.mkdir()
        # In a folder that is hidden from commands, but for this file.
        put(made.home / ".docker/config.json", "secret\n")
        authority = Authority(made.home / ".docker", "localhost")
        authority.file.chmod(0o644)
        secure, plain, unlisted = (
            stack.enter_context(site(tls=one, other=files(folder))) for one in (authority.server, None, None)
        )
        plain.routes["/away"] = to(f"http://localhost:{unlisted.port}/x")
        fill(folder, f"https://localhost:{secure.port}")
        put(
            made.root / "hostile/.npmrc",
            f"registry=http://localhost:{unlisted.port}/\nproxy=http://127.0.0.1:{unlisted.port}\n",
        )
        put(made.root / "hostile/pip.conf", f"[global]\nindex-url = http://localhost:{unlisted.port}/\n")
        hidden = put(made.root / "certs/ca.pem", "hidden\n")
        config = put(made.base / "config.toml", '[rules]\ndeny = ["Read(certs/**)"]\n')
        made.own()
        listed = [f"localhost:{one.port}" for one in (secure, plain)]
        flags = [word for host in listed for word in ("--allow-domain", host)]
        flags += ["--network", "hosts", "--config", str(config)]
        certificates = {**dict.fromkeys(CERTIFICATES, str(authority.file)), "SSL_CERT_DIR": str(hidden)}
        server = stack.enter_context(serving(made, WORKSPACE_WRITE, *flags, environ=certificates))
        yield Network(server=server, secure=secure, plain=plain, unlisted=unlisted)


UV = Path(sys.executable).with_name("uv")

INSTALLS = {
    "pip": "python3 -m pip install -q --target $TMPDIR/pip --index-url https://localhost:{secure}/simple tiny"
    "; PYTHONPATH=$TMPDIR/pip python3 -m tiny",
    "uv": str(UV) + " pip install -q --target $TMPDIR/uv --index-url https://localhost:{secure}/simple tiny"
    " && PYTHONPATH=$TMPDIR/uv python3 -m tiny",
    "npm": "mkdir -p $TMPDIR/npm && cd $TMPDIR/npm && "
    "npm install --no-audit --cafile $NODE_EXTRA_CA_CERTS --registry https://localhost:{secure}/npm/ tiny && "
    "test -f node_modules/tiny/package.json && echo tiny runs",
    "cargo": "mkdir -p $TMPDIR/cargo/src && cd $TMPDIR/cargo && touch src/lib.rs && "
    'printf \'[package]\\nname="a"\\nversion="1.0.0"\\nedition="2021"\\n'
    '[dependencies]\\ntiny={version="1",registry="here"}\\n\' >Cargo.toml && '
    "export CARGO_REGISTRIES_HERE_INDEX=sparse+https://localhost:{secure}/cargo/ && "
    "cargo fetch && ls $CARGO_HOME/registry/src/*/tiny-1.0.0/Cargo.toml && echo tiny runs",
    "git": "git clone -q https://localhost:{secure}/repository.git $TMPDIR/clone && cat $TMPDIR/clone/file "
    "&& echo tiny runs",
    "curl": "curl -sS --fail https://localhost:{secure}/simple/tiny/ && echo tiny runs",
}


@pytest.mark.parametrize(
    "program",
    [pytest.param(name, marks=[] if name in ("git", "curl") else [pytest.mark.long]) for name in INSTALLS],
)
def test_a_package_manager_installs_from_a_listed_registry(network: Network, program: str) -> None:
    named = {"pip": "python3 -m pip", "uv": str(UV)}.get(program, program)
    # A home folder may be closed to the user of the server.
    tools = f"export RUSTUP_HOME={Path.home()}/.rustup; " if program == "cargo" else ""
    if "exit status" in (why := network.server.bash(f"{tools}{named} --version 2>&1")):
        pytest.skip(f"commands cannot run {program} on this machine: {why[:200]}")
    said = network.bash(f"exec 2>&1; {tools}{INSTALLS[program]}")
    assert "tiny runs" in said, said
    assert "exit status" not in said, said


def test_the_file_of_certificates_is_shown_where_others_are_hidden(network: Network) -> None:
    said = network.bash("cat $CURL_CA_BUNDLE; cat $SSL_CERT_DIR; ls -A ~/.docker 2>&1")
    assert "CERTIFICATE" in said
    assert "hidden\n" not in said
    assert "config.json" not in said


def test_what_was_downloaded_is_there_for_later_servers_of_the_same_workspace_alone(
    network: Network,
) -> None:
    install = INSTALLS["uv"].replace("install", "install --offline")
    assert "tiny runs" in network.bash(INSTALLS["uv"])
    assert network.bash("readlink $CARGO_HOME/config.toml").endswith("/.cargo/config.toml\n")
    made = network.server.scene
    with serving(made, WORKSPACE_WRITE) as later:
        assert "tiny runs" in later.bash(network.spelt(install))
    with serving(made, WORKSPACE_WRITE, roots=[made.root / "hostile"]) as elsewhere:
        assert "tiny runs" not in elsewhere.bash(network.spelt(install))


ASK = """
import json, socket, ssl, sys
for name, sent in json.load(sys.stdin).items():
    with socket.create_connection(("127.0.0.1", PROXY_PORT), 60) as one:
        one.sendall(sent.encode("latin-1"))
        print(name, "|", one.recv(4096)[:60].decode("latin-1").partition("\\r\\n")[0])
def hello(name):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl._create_unverified_context()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
for name in NAMES:
    with socket.create_connection(("127.0.0.1", PROXY_PORT), 60) as one:
        one.sendall(b"CONNECT localhost:{secure} HTTP/1.1\\r\\n\\r\\n")
        answer = one.recv(4096)
        one.sendall(hello(name) if name else b"GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        print(name, "|", answer[9:12].decode(), one.recv(4096)[:1].hex())
"""

REFUSED = {
    **{
        name: (json.loads(f'"{text}"'), status)
        for name, status, text in table(Path(__file__).with_name("proxy_requests.txt"))
    },
    "long": ("GET http://localhost:{plain}/ HTTP/1.1\r\nA: " + "a" * 40_000, "431"),
}
"""By name what comes before the empty line, and the status that answers it."""


def test_nothing_but_what_is_listed_is_reached(network: Network) -> None:
    before, names = len(network.secure.asked) + len(network.plain.asked), ["evil.example", "localhost", ""]
    sent = {name: network.spelt(text) + "\r\n\r\n" for name, (text, _) in REFUSED.items()}
    code = ASK.replace("PROXY_PORT", str(PROXY_PORT)).replace("NAMES", repr(names))
    put(network.server.scene.root / "sent.json", json.dumps(sent))
    said = network.bash(f"python3 -I -c {shlex.quote(code)} <sent.json").splitlines()
    answers = dict(line.split(" | ", 1) for line in said if " | " in line)
    wrong = [name for name, (_, status) in REFUSED.items() if answers[name][9:12] != status]
    assert wrong == [], answers
    # The host answers TLS to the name that the tunnel is for; else an alert comes.
    assert [answers[name] for name in names] == ["200 15", "200 16", "200 15"]
    assert len(network.secure.asked) + len(network.plain.asked) == before
    assert network.unlisted.asked == []


def test_one_connection_carries_one_request(network: Network) -> None:
    body = "POST http://localhost:{plain}/ HTTP/1.1\\r\\nContent-Length: 4\\r\\n\\r\\nbody"
    hidden = "GET http://localhost:{unlisted}/ HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.1\\r\\n\\r\\n"
    said = network.bash(f"exec 3<>/dev/tcp/{PROXY[0]}/{PROXY[1]}; printf '{body}{hidden}' >&3; cat <&3")
    assert said.count("HTTP/1.") == 1, said
    assert network.plain.asked[-1].body == b"body"
    assert network.unlisted.asked == []


def test_what_does_not_use_the_proxy_reaches_nothing(network: Network) -> None:
    tries = {
        "listed": "socket.create_connection(('127.0.0.1', {secure}), 5)",
        "another": "socket.create_connection(('127.0.0.1', {unlisted}), 5)",
        "IPv6": "socket.create_connection(('::1', {unlisted}), 5)",
        "names": "socket.getaddrinfo('example.com', 443)",
        "name server": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
    }
    for name, code in tries.items():
        said = network.bash(f'python3 -I -c "import socket; {code}" 2>&1 && echo came')
        assert "exit status 1" in said, (name, said)
        assert "came" not in said, (name, said)
    assert "HTTPS_PROXY" in network.bash("curl -sS --noproxy '*' https://example.com 2>&1")


def test_a_refused_host_is_named_with_the_flag_that_allows_it(network: Network) -> None:
    said = network.bash("curl -sS -L http://localhost:{plain}/away; echo done")
    assert network.spelt("--allow-domain localhost:{unlisted}") in said, said
    assert network.unlisted.asked == []
    assert "--allow-domain" not in network.bash("curl -sS --fail http://localhost:{plain}/simple/tiny/")
    job = network.server.start("curl -sS https://other.example; sleep 60")
    printed = network.server.call("TaskOutput", task_id=job, until="output").text
    network.server.call("TaskStop", task_id=job)
    assert "--allow-domain other.example" in printed, printed


def test_the_configuration_of_a_hostile_workspace_leads_nowhere(network: Network) -> None:
    for script in (
        "npm install --fetch-retries 0 tiny",
        "PIP_CONFIG_FILE=pip.conf python3 -m pip download --retries 0 tiny",
    ):
        assert "exit status" in network.server.bash(f"cd hostile && {script} 2>&1", timeout=120_000), script
    assert network.unlisted.asked == []


def test_many_and_slow_connections_keep_nobody_from_the_network(network: Network) -> None:
    """The kernel queues those above the bound; what a program leaves open is closed with it."""
    code = (
        "import socket\nheld = []\nfor _ in range(1000):\n    one = socket.socket()\n    held.append(one)\n"
        f"    one.setblocking(False)\n    one.connect_ex({PROXY})\n"
        "for one in held[:32]:\n    one.setblocking(True)\n    one.sendall(b'CONNECT local')\nprint('held')"
    )
    fetch = "curl -sS --fail --retry 5 --retry-connrefused http://localhost:{plain}/simple/tiny/"
    assert "held" in network.bash(f"python3 -I -c {shlex.quote(code)}")
    assert "tiny-1.0" in network.bash(fetch)
    slow = network.server.start(f"exec 3<>/dev/tcp/{PROXY[0]}/{PROXY[1]}; printf 'GET http:' >&3; sleep 60")
    assert "tiny-1.0" in network.bash(fetch)
    network.server.call("TaskStop", task_id=slow)


def tunnel(port: int) -> str:
    """A command that holds a tunnel to a port, and prints the answer once the proxy has connected."""
    connect = f"printf 'CONNECT localhost:{port} HTTP/1.1\\r\\n\\r\\n'"
    return f"exec 3<>/dev/tcp/{PROXY[0]}/{PROXY[1]}; {connect} >&3; head -1 <&3; sleep 60"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees whose a connection is")
def test_the_proxy_is_held(network: Network) -> None:
    job = network.server.start(tunnel(network.secure.port))
    assert "200" in network.server.call("TaskOutput", task_id=job, until="output").text
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()]
    # Other tests may use the same port for connections elsewhere; 01 is an established one.
    end = f"0100007F:{network.secure.port:04X}"
    (inode,) = (row[9] for row in rows if row[2:4] == [end, "01"])
    (pid,) = holders(lambda link: link == f"socket:[{inode}]")
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    network.server.call("TaskStop", task_id=job)
    assert re.search(r"CapEff:\t0+\n(.*\n)*NoNewPrivs:\t1\nSeccomp:\t2", status), status


async def test_a_refusal_is_told_to_its_session_and_every_connection_is_in_the_audit_log_at_the_end() -> None:
    with scene(USERS[0]) as made, site() as used, site() as held:
        flags = ["--network", "hosts"]
        flags += [word for one in (used, held) for word in ("--allow-domain", f"localhost:{one.port}")]
        setup = live.Setup(root=made.root, home=made.base, around=as_user(made), flags=flags)
        with live.serving(setup, "http") as url:
            async with two_sessions(url, live.ERAS[1]) as (one, other):
                opened = await called(other, "bash", command=tunnel(held.port), run_in_background=True)
                (job,) = set(re.findall(r"bg_\w+", opened))
                assert "200" in await called(other, "TaskOutput", task_id=job, until="output")
                script = f"curl -sS -d 12345 http://localhost:{used.port}/; curl -sS https://b.example/"
                assert "--allow-domain b.example" in await called(one, "bash", command=script)
                state = await called(other, "TaskOutput", task_id=job, until="now")
                assert "b.example" not in state + await called(other, "bash", command="true")
        log = (made.base / "state/audit").glob("*.jsonl")
        lines = [json.loads(line) for file in log for line in file.read_text(encoding="utf-8").splitlines()]
    entries = {one["name"]: one for one in lines if one["tool"] == "connection"}
    verdicts = {name: one["verdict"] for name, one in entries.items()}
    # That which was held open carried no TLS.
    refused = dict.fromkeys((f"localhost:{held.port}", "b.example:443"), "refused-host")
    assert verdicts == {f"localhost:{used.port}": "allowed", **refused}
    entry = entries[f"localhost:{used.port}"]
    assert entry["sent"] > len("12345")
    assert entry["bytes"] > 0


async def test_no_report_is_taken_while_the_audit_log_cannot_be_written() -> None:
    ours, theirs = Broker.pair()
    written: list[bool] = [False, True, True]
    with ours, theirs:
        connections = Connections(ours, lambda _: written.pop(0))
        connections.watch("a")
        report = {**dict.fromkeys(("session", "host"), "a"), **dict.fromkeys(("refused", "add"), "")}
        report |= dict.fromkeys(("port", "ms", "received", "sent"), 1)
        for _ in range(3):
            theirs.send(json.dumps(report).encode())
        connections.take()
        assert len(written) == 2
        connections.take()
        assert written == []


def test_the_list_decides_by_name_port_and_address() -> None:
    listed = AllowedHosts.of(["git.corp", "*.example.com", "10.0.0.5:8443", "localhost:8080", "[fd00::1]"])
    cases = {
        ("git.corp", 443): True,
        ("git.corp", 80): True,
        ("git.corp", 22): False,
        ("a.git.corp", 443): False,
        ("a.b.example.com", 443): True,
        ("example.com", 443): False,
        ("evilexample.com", 443): False,
        ("10.0.0.5", 8443): True,
        ("10.0.0.5", 443): False,
        ("localhost", 8080): True,
        ("127.0.0.1", 8080): False,
        ("fd00::1", 443): True,
    }
    assert {case: listed.allows(*case) for case in cases} == cases
    addresses = {
        ("93.184.215.14", "a.example.com"): True,
        ("10.1.1.1", "git.corp"): True,
        ("10.1.1.1", "a.example.com"): False,
        ("127.0.0.1", "git.corp"): False,
        ("::1", "git.corp"): False,
        ("::ffff:127.0.0.1", "git.corp"): False,
        ("169.254.169.254", "git.corp"): False,
        ("0.0.0.0", "git.corp"): False,
    }
    assert {case: listed.permits(*case, 443) for case in addresses} == addresses
    assert listed.permits("127.0.0.1", "localhost", 8080)
    assert listed.permits("10.0.0.5", "10.0.0.5", 8443)
    for wrong in ("", "*", "https://a", "a/b", "a:0", "a:b", "domain:a", "a b", "127.1", "user@a"):
        with pytest.raises(ValueError, match="is not a host"):
            parse_allowed_host(wrong)


def test_doctor_prints_the_hosts_of_package_managers_outside_of_the_roots(tmp_path: Path) -> None:
    root, home = tmp_path / "root", tmp_path / "home"
    put(home / ".config/pip/pip.conf", "[global]\nindex-url = https://user:word@pip.corp:8443/simple\n")
    put(home / ".npmrc", "@corp:registry=https://npm.corp/\n")
    put(home / ".config/uv/uv.toml", '[[index]]\nurl = "https://extra.corp/simple"\n')
    for name in (".npmrc", "pip.conf"):
        put(root / name, "registry=https://evil.example/\n[global]\nindex-url=https://evil.example/\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "npm_"))}
    path = f"{UV.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*server_command(), "doctor", "--hosts", "--root", str(root)],
        capture_output=True, encoding="utf-8", cwd=root, env={**environ, "HOME": str(home), "PATH": path},
    )  # fmt: skip
    lines = dict(line.split(": ") for line in done.stdout.splitlines()[:-1])
    assert lines["uv"] == "pypi.org files.pythonhosted.org extra.corp"
    if "npm" in lines:
        assert "npm.corp" in lines["npm"]
    if "pip" in lines:
        assert lines["pip"].split() in (["pip.corp:8443"], ["pypi.org", "files.pythonhosted.org"])
    assert "evil" not in done.stdout
    assert "word" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("--network hosts --allow-domain ")
