"""The stand-in for Seatbelt enforces a profile: each operation is tried for real, allowed and denied."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.darwin import rule_table
from tests.darwin.build import StandIn, build, reason_to_skip
from tests.darwin.sbpl import Request, compile_profile
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))

PROFILE = """\
(version 1)
(deny default)
(deny process-info*)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow process-exec)
(allow process-fork)
(allow file-read*)
(allow file-write-data (literal "/dev/null"))
(allow file-write* (subpath (param "WORK")))
(allow file-link)
(deny file-link (literal (string-append (param "WORK") "/pinned")))
(deny file-write* (regex #"/[.]git(/|$)"))
(deny file-write-unlink (literal (string-append (param "WORK") "/pinned")))
(deny file-read* (subpath (param "HIDDEN")))
(deny process-exec (literal (string-append (param "WORK") "/forbidden")))
(allow network-outbound (remote tcp "localhost:*"))
(allow network-bind (local udp))
(allow network-outbound (literal (string-append (param "WORK") "/socket")))
(allow network-bind (local unix-socket (subpath (param "WORK"))))
"""

TRIED = [
    ("read", "open(OUT + '/kept').read()", True),
    ("read what is hidden", "open(HIDDEN + '/secret').read()", False),
    ("list what is hidden", "os.listdir(HIDDEN)", False),
    ("stat what is hidden", "os.stat(HIDDEN + '/secret')", False),
    ("stat nothing in what is hidden", "os.path.lexists(HIDDEN + '/nothing')", True),
    ("read what is hidden through a link", "open(WORK + '/to-hidden').read()", False),
    ("read what is hidden by a descriptor's folder",
     "os.open('secret', os.O_RDONLY, dir_fd=os.open('..' + '/' + 'hidden', os.O_PATH))", False),
    ("make a file", "open(WORK + '/new', 'x').close()", True),
    ("make a file outside", "open(OUT + '/new', 'x').close()", False),
    ("make a file outside through a link", "open(WORK + '/to-outside/new2', 'x').close()", False),
    ("make a file outside through a link that leads nowhere", "open(WORK + '/dangling', 'w').close()", False),
    ("write", "open(WORK + '/kept', 'r+').write('x')", True),
    ("write outside", "open(OUT + '/kept', 'r+').write('x')", False),
    ("append outside", "open(OUT + '/kept', 'a').write('x')", False),
    ("truncate outside", "os.truncate(OUT + '/kept', 0)", False),
    ("truncate on opening outside", "os.open(OUT + '/kept', os.O_RDONLY | os.O_TRUNC)", False),
    ("write to a device", "open('/dev/null', 'w').write('x')", True),
    ("write to another device", "open('/dev/zero', 'w').write('x')", False),
    ("make a folder", "os.mkdir(WORK + '/folder')", True),
    ("make a folder outside", "os.mkdir(OUT + '/folder')", False),
    ("remove a folder", "os.mkdir(WORK + '/f2'); os.rmdir(WORK + '/f2')", True),
    ("remove a folder outside", "os.rmdir(OUT + '/empty')", False),
    ("remove", "os.unlink(WORK + '/removed')", True),
    ("remove outside", "os.unlink(OUT + '/kept')", False),
    ("make a link", "os.symlink('x', WORK + '/link')", True),
    ("make a link outside", "os.symlink('x', OUT + '/link')", False),
    ("hard link to what may be written", "os.link(WORK + '/kept', WORK + '/hard')", True),
    ("hard link to what may not be written", "os.link(OUT + '/kept', WORK + '/hard2')", False),
    ("hard link that a rule denies", "os.link(WORK + '/pinned', WORK + '/hard3')", False),
    ("hard link outside", "os.link(WORK + '/kept', OUT + '/hard')", False),
    ("make a pipe", "os.mkfifo(WORK + '/fifo')", True),
    ("make a pipe outside", "os.mkfifo(OUT + '/fifo')", False),
    ("rename", "os.rename(WORK + '/renamed', WORK + '/renamed2')", True),
    ("rename outside", "os.rename(OUT + '/kept', OUT + '/kept2')", False),
    ("move out", "os.rename(WORK + '/kept', OUT + '/moved')", False),
    ("move in", "os.rename(OUT + '/kept', WORK + '/moved')", False),
    ("replace something pinned", "os.rename(WORK + '/kept', WORK + '/pinned')", False),
    ("rename something pinned", "os.rename(WORK + '/pinned', WORK + '/pinned2')", False),
    ("write something pinned", "open(WORK + '/pinned', 'a').write('x')", True),
    ("write a protected name", "open(WORK + '/.git/config', 'a').write('x')", False),
    ("make a protected name", "os.mkdir(WORK + '/sub/.git')", False),
    ("rename to a protected name", "os.rename(WORK + '/sub', WORK + '/.git')", False),
    ("rename a protected name", "os.rename(WORK + '/.git', WORK + '/git')", False),
    ("read a protected name", "open(WORK + '/.git/config').read()", True),
    ("mode", "os.chmod(WORK + '/kept', 0o600)", True),
    ("mode outside", "os.chmod(OUT + '/kept', 0o600)", False),
    ("mode of a descriptor outside", "os.fchmod(os.open(OUT + '/kept', os.O_RDONLY), 0o600)", False),
    ("owner outside", "os.chown(OUT + '/kept', -1, -1)", False),
    ("owner", "os.chown(WORK + '/kept', -1, -1)", True),
    ("times", "os.utime(WORK + '/kept')", True),
    ("times outside", "os.utime(OUT + '/kept')", False),
    ("attributes outside", "os.setxattr(OUT + '/kept', 'user.a', b'')", False),
    ("attributes of what is hidden", "os.listxattr(HIDDEN + '/secret')", False),
    ("temporary file", "tempfile.mkstemp(dir=WORK)", True),
    ("temporary folder outside", "tempfile.mkdtemp(dir=OUT)", False),
    ("connect to loopback", "connect('127.0.0.1', socket.SOCK_STREAM)", True),
    ("connect by UDP", "connect('127.0.0.1', socket.SOCK_DGRAM)", False),
    ("connect elsewhere", "connect('127.0.0.2', socket.SOCK_STREAM)", False),
    ("send by UDP", "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))", False),
    ("bind UDP", "socket.socket(type=socket.SOCK_DGRAM).bind(('127.0.0.1', 0))", True),
    ("bind TCP", "socket.socket().bind(('127.0.0.1', 0))", False),
    ("listen on what was not bound", "socket.socket().listen()", False),
    ("connect to a Unix socket", "local(WORK + '/socket')", True),
    ("connect to another Unix socket", "local(OUT + '/socket')", False),
    ("connect to an abstract Unix socket", "local('\\0stand-in')", False),
    ("bind a Unix socket", "socket.socket(socket.AF_UNIX).bind(WORK + '/bound')", True),
    ("bind a Unix socket outside", "socket.socket(socket.AF_UNIX).bind(OUT + '/bound')", False),
    ("a pair of sockets", "socket.socketpair()", True),
    ("a routing socket", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", False),
    ("signal this process", "os.kill(os.getpid(), 0)", True),
    ("signal another process", "os.kill(OTHER, 0)", False),
    ("signal the group of another process", "os.killpg(OTHER, 0)", False),
    ("signal a child", "signal_child()", True),
    ("look at this process", "open('/proc/self/status').read()", True),
    ("look at another process", "open(f'/proc/{OTHER}/status').read()", False),
    ("run a program", "subprocess.run(['/bin/true'], check=True)", True),
    ("run a forbidden program", "subprocess.run([WORK + '/forbidden'], check=True)", False),
    ("a child without an environment reads what is hidden",
     "subprocess.run(['/bin/cat', HIDDEN + '/secret'], env={}, check=True, stderr=-3)", False),
    ("a child of a child reads what is hidden",
     "subprocess.run(['/bin/sh', '-c', f'(env -i /bin/cat {HIDDEN}/secret)'], check=True, stderr=-3)",
     False),
    ("a child of posix_spawn reads what is hidden",
     "spawned(['/bin/cat', HIDDEN + '/secret'])", False),
    ("a second sandbox", "sandboxed('(version 1)(allow default)')", False),
    ("a second sandbox for this process", "second()", False),
]  # fmt: skip

SCRIPT = """
import ctypes, json, os, socket, subprocess, sys, tempfile
WORK, OUT, HIDDEN, PROGRAM, PORT, OTHER = json.loads(sys.argv[1])
def connect(host, kind):
    with socket.socket(type=kind) as client:
        try:
            client.connect((host, PORT))
        except ConnectionRefusedError:
            pass
def local(path):
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            pass
def signal_child():
    with subprocess.Popen(['/bin/cat'], stdin=subprocess.PIPE) as child:
        child.terminate()
        child.wait()
def spawned(argv):
    child = os.posix_spawn(argv[0], argv, {}, file_actions=[(os.POSIX_SPAWN_CLOSE, 2)])
    if os.waitpid(child, 0)[1]:
        raise PermissionError(1, 'EPERM')
def sandboxed(profile):
    subprocess.run([PROGRAM, '-p', profile, '/bin/true'], check=True, stderr=-3)
def second():
    library = ctypes.CDLL(None, use_errno=True)
    if library.sandbox_init(b'(version 1)(allow default)', ctypes.c_uint64(0), None):
        raise PermissionError(ctypes.get_errno(), '')
os.chdir(OUT)
seen = {}
for name, code in json.load(sys.stdin):
    try:
        exec(code)
        seen[name] = 'done'
    except subprocess.CalledProcessError:
        seen[name] = 'EPERM'
    except OSError as error:
        seen[name] = 'EPERM' if error.errno == 1 else str(error)
    except BaseException as error:
        seen[name] = repr(error)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return build(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture(scope="module")
def seen(stand_in: StandIn, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What came of each attempt, all of one process behind the profile."""
    base = tmp_path_factory.mktemp("places").resolve()
    work, outside, hidden = base / "work", base / "outside", base / "hidden"
    for folder in (work, work / ".git", work / "sub", outside, outside / "empty", hidden):
        folder.mkdir()
    files = (work / "kept", work / "removed", work / "renamed", work / "pinned", work / ".git" / "config",
             outside / "kept", hidden / "secret")  # fmt: skip
    for file in files:
        file.write_text("content\n", encoding="utf-8")
    (work / "forbidden").symlink_to("/bin/true")
    os.unlink(work / "forbidden")
    (work / "forbidden").write_text("#!/bin/sh\n", encoding="utf-8")
    (work / "forbidden").chmod(0o755)
    (work / "to-hidden").symlink_to(hidden / "secret")
    (work / "to-outside").symlink_to(outside)
    (work / "dangling").symlink_to(outside / "made-through-a-link")
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, start_new_session=True) as other:
        given = [str(work), str(outside), str(hidden), stand_in.program, 9, other.pid]
        done = subprocess.run(
            [stand_in.program, "-p", PROFILE, "-D", f"WORK={work}", f"-DHIDDEN={hidden}", "--",
             os.path.realpath(sys.executable), "-IS", "-c", SCRIPT, json.dumps(given)],
            input=json.dumps([entry[:2] for entry in TRIED]), capture_output=True, check=False,
            encoding="utf-8", timeout=PATIENCE,
        )  # fmt: skip
        assert other.poll() is None
        other.kill()
    assert done.returncode == 0, done.stderr
    assert (outside / "kept").read_text(encoding="utf-8") == "content\n"
    assert {entry.name for entry in outside.iterdir()} == {"kept", "empty"}
    return json.loads(done.stdout)


@pytest.mark.parametrize(("name", "allowed"), [pytest.param(name, fine, id=name) for name, _, fine in TRIED])
def test_the_profile_decides(seen: dict[str, str], name: str, allowed: bool) -> None:
    assert seen[name] == ("done" if allowed else "EPERM")


def run(stand_in: StandIn, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [stand_in.program, *arguments], capture_output=True, check=False, encoding="utf-8", timeout=PATIENCE
    )


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        pytest.param(["-p", "(version 1)(allow default)", "/bin/echo", "x"], 0, "", id="allowed"),
        pytest.param(["-p", "(version 1)(allow defualt)", "/bin/true"], 65, "unbound", id="misspelt"),
        pytest.param(["-p", '(version 1)(allow file-read* (subpath (param "A")))', "/bin/true"], 65,
                     "expected", id="parameter missing"),
        pytest.param(["-p", "(version 1)(allow file-read*)", "/bin/true"], 71, "permitted", id="no program"),
        pytest.param(["-p", "(version 1)(allow default)", "/nothing"], 71, "No such", id="nothing to run"),
        pytest.param(["-p", "(version 1)(allow process*)", "/bin/true"], -signal.SIGABRT, "", id="no root"),
        pytest.param(["/bin/true"], 64, "usage", id="no profile"),
        pytest.param(["-p", "(version 1)"], 64, "usage", id="no program named"),
        pytest.param(["-Z"], 64, "not recognized", id="unknown option"),
    ],
)  # fmt: skip
def test_the_status_says_what_went_wrong(
    stand_in: StandIn, arguments: list[str], status: int, message: str
) -> None:
    done = run(stand_in, *arguments)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr


def test_a_profile_may_be_in_a_file(stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "profile.sb").write_text("(version 1)(allow default)", encoding="utf-8")
    assert run(stand_in, "-f", str(tmp_path / "profile.sb"), "/bin/echo", "x").stdout == "x\n"


INIT = """
import ctypes, os, sys
library = ctypes.CDLL(None, use_errno=True)
error = ctypes.c_char_p()
flags = ctypes.c_uint64(0)
values = (ctypes.c_char_p * 3)(b'WORK', sys.argv[2].encode(), None)
before = library.sandbox_check(os.getpid(), None, 0)
print(before, library.sandbox_init_with_parameters(sys.argv[1].encode(), flags, values, ctypes.byref(error)))
print((error.value or b'').decode())
print(library.sandbox_check(os.getpid(), b'file-write-create', 1, os.fsencode(sys.argv[2]) + b'/x'),
      library.sandbox_check(os.getpid(), b'file-write-create', 1, b'/x'))
for folder in (sys.argv[2], sys.argv[3]):
    try:
        open(folder + '/made', 'w').close()
        print('made')
    except OSError as error:
        print(error.errno)
os.system('echo x >' + sys.argv[3] + '/made || echo refused')
"""


@pytest.mark.parametrize(
    ("rules", "printed"),
    [
        ('(allow file-write* (subpath (param "WORK")))', ["0 0", "", "0 1", "made", "1", "refused"]),
        ("(allow file-wriet*)",
             ["0 -1", "sandbox-exec: unbound variable: file-wriet* at <input string>, line 2",
              "0 0", "made", "made"]),
    ],
)  # fmt: skip
def test_a_process_confines_itself(stand_in: StandIn, tmp_path: Path, rules: str, printed: list[str]) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    profile = f"(version 1) (allow file-read*) (allow process*)\n{rules}"
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-ISu", "-c", INIT, profile, str(work), str(outside)],
        env={"LD_PRELOAD": stand_in.library, "SEATBELT_STAND_IN_COMPILER": stand_in.program},
        capture_output=True, check=False, encoding="utf-8", timeout=PATIENCE,
    )  # fmt: skip
    assert done.stdout.splitlines() == printed, done.stderr


# --- the interpreter and the library agree -----------------------------------------------------------------

QUESTIONS: list[dict[str, Any]] = [
    *({"operation": operation, "path": path, "vnode_type": kind}
      for operation in ("file-read-data", "file-read-metadata", "file-write-create", "file-write-unlink",
                        "file-write-data", "file-write-mode", "file-ioctl", "process-exec*")
      for path in ("/", "/w", "/w/a", "/w/.git", "/w/.git/hooks/x", "/w/x.git", "/w/pinned", "/hidden/a",
                   "/w/a b", "/dev/null", "/w/forbidden", "/w/\u00e9", "/wx")
      for kind in ("REGULAR-FILE", "DIRECTORY", "CHARACTER-DEVICE")),
    *({"operation": operation, "host": host, "port": port, "protocol": protocol}
      for operation in ("network-outbound", "network-bind", "network-inbound")
      for host in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "10.0.0.1")
      for port in (80, 443) for protocol in ("tcp4", "tcp6", "udp4", "udp6")),
    *({"operation": "network-outbound", "protocol": "unix-socket", "path": path} for path in ("/w/s", "/s")),
    *({"operation": operation, "target": target} for operation in ("signal", "process-info-pidinfo")
      for target in ("self", "same-sandbox", "others")),
    *({"operation": "mach-lookup", "name": name} for name in ("a.b", "a.bc", "c")),
    {"operation": "appleevent-send"}, {"operation": "lsopen"}, {"operation": "process-fork"},
]  # fmt: skip

PROFILES = [
    PROFILE,
    "(version 1)",
    "(version 1) (allow default)",
    """(version 1) (allow file-read*) (deny file-read* (require-all (subpath "/w") (require-not
       (require-any (literal "/w/a") (regex #"^/w/[^/]*[.]git$"))))) (allow file-write* (prefix "/w"))
       (allow file-ioctl (vnode-type CHARACTER-DEVICE)) (deny process-info*)
       (allow signal (target others)) (allow mach-lookup (global-name "a.b") (global-name-prefix "c"))""",
    """(version 1) (allow network-outbound (remote ip "localhost:80") (remote tcp6) (remote udp "*:443"))
       (allow network-bind (local ip4)) (allow network-inbound (local tcp "localhost:*"))
       (allow mach-lookup (global-name-regex #"^a[.]b+$")) (allow network-outbound (remote unix-socket
       (path-literal "/w/s")))""",
]


@pytest.mark.parametrize("text", PROFILES)
def test_the_library_decides_as_the_interpreter_does(stand_in: StandIn, tmp_path: Path, text: str) -> None:
    profile = compile_profile(text, {"WORK": "/w", "HIDDEN": "/hidden"})
    (tmp_path / "table").write_text(rule_table.encode(profile), encoding="utf-8")
    library = ctypes.CDLL(stand_in.library)
    library.seatbelt_stand_in_load(os.fsencode(tmp_path / "table"))

    def decision(question: dict[str, Any]) -> bool:
        asked = Request(**question)
        words = (asked.operation, asked.path, asked.vnode_type, asked.target, asked.name, asked.protocol,
                 asked.host)  # fmt: skip
        encoded = (word.encode() if word else None for word in words)
        return bool(library.seatbelt_stand_in_decides(*encoded, ctypes.c_int(asked.port)))

    for question in QUESTIONS:
        assert decision(question) == profile.allows(Request(**question)), question
