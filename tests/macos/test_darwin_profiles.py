"""The interpreter of Seatbelt profiles of the simulated Darwin: what it allows, what does not compile."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.darwin import operations
from tests.darwin.regular_expression import translate
from tests.darwin.sbpl import Profile, ProfileError, Request, compile_profile

START = "(version 1)\n(deny default)\n"


def compiled(rules: str, **parameters: str) -> Profile:
    return compile_profile(START + rules, parameters)


def allows(rules: str, operation: str, parameters: Mapping[str, str] | None = None, **request: Any) -> bool:
    return compile_profile(START + rules, parameters).allows(Request(operation=operation, **request))


# --- rules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation", sorted(each for each in operations.OPERATIONS if not each.endswith("*"))
)
def test_what_no_rule_allows_is_denied(operation: str) -> None:
    denied = not operation.startswith("process-info")
    assert allows("", operation, path="/a", name="n", target="others") is not denied
    assert compile_profile("(version 1)").allows(Request(operation=operation, path="/a")) is not denied
    assert compile_profile("(version 1) (allow default)").allows(Request(operation=operation, path="/a"))


def test_processes_are_looked_at_until_a_rule_says_otherwise() -> None:
    mine = "(allow process-info* (target same-sandbox))"
    assert allows(mine, "process-info-pidinfo", target="others")
    assert not allows(f"(deny process-info*) {mine}", "process-info-pidinfo", target="others")
    assert allows(f"(deny process-info*) {mine}", "process-info-pidinfo", target="self")


@pytest.mark.parametrize(
    ("group", "members"),
    [
        ("file*", ["file-read-data", "file-write-unlink", "file-ioctl", "file-map-executable", "file-link"]),
        ("file-read*", ["file-read-data", "file-read-metadata", "file-read-xattr"]),
        ("file-write*", ["file-write-create", "file-write-unlink", "file-write-data", "file-write-mode",
                         "file-write-owner", "file-write-flags", "file-write-times", "file-write-xattr",
                         "file-write-setugid"]),
        ("network*", ["network-outbound", "network-inbound", "network-bind"]),
        ("process*", ["process-fork", "process-exec-interpreter", "process-info-pidinfo"]),
        ("process-exec", ["process-exec*", "process-exec-interpreter"]),
        ("mach*", ["mach-lookup", "mach-register", "mach-priv-task-port"]),
        ("mach-priv*", ["mach-priv-task-port", "mach-priv-host-port"]),
        ("ipc-posix-shm", ["ipc-posix-shm-read-data", "ipc-posix-shm-write-create"]),
        ("ipc-posix*", ["ipc-posix-sem-open", "ipc-posix-shm-read-data"]),
        ("sysctl*", ["sysctl-read", "sysctl-write"]),
        ("default", ["file-read-data", "lsopen", "appleevent-send", "pseudo-tty"]),
    ],
)  # fmt: skip
def test_a_group_is_all_that_its_name_begins(group: str, members: list[str]) -> None:
    rule = f"(allow {group})"
    text = f"(version 1) {rule}"
    for member in members:
        assert compile_profile(text).allows(Request(operation=member, path="/a")), member
    if group != "default":
        assert not compile_profile(text).allows(Request(operation="job-creation"))
        assert not compile_profile(f"(version 1) (allow {members[0]})").allows(
            Request(operation="hid-control")
        )


def test_reading_is_not_writing() -> None:
    assert not allows("(allow file-read*)", "file-write-data", path="/a")
    assert not allows("(allow file-write*)", "file-read-data", path="/a")
    assert not allows("(allow file-write*)", "file-ioctl", path="/a")
    assert not allows("(allow file-write-create)", "file-write-unlink", path="/a")


def test_the_last_rule_with_filters_that_matches_wins() -> None:
    rules = ['(allow file-write* (subpath "/a"))', '(deny file-write* (subpath "/a/b"))',
             '(allow file-write* (literal "/a/b/c"))']  # fmt: skip
    judged = compiled("\n".join(rules))
    writes = {path: judged.allows(Request(operation="file-write-data", path=path))
              for path in ("/a", "/a/b", "/a/b/c", "/a/b/d")}  # fmt: skip
    assert writes == {"/a": True, "/a/b": False, "/a/b/c": True, "/a/b/d": False}
    assert allows("\n".join(reversed(rules)), "file-write-data", path="/a/b")


def test_a_rule_without_filters_is_a_default_and_its_place_must_not_matter() -> None:
    assert not allows('(allow file-read*) (deny file-read* (subpath "/a"))', "file-read-data", path="/a/b")
    with pytest.raises(ProfileError, match="wherever it stands"):
        compiled('(deny file-read* (subpath "/a")) (allow file-read*)')
    with pytest.raises(ProfileError, match="wherever it stands"):
        compiled('(allow file-write-data (subpath "/a")) (deny file-write*)')
    with pytest.raises(ProfileError, match="contradicts"):
        compiled("(deny file-read-data) (allow file-read*)")
    assert not allows("(allow file-read*) (deny file-read-data)", "file-read-data", path="/a")


# --- filters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "matching", "others"),
    [
        ('(literal "/a/b")', ["/a/b", "/A/B"], ["/a", "/a/b/c", "/a/bb"]),
        ('(subpath "/a/b")', ["/a/b", "/a/b/c/d", "/a/B/c"], ["/a/bc", "/a", "/x/a/b"]),
        ('(subpath "/")', ["/", "/a"], []),
        ('(prefix "/a/b")', ["/a/b", "/a/bc", "/a/b/c"], ["/a/c"]),
        ('(literal "/a" "/b")', ["/a", "/b"], ["/c"]),
        ('(literal "/a") (literal "/b")', ["/a", "/b"], ["/c"]),
        ('(subpath "/caf\u00e9")', ["/cafe\u0301/x", "/CAF\u00c9"], ["/cafe"]),
        ('(regex #"^/a/[0-9]+$")', ["/a/12"], ["/a/", "/a/1x", "/b/a/1", "/A/1"]),
        ('(regex #"/[.]git(/|$)")', ["/a/.git", "/.git/x"], ["/a/xgit", "/a/.gitx"]),
        ('(regex #"^/a.b$")', ["/a/b", "/a\nb"], ["/ab"]),
        ('(regex #"^/a$")', ["/a"], ["/a\n", "\n/a"]),
        ('(regex "^/a\\\\.b$")', ["/a.b"], ["/axb"]),
        ('(require-all (subpath "/a") (require-not (literal "/a/b")))', ["/a", "/a/c"], ["/a/b", "/c"]),
        ('(require-any (literal "/a") (literal "/b"))', ["/a", "/b"], ["/c"]),
        ('(require-not (subpath "/a"))', ["/b"], ["/a", "/a/b"]),
        ('(subpath (param "ROOT"))', ["/top/of/it/x"], ["/top/of", "/TOP"]),
        ('(literal (string-append (param "ROOT") "/x"))', ["/top/of/it/x"], ["/top/of/it"]),
    ],
)  # fmt: skip
def test_paths(filters: str, matching: list[str], others: list[str]) -> None:
    judged = compiled(f"(allow file-read-data {filters})", ROOT="/top/of/it")
    assert [
        path for path in matching + others if judged.allows(Request(operation="file-read-data", path=path))
    ] == (matching)


def test_real_paths_are_compared_so_a_link_is_not_followed_by_a_rule() -> None:
    assert not allows('(allow file-read* (subpath "/tmp"))', "file-read-data", path="/private/tmp/a")


@pytest.mark.parametrize(
    ("rule", "request_", "verdict"),
    [
        ("(allow file-read* (vnode-type DIRECTORY))", {"operation": "file-read-data", "path": "/a"}, False),
        ("(allow file-read* (vnode-type DIRECTORY))",
         {"operation": "file-read-data", "path": "/a", "vnode_type": "DIRECTORY"}, True),
        ("(allow signal (target self))", {"operation": "signal", "target": "self"}, True),
        ("(allow signal (target self))", {"operation": "signal", "target": "same-sandbox"}, False),
        ("(allow signal (target same-sandbox))", {"operation": "signal", "target": "self"}, True),
        ("(allow signal (target same-sandbox))", {"operation": "signal", "target": "same-sandbox"}, True),
        ("(allow signal (target same-sandbox))", {"operation": "signal", "target": "others"}, False),
        ("(allow signal (target others))", {"operation": "signal", "target": "others"}, True),
        ('(allow mach-lookup (global-name "a.b"))', {"operation": "mach-lookup", "name": "a.b"}, True),
        ('(allow mach-lookup (global-name "a.b"))', {"operation": "mach-lookup", "name": "a.bc"}, False),
        ('(allow mach-lookup (global-name-prefix "a."))', {"operation": "mach-lookup", "name": "a.bc"}, True),
        ('(allow mach-lookup (global-name-regex #"^a[.]"))',
         {"operation": "mach-lookup", "name": "a.b"}, True),
        ('(allow mach-lookup (global-name-regex #"^a[.]"))',
         {"operation": "mach-lookup", "name": "ab"}, False),
        ('(allow mach-register (local-name "a"))', {"operation": "mach-register", "name": "a"}, True),
        ('(allow sysctl-read (sysctl-name "hw.ncpu"))',
         {"operation": "sysctl-read", "name": "hw.ncpu"}, True),
        ('(allow sysctl-read (sysctl-name "hw.ncpu"))',
         {"operation": "sysctl-write", "name": "hw.ncpu"}, False),
        ('(allow ipc-posix-shm (ipc-posix-name "x"))',
         {"operation": "ipc-posix-shm-read-data", "name": "x"}, True),
        ('(allow iokit-open (iokit-user-client-class "C"))', {"operation": "iokit-open", "name": "C"}, True),
        ('(allow user-preference-read (preference-domain "d"))',
         {"operation": "user-preference-write", "name": "d"}, False),
        ('(allow file-read* (extension "com.apple.sandbox.pty"))',
         {"operation": "file-read-data", "path": "/dev/ttys1"}, False),
        ('(allow file-read* (extension "com.apple.sandbox.pty"))',
         {"operation": "file-read-data", "path": "/dev/ttys1",
          "extensions": frozenset({"com.apple.sandbox.pty"})}, True),
        ("(allow system-socket (require-all (socket-domain AF_SYSTEM) (socket-protocol 2)))",
         {"operation": "system-socket", "domain": "AF_SYSTEM", "socket_protocol": 2}, True),
        ("(allow system-socket (require-all (socket-domain AF_SYSTEM) (socket-protocol 2)))",
         {"operation": "system-socket", "domain": "AF_SYSTEM", "socket_protocol": 1}, False),
        ("(allow system-socket (socket-type SOCK_RAW))",
         {"operation": "system-socket", "socket_type": "SOCK_DGRAM"}, False),
    ],
)  # fmt: skip
def test_filters_of_everything_but_files(rule: str, request_: dict[str, Any], verdict: bool) -> None:
    assert compiled(rule).allows(Request(**request_)) is verdict


def connection(host: str, port: int = 80, protocol: str = "tcp4", **more: Any) -> Request:
    return Request(operation="network-outbound", host=host, port=port, protocol=protocol, **more)


@pytest.mark.parametrize(
    ("filters", "request_", "verdict"),
    [
        ("", connection("93.184.216.34"), True),
        ("(remote ip)", connection("93.184.216.34"), True),
        ("(remote ip)", connection("::1", protocol="udp6"), True),
        ("(remote ip)", connection("", protocol="unix-socket", path="/s"), False),
        ("(remote ip4)", connection("::1", protocol="tcp6"), False),
        ("(remote tcp)", connection("127.0.0.1", protocol="udp4"), False),
        ('(remote ip "localhost:*")', connection("127.0.0.1"), True),
        ('(remote ip "localhost:*")', connection("::1", protocol="tcp6"), True),
        ('(remote ip "localhost:*")', connection("127.0.0.2"), False),
        ('(remote ip "localhost:*")', connection("192.168.1.1"), False),
        ('(remote ip "localhost:80")', connection("127.0.0.1", 81), False),
        ('(remote tcp "*:443")', connection("93.184.216.34", 443), True),
        ('(remote tcp "*:443")', connection("93.184.216.34", 80), False),
        ('(remote ip (string-append "localhost:" (param "PORT")))', connection("127.0.0.1", 8080), True),
        ("(remote unix-socket)", connection("", protocol="unix-socket", path="/s"), True),
        ("(remote unix-socket)", connection("127.0.0.1"), False),
        ('(remote unix-socket (path-literal "/s"))', connection("", protocol="unix-socket", path="/s"), True),
        ('(remote unix-socket (path-literal "/s"))',
         connection("", protocol="unix-socket", path="/t"), False),
        ('(literal "/s")', connection("", protocol="unix-socket", path="/s"), True),
        ('(literal "/s")', connection("127.0.0.1"), False),
        ("(local ip)", connection("127.0.0.1"), False),
    ],
)  # fmt: skip
def test_addresses(filters: str, request_: Request, verdict: bool) -> None:
    assert compiled(f"(allow network-outbound {filters})", PORT="8080").allows(request_) is verdict


def test_this_end_of_a_connection() -> None:
    judged = compiled('(allow network-bind network-inbound (local tcp "localhost:*"))')
    for operation in ("network-bind", "network-inbound"):
        here = Request(operation=operation, host="127.0.0.1", port=1, protocol="tcp4")
        assert judged.allows(here)
        assert not judged.allows(Request(operation=operation, host="10.0.0.1", port=1, protocol="tcp4"))
    assert not judged.allows(connection("127.0.0.1", 1))


def test_modifiers_and_comments_change_nothing() -> None:
    text = '; a comment with (parentheses\n(deny default (with message "m") (with no-log)) ; more\n'
    judged = compile_profile(f'(version 1) {text} (allow (with report) file-read* (subpath "/a"))')
    assert judged.allows(Request(operation="file-read-data", path="/a"))
    assert not judged.allows(Request(operation="file-read-data", path="/b"))


# --- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("(allow file-wriet*)", "unbound variable: file-wriet.* line 3"),
        ("(alow file-write*)", "unbound variable: alow"),
        ('(allow file-read* (sub-path "/a"))', "unbound variable: sub-path"),
        ('(setenv "A" "b")', "unbound variable: setenv"),
        ("(allow signal (target same-sandboxes))", "unbound variable: same-sandboxes"),
        ("(allow file-read* (vnode-type DIR))", "unbound variable: DIR"),
        ("(allow network-outbound (remote http))", "unbound variable: http"),
        ("(allow system-socket (socket-domain AF_SISTEM))", "unbound variable: AF_SISTEM"),
        ("(allow file-read* (require-some (subpath \"/a\")))", "unbound variable: require-some"),
        ('(allow file-read* (subpath (parm "ROOT")))', "unbound variable: parm"),
        ('(allow file-read* (subpath (param "MISSING")))', "MISSING"),
        ("(allow file-read* (subpath /a))", "expected a string"),
        ("(allow file-read* (subpath 1))", "expected a string"),
        ('(allow file-read* (subpath (string-append "/a" 1)))', "expected a string"),
        ("(allow file-read* (subpath))", "needs an argument"),
        ('(allow file-read* (subpath "a"))', "no path is"),
        ('(allow file-read* (subpath ""))', "no path is"),
        ('(allow file-read* (literal "/a/"))', "no path is"),
        ('(allow file-read* (subpath "/a//b"))', "no path is"),
        ('(allow file-read* (subpath "/a/../b"))', "no path is"),
        ('(allow mach-lookup (subpath "/a"))', "does not apply"),
        ('(allow file-read* (global-name "a"))', "does not apply"),
        ('(allow file-read* mach-lookup (global-name "a"))', "does not apply"),
        ("(allow file-write* (target self))", "does not apply"),
        ('(allow mach-lookup (global-name ""))', "is empty"),
        ("(allow file-read* (require-not))", "needs one filter"),
        ('(allow file-read* (require-not (literal "/a") (literal "/b")))', "needs one filter"),
        ("(allow file-read* (require-all))", "needs filters"),
        ('(allow file-read* "/a")', "a rule is"),
        ('(allow (subpath "/a"))', "a rule is"),
        ('(allow file-read* (subpath "/a") file-write*)', "a rule is"),
        ("(allow)", "a rule is"),
        ("()", "empty list"),
        ('(deny default (subpath "/a"))', "no filters"),
        ("(allow file-read* (with repport))", "unknown modifier"),
        ("(allow file-read* (with))", "unknown modifier"),
        ("(deny default (with message))", "wrong arguments"),
        ('(allow network-outbound (remote ip "127.0.0.1:80"))', r"host must be \* or localhost"),
        ('(allow network-outbound (remote ip "192.168.1.0/24"))', "port missing"),
        ('(allow network-outbound (remote ip "*:1-100"))', "invalid port"),
        ('(allow network-outbound (remote ip "*:0"))', "invalid port"),
        ("(allow network-outbound (remote ip localhost))", "expects string"),
        ('(allow network-outbound (remote ip "*:*" "*:*"))', "too many"),
        ("(allow network-outbound (remote))", "needs a protocol"),
        ('(allow network-outbound (remote unix-socket (remote ip)))', "has a path"),
        ("(allow system-socket (socket-protocol two))", "expected a number"),
        ('(allow file-read* (regex #"["))', "not closed"),
        ('(allow file-read* (regex #"(a"))', "open parenthesis"),
        ('(allow file-read* (regex #"a)"))', "a parenthesis too many"),
        ('(allow file-read* (regex #"*a"))', "nothing to repeat"),
        ('(allow file-read* (regex #"a{2}"))', "stands for itself"),
        ('(allow file-read* (regex #"\\d"))', "escape"),
        ('(allow file-read* (regex #"(?:a)"))', "nothing to repeat"),
        ('(allow file-read* (regex #"(a|)"))', "empty alternative"),
        ('(allow file-read* (regex #"[\\]"))', "backslash"),
        ('(allow file-read* (regex #"gr\u00f6\u00dfe"))', "ASCII"),
        ('(allow file-read* (literal "/a\\q"))', "escape sequence"),
        ("(allow file-read*", "not closed"),
        ("(allow file-read*))", "too many"),
        ("allow", "outside of any list"),
        ('(allow file-read* (literal "/a))', "not in the language"),
        ("(allow file-read* 'a)", "not in the language"),
    ],
)  # fmt: skip
def test_a_wrong_profile_does_not_compile(rules: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        compiled(rules)


@pytest.mark.parametrize(
    "text", ["", "(deny default)", "(version 2) (deny default)", "(deny default) (version 1)"]
)
def test_a_profile_begins_with_its_version(text: str) -> None:
    with pytest.raises(ProfileError):
        compile_profile(text)


def test_a_question_about_a_group_is_none() -> None:
    with pytest.raises(ValueError, match="no operation"):
        compiled("").allows(Request(operation="file-wriet"))
    with pytest.raises(ValueError, match="no operation"):
        compiled("").allows(Request(operation="default"))


# --- regular expressions -----------------------------------------------------------------------------------


@given(st.text(alphabet="ab/.[]()|*+?^$\\-", max_size=12), st.text(alphabet="ab/.-\n", max_size=8))
def test_what_translates_is_an_expression_of_python_too(pattern: str, subject: str) -> None:
    try:
        translated = translate(pattern)
    except ValueError:
        return
    re.search(translated, subject.encode(), re.DOTALL)
