"""Every call leaves one line, nobody can change the lines unseen, and without a line no call runs."""

import fcntl
import hashlib
import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Capability, HostFacts, Permission, ServerLock
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.log import log
from mcp_toolserver.errors import SettingsError, UnknownTool
from mcp_toolserver.pipeline.call import InputRequired, Result
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.stores import audit_log
from mcp_toolserver.stores.audit_chain import ChainHead, VerificationReport, verify
from mcp_toolserver.stores.audit_log import AuditContext, AuditLog
from mcp_toolserver.text.redact_secrets import redacted
from mcp_toolserver.tool_spec import Args, Limits, Output, Runtime
from tests.support.extent import rounds
from tests.support.processes import PATIENCE, python, until
from tests.support.workbench import Person, dispatcher, machine, tool

FACTS = AuditContext(
    mode="workspace-write",
    layers={
        Capability.FS_READ: ("openat2", "landlock"),
        Capability.FS_WRITE: ("openat2", "landlock"),
        Capability.PROCESS: ("bubblewrap",),
    },
)


def opened(folder: Path, **context: Any) -> AuditLog:
    return AuditLog(str(folder / "state"), replace(FACTS, **context))


def lines(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "state/audit").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def checked(folder: Path, kept: int = 8) -> VerificationReport:
    return verify(str(folder / "state/audit"), kept=kept)


def recorded(folder: Path, audit: AuditLog, *entries: Any, **options: Any) -> Dispatcher:
    options = {"ceiling": Permission.WORKSPACE_WRITE, **options}
    return replace(dispatcher(machine(folder), *entries, **options), recorder=audit)


async def call(
    at: Dispatcher, name: str, arguments: Mapping[str, JsonValue] | None = None, person: Person | None = None
) -> Result:
    with anyio.fail_after(PATIENCE):
        return await at.call(name, arguments, person or Person())


def at_once(work: Coroutine[Any, Any, str | None]) -> str | None:
    """What a coroutine gives that lets no other task run: so is it while no other process has the lock."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError


def note(audit: AuditLog, *names: str) -> None:
    """Calls that need no dispatcher."""
    for name in names:
        one = CallRecord(name=name, session="s", arguments={})
        assert at_once(audit.begin(one)) is None
        assert at_once(audit.end(one)) is None


def written(folder: Path, *names: str, **context: Any) -> None:
    """The log of a server with these calls, which has ended."""
    audit = opened(folder, **context)
    note(audit, *names)
    audit.close()


@contextmanager
def recording(folder: Path, *entries: Any, values: bool = False, **options: Any) -> Generator[Dispatcher]:
    """A dispatcher whose calls are recorded in a log that is closed at the end."""
    audit = opened(folder, values=values)
    yield recorded(folder, audit, *entries, **options)
    audit.close()


async def forever(_: Args, __: Runtime) -> Output:
    await anyio.sleep_forever()
    raise AssertionError


async def test_a_call_leaves_a_line_that_says_who_did_what_and_how_it_ended(tmp_path: Path) -> None:
    with recording(tmp_path) as at:
        (tmp_path / "root/a").write_text("hello\n", encoding="utf-8")
        result = await call(at, "Read", {"file_path": "a"}, Person(name="editor 1.2"))
    (line,) = lines(tmp_path)
    assert line | {"time": "", "call": "", "server": "", "ms": 0} == {
        "n": 1, "time": "", "call": "", "parent": None, "server": "", "user": None, "session": "editor 1.2",
        "tool": "read_file", "name": "Read", "about": "a", "mode": "workspace-write",
        "permission": "read-only", "verdict": "allowed", "rule": "",
        "layers": ["openat2", "landlock"], "outcome": "output", "ms": 0, "bytes": len(result.text),
        "arguments_sha256": sha256('{"file_path":"a"}'), "result_sha256": sha256(result.text),
        "prev": "0" * 64,
    }  # fmt: skip
    assert line["ms"] > 0
    assert len(line["server"]) == 16
    assert line["call"] == result.call_id
    assert time.strptime(line["time"], "%Y-%m-%dT%H:%M:%S.%fZ")


def test_what_enforces_the_mode_is_known_of_every_capability() -> None:
    locks: dict[ServerLock, tuple[str, ...]] = {0: (), 6: ("landlock", "seccomp"), "seatbelt": ("seatbelt",)}
    for lock, locked in locks.items():
        facts = HostFacts(openat2=True, server_lock=lock, command_sandbox="bubblewrap")
        layers = {need: need.value.layers(facts) for need in Capability}
        assert layers[Capability.TODOS] == ("own state", *locked)
        assert layers[Capability.OWN_CODE] == locked
        assert layers[Capability.FS_READ] == ("openat2", *locked)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def test_the_log_is_private_and_holds_no_values(tmp_path: Path) -> None:
    folder = tmp_path / "state/audit"
    opened(tmp_path).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    # It is closed also where it was open to others.
    folder.chmod(0o755)
    with recording(tmp_path) as at:
        await call(at, "write_file", {"path": "a", "content": "hunter2"})
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert b"hunter2" not in file.read_bytes()


class Later(Person):
    async def ask(self, question: str) -> bool:
        raise InputRequired


async def test_every_end_of_a_call_has_its_verdict_and_outcome(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(_: Args, __: Runtime) -> Output:
        return Output("done")

    async def bug(_: Args, __: Runtime) -> Output:
        raise ZeroDivisionError

    entries = (
        tool(work, name="fine"),
        tool(work, name="asks"),
        tool(work, name="off"),
        tool(work, name="denied"),
        tool(work, name="dear", permission=Permission.DANGER_FULL_ACCESS),
        tool(work, name="shell", kind="execute", script=lambda _: "rm -rf /"),
        tool(work, name="allowed", permission=Permission.WORKSPACE_WRITE),
        tool(work, name="lacking", needs=[Capability.SEARCH]),
        tool(bug, name="bug"),
        tool(forever, name="slow", limits=Limits(deadline=0.02)),
        tool(forever, name="forever"),
    )
    rules: dict[str, Any] = {"ask": ["asks"], "deny": ["denied"], "allow": ["allowed"]}
    offered = {entry.spec.name for entry in entries} - {"off"}
    with recording(tmp_path, *entries, granted=Permission.READ_ONLY, offered=offered, **rules) as at:
        for name in ("fine", "asks", "off", "denied", "dear", "shell", "allowed", "lacking", "bug", "slow"):
            await call(at, name)
        await call(at, "fine", {"no": 1})
        await call(at, "asks", {}, Person(says=True))
        await call(at, "asks", {}, Later())
        with pytest.raises(UnknownTool):
            await call(at, "x" * 10_000)
        with anyio.move_on_after(0.02):
            await at.call("forever", {}, Person())
    logged = [(line["name"][:8], line["verdict"], line["outcome"], line["rule"]) for line in lines(tmp_path)]
    assert logged == [
        ("fine", "allowed", "output", ""),
        ("asks", "asked-no", "denied", "asks"),
        ("off", "refused-off", "denied", ""),
        ("denied", "refused-rule", "denied", "denied"),
        ("dear", "refused-ceiling", "denied", ""),
        ("shell", "refused-watchdog", "denied", ""),
        ("allowed", "allowed", "output", "allowed"),
        ("lacking", "allowed", "unavailable", ""),
        ("bug", "allowed", "internal", ""),
        ("slow", "allowed", "timed_out", ""),
        ("fine", "invalid", "invalid_input", ""),
        ("asks", "asked-yes", "output", "asks"),
        ("asks", "asked", "pending", "asks"),
        ("xxxxxxxx", "unknown", "unknown_tool", ""),
        ("forever", "allowed", "cancelled", ""),
    ]
    assert checked(tmp_path).problems == []


UNSEEN: tuple[JsonValue, ...] = (float("nan"), "\ud800", json.loads("[" * 900 + "]" * 900), 10**5000)


async def test_values_are_recorded_when_the_operator_wants_them_also_what_no_tool_may_see(
    tmp_path: Path,
) -> None:
    with recording(tmp_path, values=True) as at:
        await call(at, "write_file", {"path": "a", "content": "TOKEN=hunter2 ok"})
        await call(at, "read_file", {"path": "/etc/passwd"})
        for value in UNSEEN:
            await call(at, "read_file", {"x": value})
    written(tmp_path, "a\ud800")
    first, outside, *invalid, last = lines(tmp_path)
    assert (first["about"], outside["about"]) == ("a", "/etc/passwd")
    assert first["arguments"] == {"path": "a", "content": "TOKEN=[redacted] ok"}
    assert outside["verdict"] == "refused-path"
    assert [line["verdict"] for line in invalid] == ["invalid"] * len(UNSEEN)
    assert last["name"] == "a\ud800"
    assert checked(tmp_path).problems == []


SECRETS: dict[str, tuple[JsonValue, JsonValue]] = {
    "by-name": (
        {"API_KEY": "x", "user": "me", "nested": [{"password": 1}]},
        {"API_KEY": "[redacted]", "user": "me", "nested": [{"password": "[redacted]"}]},
    ),
    "bearer": ("curl -H 'Authorization: Bearer abc.def-1' x", "curl -H 'Authorization: Bearer [redacted]' x"),
    "basic": ("Basic dXNlcjpwYXNz", "Basic [redacted]"),
    "url": ("git clone https://me:hunter2@host/x", "git clone https://me:[redacted]@host/x"),
    "assignment": ("export DB_PASSWORD=hunter2; ls", "export DB_PASSWORD=[redacted]; ls"),
    "json": ('{"client_secret": "hunter2", "a": 1}', '{"client_secret": "[redacted]", "a": 1}'),
    "option": ("x --api-key hunter2 -y", "x --api-key [redacted] -y"),
    "quoted-option": ("x --db-password 'hunter2' y", "x --db-password '[redacted]' y"),
    "aws": ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
    "github": ("ghp_" + "a1" * 18, "[redacted]"),
    "github-fine": ("github_pat_" + "a1_" * 18, "[redacted]"),
    "gitlab": ("glpat-" + "a1" * 10, "[redacted]"),
    "openai": ("sk-proj-" + "a1" * 18, "[redacted]"),
    "slack": ("xoxb-123456789012-abcdef", "[redacted]"),
    "google": ("AIza" + "a1" * 18, "[redacted]"),
    "jwt": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_1", "[redacted]"),
    "pem": ("a -----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY----- b", "a [redacted] b"),
    "pem-without-end": ("a -----BEGIN PRIVATE KEY-----\nAAAA", "a [redacted]"),
    "control": ("def tokenize(text): return text.split()", "def tokenize(text): return text.split()"),
    "numbers": ([1, 2.5, None, True], [1, 2.5, None, True]),
    "long": ("x" * 2_500, "x" * 2_000 + "[500 more characters]"),
}  # fmt: skip


def test_what_looks_like_a_secret_is_blanked() -> None:
    assert {name: redacted(value) for name, (value, _) in SECRETS.items()} == {
        name: kept for name, (_, kept) in SECRETS.items()
    }


STARTS = ("eyJ", "-----BEGIN RSA PRIVATE KEY-----", "password=", "://", "--a-a-a-", "bearer ", "sk-", "a")


@pytest.mark.rounds
def test_blanking_takes_linear_time() -> None:
    """It would take hours if it did not."""
    for piece in STARTS:
        assert redacted(piece * (rounds(100_000, 1_000_000) // len(piece)))


def only_file(folder: Path) -> Path:
    (file,) = (folder / "state/audit").glob("*.jsonl")
    return file


Damage = Callable[[list[bytes]], Iterable[bytes]]

DAMAGES: dict[str, tuple[Damage, str]] = {
    "changed byte": (lambda ls: [*ls[:2], ls[2].replace(b'"c"', b'"x"'), *ls[3:]], "line 4: it or the"),
    "changed first": (lambda ls: [ls[0].replace(b'"a"', b'"x"'), *ls[1:]], "line 2: it or the line before"),
    "changed last": (lambda ls: [*ls[:4], ls[4].replace(b'"e"', b'"x"')], "line 5, the last one"),
    "removed": (lambda ls: [*ls[:2], *ls[3:]], "line 3: 1 line is missing before it"),
    "removed first": (lambda ls: ls[1:], "line 1: the lines before it are missing"),
    "cut tail": (lambda ls: ls[:3], "the last 2 lines are of the log cut off"),
    "all cut": (lambda _: [], "the last 5 lines are of the log cut off"),
    "swapped": (lambda ls: [ls[0], ls[2], ls[1], *ls[3:]], "line 2: 1 line is missing before it"),
    "doubled": (lambda ls: [*ls[:2], ls[1], *ls[2:]], "line 3: line 2 of the log comes after line 2"),
    "inserted": (lambda ls: [*ls[:2], b'{"n":3,"prev":"00"}\n', *ls[2:]], "line 3: it or the line before"),
    "appended": (lambda ls: [*ls, b'{"n":6,"prev":"00"}\n'], "after the last one that a server finished"),
    "garbage": (lambda ls: [*ls[:2], b"garbage\n", *ls[2:]], "line 3 is no line of this log"),
    "cut in a line": (lambda ls: [*ls[:4], ls[4][:20]], "line 5 is not finished"),
    "begun anew": (lambda ls: [*ls[:2], ls[0], *ls[2:]], "line 3: the log begins anew"),
}  # fmt: skip


def test_a_change_of_the_log_shows(tmp_path: Path) -> None:
    written(tmp_path, *"abcde")
    assert checked(tmp_path) == VerificationReport(lines=5, files=1)
    file = only_file(tmp_path)
    whole = file.read_bytes().splitlines(keepends=True)
    unseen: dict[str, VerificationReport] = {}
    for name, (damage, says) in DAMAGES.items():
        file.write_bytes(b"".join(damage(whole)))
        found = checked(tmp_path)
        if not any(says in problem for problem in found.problems):
            unseen[name] = found
    assert unseen == {}


@pytest.mark.parametrize("left", [None, b"{}"], ids=["removed", "damaged"])
def test_a_lost_head_shows_and_the_next_server_goes_on(
    left: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path, "a", "b")
    head = tmp_path / "state/audit/head"
    head.unlink() if left is None else head.write_bytes(left)
    assert any("head is missing or damaged" in problem for problem in checked(tmp_path).problems)
    written(tmp_path, "c")
    assert "head of the audit log was lost" in caplog.text
    assert [line["name"] for line in lines(tmp_path)] == ["a", "b", "c"]
    assert any("begins anew" in problem for problem in checked(tmp_path).problems)


def test_cutting_the_log_between_two_servers_shows(tmp_path: Path) -> None:
    for name in "ab":
        written(tmp_path, name)
    file = only_file(tmp_path)
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    written(tmp_path, "c")
    assert checked(tmp_path).problems == ["000001.jsonl line 2: 1 line is missing before it"]


def test_a_log_that_is_removed_under_a_running_server_shows(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    note(audit, "a")
    only_file(tmp_path).unlink()
    note(audit, "b")
    audit.close()
    assert [line["name"] for line in lines(tmp_path)] == ["b"]
    assert checked(tmp_path).problems == ["000001.jsonl line 1: the lines before it are missing"]


def test_a_server_killed_while_it_wrote_is_named_and_breaks_nothing(tmp_path: Path) -> None:
    for number, torn in enumerate((b'{"n":3,"time', b'{"n":3,"prev":"00"}\n', b"\0\0\n\0")):
        folder = tmp_path / str(number)
        written(folder, "a", "b")
        with only_file(folder).open("ab") as file:
            file.write(torn)
        if b"\n" not in torn:
            found = checked(folder)
            assert found.problems == []
            assert found.notes == ["000001.jsonl ends with a piece of a line: a server was killed"]
        written(folder, "c", "d")
        found = checked(folder)
        assert found.problems == []
        assert len(found.notes) == 1
        assert "left by a server that was killed" in found.notes[0]


def test_files_are_rotated_in_one_chain_and_the_oldest_removed(tmp_path: Path) -> None:
    for _ in range(4):
        written(tmp_path, *"abcde", file_bytes=1_000, files=3)
    names = sorted(file.name for file in (tmp_path / "state/audit").glob("*.jsonl"))
    assert len(names) == 3
    assert names[0] != "000001.jsonl"
    found = checked(tmp_path, kept=3)
    assert found.problems == []
    assert found.notes == [f"files before {names[0]} were removed: the log keeps 3"]
    (tmp_path / "state/audit" / names[1]).unlink()
    problems = checked(tmp_path, kept=3).problems
    assert f"{names[1]} is missing" in problems
    assert any("missing before it" in problem for problem in problems)


def test_several_servers_share_one_chain(tmp_path: Path) -> None:
    script = (
        "from mcp_toolserver.pipeline.call_record import CallRecord\n"
        "from mcp_toolserver.stores.audit_log import AuditContext, AuditLog\n"
        "audit = AuditLog(sys.argv[1], AuditContext(mode='read-only', layers={}, file_bytes=50_000))\n"
        "async def main():\n"
        "    for number in range(100):\n"
        "        call = CallRecord(name=sys.argv[2], session='', arguments={})\n"
        "        assert await audit.begin(call) is None and await audit.end(call) is None\n"
        "import anyio\n"
        "anyio.run(main)\n"
        "audit.close()\n"
    )
    running = [subprocess.Popen(python(script, str(tmp_path / "state"), name)) for name in "ab"]
    assert [process.wait(60) for process in running] == [0, 0]
    found = checked(tmp_path, kept=8)
    assert found.problems == []
    kept = lines(tmp_path)
    assert kept[-1]["n"] == 200
    assert len({line["server"] for line in kept}) > 1


def test_a_head_is_of_constant_length_and_read_back() -> None:
    head = ChainHead(file=10**6, size=10**9, lines=10**12, hash="f" * 64)
    assert len(head.encode()) == len(ChainHead().encode()) == 256
    assert ChainHead.decode(head.encode()) == head


RECORDED = """
import anyio, json
from pathlib import Path
from tests.stores.test_audit import Person, opened, recorded
folder = Path(sys.argv[1])
audit = opened(folder)
at = recorded(folder, audit)
"""
"""A program with a dispatcher whose calls are recorded."""

FULL = f"""{RECORDED}
import resource
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
async def write(name):
    result = await at.call("write_file", {{"path": name, "content": "x"}}, Person())
    return result.error, result.text
async def main():
    wrote = [await write("a")]
    limit(len((folder / "state/audit/000001.jsonl").read_bytes()) + 100)
    wrote += [await write("b"), await write("c"), await write("d")]
    read = await at.call("read_file", {{"path": "a"}}, Person())
    wrote += [(read.error, read.text)]
    limit(resource.RLIM_INFINITY)
    wrote += [await write("e")]
    audit.close()
    print(json.dumps(wrote))
anyio.run(main)
"""


def test_when_a_line_does_not_fit_the_answer_is_withheld_and_nothing_runs_until_it_does(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        python(FULL, str(tmp_path)), capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    report = json.loads(done.stdout)
    assert [error for error, _ in report] == [None, *["unavailable"] * 4, None]
    assert "result is withheld" in report[1][1]
    assert "calls are not run unrecorded" in report[2][1]
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == ["a", "b", "e"]
    assert done.stderr.count("the audit log cannot be written") == 1
    kept = lines(tmp_path)
    assert [(line["name"], line.get("unrecorded")) for line in kept] == [
        ("write_file", None),
        ("write_file", 3),
        ("write_file", None),
    ]
    assert checked(tmp_path).problems == []
    assert checked(tmp_path).notes == []


@contextmanager
def locked(folder: Path) -> Generator[None]:
    other = os.open(folder / "state/audit/head", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(other)


async def test_a_log_that_another_process_holds_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "LOCK_TIMEOUT_SECONDS", 0.2)
    with recording(tmp_path) as at:
        with locked(tmp_path):
            assert (await call(at, "read_file", {"path": "a"})).error == "unavailable"
        assert (await call(at, "read_file", {"path": "a"})).error == "not_found"
    assert [line["outcome"] for line in lines(tmp_path)] == ["not_found", "not_found"]


@pytest.fixture
def long_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is waited for as long as the test takes on a busy machine."""
    monkeypatch.setattr(audit_log, "LOCK_TIMEOUT_SECONDS", PATIENCE)


@pytest.mark.usefixtures("long_lock")
async def test_calls_that_end_while_the_log_is_locked_are_written_once_and_in_order(tmp_path: Path) -> None:
    async def done(_: Args, __: Runtime) -> Output:
        return Output("done")

    audit = opened(tmp_path)
    at = recorded(tmp_path, audit, tool(done))
    results: list[Result] = []

    async def probe(name: str) -> None:
        results.append(await call(at, "probe", {}, Person(name=name)))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            with locked(tmp_path):
                for name in "abc":
                    tasks.start_soon(probe, name)
                    await anyio.wait_all_tasks_blocked()
                assert (results, lines(tmp_path)) == ([], [])
    audit.close()
    assert [result.error for result in results] == [None] * 3
    assert [line["session"] for line in lines(tmp_path)] == ["a", "b", "c"]
    assert checked(tmp_path).problems == []


@pytest.mark.usefixtures("long_lock")
async def test_a_call_that_is_cancelled_while_the_log_is_locked_is_written_once(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    at = recorded(tmp_path, audit, tool(forever))
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(at.call, "probe", {}, Person())
            await anyio.wait_all_tasks_blocked()
            with locked(tmp_path):
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.wait_all_tasks_blocked()
                assert lines(tmp_path) == []
    assert [line["outcome"] for line in lines(tmp_path)] == ["cancelled"]
    audit.close()
    assert [line["outcome"] for line in lines(tmp_path)] == ["cancelled"]


@pytest.mark.usefixtures("long_lock")
async def test_no_call_starts_while_the_line_of_another_is_not_written(tmp_path: Path) -> None:
    ran: list[str] = []

    async def run(_: Args, rt: Runtime) -> Output:
        ran.append("ran")
        return Output("")

    audit = opened(tmp_path)
    at = recorded(tmp_path, audit, tool(run))
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            with locked(tmp_path):
                tasks.start_soon(at.call, "probe", {}, Person())
                await anyio.wait_all_tasks_blocked()
                waiting = anyio.CancelScope()

                async def leave() -> None:
                    with waiting:
                        await at.call("probe", {}, Person())

                tasks.start_soon(leave)
                tasks.start_soon(at.call, "probe", {}, Person())
                await anyio.wait_all_tasks_blocked()
                assert ran == ["ran"]
                waiting.cancel()
    audit.close()
    # The one that was cancelled before it began did not run and has no line.
    assert ran == ["ran", "ran"]
    assert [line["outcome"] for line in lines(tmp_path)] == ["output", "output"]


@pytest.mark.usefixtures("long_lock")
async def test_a_log_that_is_closed_while_a_call_waits_for_its_lock_has_its_line(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    at = recorded(tmp_path, audit)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            with locked(tmp_path):
                tasks.start_soon(call, at, "read_file", {"path": "a"})
                await until(lambda: audit._waiting)
            audit.close()
    assert [line["outcome"] for line in lines(tmp_path)] == ["not_found"]


async def test_a_log_that_is_closed_while_another_process_keeps_it_locked_withholds_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolserver.stores.file_lock.LOCK_TIMEOUT_SECONDS", 0.01)
    audit = opened(tmp_path)
    at = recorded(tmp_path, audit)
    with locked(tmp_path):
        async with anyio.create_task_group() as tasks:

            async def close() -> None:
                await until(lambda: audit._waiting)
                audit.close()

            tasks.start_soon(close)
            assert (await call(at, "read_file", {"path": "a"})).error == "unavailable"
    assert lines(tmp_path) == []


def test_a_log_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state/audit").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match="choose another --state-dir"):
        opened(tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "state/audit").unlink()
    (tmp_path / "state/audit/head").mkdir(parents=True)
    with pytest.raises(SettingsError, match="choose another --state-dir"):
        opened(tmp_path)
    (tmp_path / "state/audit/head").rmdir()
    (tmp_path / "state/audit/000002.jsonl").symlink_to(tmp_path / "elsewhere" / "a")
    (tmp_path / "state/audit/000001.jsonl").mkdir()
    opened(tmp_path).close()
    assert list((tmp_path / "elsewhere").iterdir()) == []


Show = Callable[..., Any]


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Show:
    """What the command prints when it ends with this status."""

    def show(status: int = 0, **asked: Any) -> Any:
        assert log(str(tmp_path / "state"), Invocation(**asked)) == status
        return capsys.readouterr()

    return show


def test_log_prints_a_row_for_each_call(tmp_path: Path, shown: Show) -> None:
    audit = opened(tmp_path)
    call_ = CallRecord(name="x", session="evil\x1b[2J\u202e\n", arguments={})
    at_once(audit.begin(call_))
    at_once(audit.end(call_))
    audit.close()
    with only_file(tmp_path).open("ab") as file:
        file.write(b"\x1b[2J\n")
    head, row, bad = shown().out.splitlines()
    assert " ".join(head.split()) == "time tool verdict outcome ms bytes user session about rule"
    assert "unknown_tool" in row
    assert "evil\\u{1b}[2J\\u{202e}\\n" in row
    assert bad == "(no line of the log: '\\\\u{1b}[2J')"


def test_log_prints_the_last_calls_that_are_asked_for_and_what_they_are_about(
    tmp_path: Path, shown: Show
) -> None:
    audit = opened(tmp_path)
    for number in range(60):
        about = (f"p{number}", "ls") if number % 2 else ("curl -H 'Authorization: Bearer abcdefgh'",)
        one = CallRecord(name="n", session=f"editor {number % 3}", arguments={}, about=about)
        one.tool, one.verdict = "bash" * (number % 2), "refused-rule" if number % 5 else "allowed"
        at_once(audit.begin(one))
        at_once(audit.end(one))
    audit.close()

    def rows(**asked: Any) -> list[str]:
        return shown(**asked).out.splitlines()[1:]

    assert len(rows()) == 50
    assert rows(last=1)[0].endswith("editor 2              p59; ls")
    assert rows(last=2)[0].endswith("curl -H 'Authorization: Bearer [redacted]'")
    for asked, count in (
        ({}, 60),
        ({"tool": "bash"}, 30),
        ({"tool": "bas"}, 0),
        ({"session": "editor 1"}, 20),
        ({"verdict": "refused"}, 48),
        ({"tool": "bash", "session": "editor 1", "verdict": "allowed"}, 2),
    ):
        assert len(rows(last=0, **asked)) == count


def test_log_prints_the_lines_themselves_as_json(tmp_path: Path, shown: Show) -> None:
    written(tmp_path, "a", "ü\u202e", file_bytes=1)
    printed = shown(json=True).out
    assert printed.isascii()
    assert [json.loads(line)["name"] for line in printed.splitlines()] == ["a", "ü\u202e"]


def test_log_says_so_when_there_is_none_or_it_cannot_be_read(tmp_path: Path, shown: Show) -> None:
    assert "Nothing is recorded" in shown().err
    said = shown(verify=True).out
    assert "Nothing is recorded" in said
    assert "chain" not in said
    (tmp_path / "state/audit/000001.jsonl").mkdir(parents=True)
    assert "cannot be read" in shown(1).err


def test_verify_exits_with_1_and_says_what_is_wrong_and_where(tmp_path: Path, shown: Show) -> None:
    written(tmp_path, "a", "b", "c")
    assert shown(verify=True).out == "3 lines in 1 files: the chain is whole.\n"
    file = only_file(tmp_path)
    with file.open("ab") as out:
        out.write(b"{")
    assert "note: 000001.jsonl ends with a piece of a line" in shown(verify=True).out
    file.write_bytes(file.read_bytes().replace(b'"b"', b'"x"').removesuffix(b"{"))
    assert "WRONG: 000001.jsonl line 3: it or the line before it was changed" in shown(1, verify=True).out
    assert json.loads(shown(1, verify=True, json=True).out)["ok"] is False


SHOW = (
    "from mcp_toolserver.command_line import Invocation\n"
    "from mcp_toolserver.commands.log import log\n"
    "sys.exit(log(sys.argv[1], Invocation(follow=sys.argv[2] == 'follow', json=True)))\n"
)


async def test_follow_prints_what_comes_over_files_until_it_is_interrupted(tmp_path: Path) -> None:
    out = tmp_path / "printed"
    with out.open("wb") as printed:
        showing = subprocess.Popen(python(SHOW, str(tmp_path / "state"), "follow"), stdout=printed)

    def names() -> list[str]:
        whole = out.read_bytes()[: out.read_bytes().rfind(b"\n") + 1]
        return [json.loads(line)["name"] for line in whole.splitlines()]

    try:
        audit = opened(tmp_path, file_bytes=600)
        note(audit, "a", "b")
        await until(lambda: names() == ["a", "b"])
        note(audit, "c", "d", "e")
        await until(lambda: names() == ["a", "b", "c", "d", "e"])
        audit.close()
        showing.send_signal(signal.SIGINT)
        assert showing.wait(PATIENCE) == 0
    finally:
        showing.kill()
        showing.wait()


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    written(tmp_path, *(["x" * 100] * 500))
    reading, writing = os.pipe()
    showing = subprocess.Popen(
        python(SHOW, str(tmp_path / "state"), "once"), stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    _, errors = showing.communicate(timeout=PATIENCE)
    assert showing.returncode == 0
    assert b"BrokenPipe" not in errors
