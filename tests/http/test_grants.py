"""The file of named tokens: what it may say, when it is read again, and the command that changes it."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server
from starlette.types import ASGIApp

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.commands.token import expiry, token
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.protocol.http.members import Member, NamedTokens, many_tokens
from mcp_toolserver.protocol.http.request_checks import INVALID_TOKEN
from mcp_toolserver.protocol.http.tokens import (
    MAX_SIZE,
    Grant,
    GrantFile,
    ServerLimits,
    parse_grants,
    token_hash,
)
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter, LimiterOfName, RequestLimits
from mcp_toolserver.protocol.refusals import FULL, NO_TOKENS, Refusal

HASH = "a" * 64
WRITE = Permission.WORKSPACE_WRITE


def table(name: str = "ann", sha256: str = HASH, mode: str = "read-only", more: str = "") -> str:
    return f'[{name}]\nsha256 = "{sha256}"\npermission-mode = "{mode}"\n{more}\n'


def parsed(
    text: str, *, ceiling: Permission = WRITE, roots: tuple[str, ...] = ("/srv",)
) -> Mapping[str, Grant]:
    return parse_grants(text, ServerLimits(ceiling=ceiling, roots=roots))


def test_a_table_gives_a_name_its_terms() -> None:
    limits = "calls-per-minute = 60\nmax-calls = 4\nexpires = 2030-01-01T01:00:00+01:00"
    more = f'roots = ["/srv/a", "/srv"]\n{limits}'
    (grant,) = parsed(table(mode="workspace-write", more=more)).values()
    assert grant == Grant(
        name="ann",
        sha256=(HASH,),
        ceiling=WRITE,
        roots=("/srv/a", "/srv"),
        per_minute=60,
        max_calls=4,
        expires=datetime(2030, 1, 1, tzinfo=UTC),
    )
    assert HASH not in repr(grant)
    assert parsed("") == {}


WRONG: Sequence[tuple[str, str]] = (
    ("ann", "not TOML"),
    ("ann = 1", r"\[ann\]"),
    (table("'a b'"), "'a b' is no name"),
    (table(more="root = []"), r"\[ann\] has the unknown key 'root'"),
    (table(sha256="A" * 64), r"\[ann\] sha256"),
    (table().replace(f'"{HASH}"', "[]"), r"\[ann\] sha256"),
    (table().replace(f'"{HASH}"', f'["{HASH}", 1]'), r"\[ann\] sha256"),
    ("[ann]\npermission-mode = 'read-only'", r"\[ann\] sha256"),
    (table(mode="root"), r"\[ann\] permission-mode must"),
    (table(mode="danger-full-access"), r"\[ann\] permission-mode .* above"),
    (table(more="roots = []"), r"\[ann\] roots must"),
    (table(more='roots = ["srv"]'), "absolute"),
    (table(more="roots = [1]"), "absolute"),
    (table(more='roots = ["/srv/../etc"]'), "lies in no root"),
    (table(more="max-calls = 0"), r"\[ann\] max-calls"),
    (table(more="max-calls = true"), r"\[ann\] max-calls"),
    (table(more='calls-per-minute = "9"'), "calls-per-minute"),
    (table(more="expires = 2030-01-01T00:00:00"), "with a zone"),
    (table(more='expires = "soon"'), "with a zone"),
    (table() + table("ben"), r"\[ben\] and \[ann\] have the same token"),
)


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    for text, why in WRONG:
        with pytest.raises(SettingsError, match=why):
            parsed(text)
    # Where nothing confines calls, nothing keeps them in the roots.
    text = table(mode="danger-full-access", more='roots = ["/srv"]')
    with pytest.raises(SettingsError, match="do not hold"):
        parsed(text, ceiling=Permission.DANGER_FULL_ACCESS)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to("/etc")
    with pytest.raises(SettingsError, match="lies in no root"):
        parsed(table(more=f'roots = ["{tmp_path}/root/link"]'), roots=(f"{tmp_path}/root",))


class Book:
    """A file of tokens, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tokens.toml"
        self.now = 10.0**10
        self.put(table(sha256=token_hash(b"one")))
        limits = ServerLimits(ceiling=WRITE, roots=("/",))
        self.file = GrantFile(str(self.path), limits, now=lambda: self.now)

    def put(self, text: str | bytes) -> None:
        self.path.touch(0o600)
        self.path.write_bytes(text.encode() if isinstance(text, str) else text)


def test_the_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    at = Book(tmp_path)
    found = at.file.find(b"one")
    assert found is not None
    assert at.file.find(b"one") is found
    assert at.file.find(b"other") is None
    at.put(table("ben", sha256=token_hash(b"other")))
    assert at.file.find(b"one") is None
    assert at.file.find(b"other") is not None
    # A change that leaves time and size the same is seen, while the file is new.
    at.now = at.path.stat().st_mtime
    before = at.path.stat()
    at.put(table("ben", sha256=token_hash(b"third")))
    os.utime(at.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert at.file.find(b"other") is None


def test_a_token_ends_at_its_time(tmp_path: Path) -> None:
    at = Book(tmp_path)
    at.put(table(sha256=token_hash(b"one"), more="expires = 2500-01-01T00:00:00Z"))
    assert at.file.find(b"one") is not None
    at.now = datetime(2500, 1, 1, tzinfo=UTC).timestamp()
    assert at.file.find(b"one") is None
    assert at.file.grants() == {}


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


SPOILS: Mapping[str, Callable[[Path], object]] = {
    "not TOML": lambda path: path.write_text("[", encoding="utf-8"),
    "chmod 600": lambda path: path.chmod(0o640),
    "No such file": lambda path: path.unlink(),
    "regular": _fifo,
    "larger": lambda path: path.write_bytes(b"#" * (MAX_SIZE + 1)),
    "UTF-8": lambda path: path.write_bytes(b"\xff"),
}
"""What makes a file unusable, by what is said of it."""


def test_a_file_that_cannot_be_used_accepts_no_token_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at = Book(tmp_path)
    for why, spoil in SPOILS.items():
        caplog.clear()
        assert at.file.find(b"one") is not None
        assert at.file.check() == ""
        spoil(at.path)
        for given in (b"one", b"other"):
            assert at.file.find(given) is None
            assert why in at.file.problem
        assert at.file.grants() == {}
        assert why in at.file.check()
        assert len(caplog.records) == 1
        with pytest.raises(SettingsError, match="--tokens"):
            GrantFile.opened(str(at.path), ServerLimits(ceiling=WRITE, roots=("/",)))
        at.path.unlink(missing_ok=True)
        at.put(table(sha256=token_hash(b"one")))
    assert at.file.find(b"one") is not None


def test_each_hash_is_compared_whole_and_none_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def compare(one: str, other: str) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    at = Book(tmp_path)
    at.put("".join(table(name, sha256=token_hash(name.encode())) for name in ("ann", "ben", "cleo")))
    for name in ("ann", "cleo", "nobody"):
        compared.clear()
        at.file.find(name.encode())
        assert compared == [token_hash(one) for one in (b"ann", b"ben", b"cleo")]


def test_a_name_has_limits_of_its_own_within_those_of_the_server() -> None:
    server = ConcurrencyLimiter(RequestLimits(requests=2, of_one=2))
    limits = RequestLimits(requests=1, of_one=1)
    ann, ben = LimiterOfName("ann", limits, server), LimiterOfName("ben", limits, server)
    assert ann.acquire("one", "tools/call") is None
    assert getattr(ann.acquire("other", "tools/call"), "status", 0) == 429
    assert ben.acquire("one", "tools/call") is None
    cleo = LimiterOfName("cleo", limits, server)
    assert cleo.acquire("one", "ping") is FULL
    ben.release("one")
    assert cleo.acquire("one", "ping") is None


async def test_a_name_that_is_revoked_while_a_request_waits_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The request comes when the server of the name is ending, and its name is gone when that has ended.

    That this server fails to end what its clients made ends the server of no other name.
    """
    at = Book(tmp_path)
    ending, go_on = anyio.Event(), anyio.Event()

    @asynccontextmanager
    async def endpoint(_: Server[Any], __: ConcurrencyLimiter) -> AsyncGenerator[ASGIApp]:
        async def app(*_: object) -> None: ...

        yield app

    @asynccontextmanager
    async def build(_: Grant) -> AsyncGenerator[Server[Any]]:
        try:
            yield Server("one")
        finally:
            ending.set()
            with anyio.CancelScope(shield=True):
                await go_on.wait()
            raise OSError("something does not end")

    limiter = ConcurrencyLimiter(RequestLimits())
    answers: list[Member | Refusal] = []
    with anyio.fail_after(10):
        async with many_tokens(NamedTokens(file=at.file, build=build), endpoint, limiter) as members:

            async def ask() -> None:
                answers.append(await members.of(b"one"))

            first = await members.of(b"one")
            assert isinstance(first, Member)
            assert await members.of(b"one") is first
            with first.request():
                # Another mode: the name gets another server, once this request has ended.
                at.put(table(sha256=token_hash(b"one"), mode="workspace-write"))
                async with anyio.create_task_group() as group:
                    group.start_soon(ask)
                    with anyio.move_on_after(5):
                        await ending.wait()
                    assert first.disconnects.ended.is_set()
                    at.put(table("ben", sha256=token_hash(b"one")))
                    go_on.set()
            assert answers == [INVALID_TOKEN]
            second: Any = await members.of(b"one")
            assert second.grant.name == "ben"
            at.put("[")
            assert await members.of(b"one") is NO_TOKENS
    assert second.disconnects.ended.is_set()
    assert "The server of the name ann failed and is closed; the others go on" in caplog.text


def run(folder: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> int:
    invocation = load(["token", *arguments, "--tokens", f"{folder}/etc/tokens.toml"], environ or {})
    return token(invocation)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path


def test_a_name_is_added_listed_and_revoked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--permission-mode", "read-only", "--root", f"{folder}/work", "--max-calls", "3")
    assert run(folder, "add", "ann", *flags, "--calls-per-minute", "9", "--expires", "2w") == 0
    shown = capsys.readouterr().out.strip()
    file = folder / "etc/tokens.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert shown not in file.read_text(encoding="utf-8")
    (grant,) = parsed(file.read_text(encoding="utf-8"), roots=("/",)).values()
    assert grant.expires is not None
    assert grant == Grant(
        name="ann",
        sha256=(token_hash(shown.encode()),),
        ceiling=Permission.READ_ONLY,
        roots=(str(folder / "work"),),
        per_minute=9,
        max_calls=3,
        expires=grant.expires,
    )
    file.write_text(f"# ours\n{file.read_text(encoding='utf-8')}# the end\n", encoding="utf-8")
    assert run(folder, "add", "ben", "--permission-mode", "workspace-write") == 0
    capsys.readouterr()
    assert run(folder, "list") == 0
    head, ann, ben = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "name"
    assert ann.split()[:5] == ["ann", "read-only", f"{folder}/work", "9", "3"]
    assert ben.split() == ["ben", "workspace-write", "all", "-", "-", "never"]
    assert run(folder, "revoke", "ann") == 0
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# ours\n")
    assert list(parsed(text)) == ["ben"]
    assert os.listdir(folder / "etc") == ["tokens.toml"]
    file.write_text(table(more="expires = 2020-01-01T00:00:00Z"), encoding="utf-8")
    assert run(folder, "list") == 0
    assert "2020-01-01T00:00:00Z (over)" in capsys.readouterr().out


def test_a_new_token_leaves_the_last_one_until_the_next(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder, "add", "ann", "--permission-mode", "read-only", "--max-calls", "3")
    run(folder, "rotate", "ann")
    run(folder, "rotate", "ann", "--expires", "2w")
    first, second, third = capsys.readouterr().out.split()
    (grant,) = parsed((folder / "etc/tokens.toml").read_text(encoding="utf-8")).values()
    assert grant.sha256 == (token_hash(third.encode()), token_hash(second.encode()))
    assert (grant.max_calls, grant.expires is None) == (3, False)
    assert first not in (second, third)


def test_what_cannot_be_done_changes_nothing(folder: Path) -> None:
    reading = ("add", "ann", "--permission-mode", "read-only")
    for arguments, why in (
        (("add", "ann"), "permission-mode"),
        (("add", "a b", *reading[2:]), "no name"),
        ((*reading, "--root", "/absent"), "folder"),
        ((*reading, "--expires", "1y"), "give 12h"),
        ((*reading, "--expires", "2020-01-01T00:00:00Z"), "over"),
        (("revoke", "ann"), "no token of the name"),
        (("rotate", "ann"), "no token of the name"),
        (("revoke",), "NAME"),
        (("list", "ann"), "NAME"),
    ):
        with pytest.raises(SettingsError, match=why):
            run(folder, *arguments)
        assert os.listdir(folder / "etc") == []


def test_a_name_has_one_token_and_stays_within_the_server(folder: Path) -> None:
    (folder / "other").mkdir()
    run(folder, "add", "ann", "--permission-mode", "read-only")
    before = (folder / "etc/tokens.toml").read_bytes()
    for arguments, environ, why in (
        (("ann", "--permission-mode", "read-only"), {}, "already"),
        (
            ("ben", "--permission-mode", "workspace-write"),
            {"MCP_TOOLSERVER_PERMISSION_MODE": "read-only"},
            "above",
        ),
        (
            ("ben", "--permission-mode", "read-only", "--root", f"{folder}/other"),
            {"MCP_TOOLSERVER_ROOT": f"{folder}/work"},
            "lies in no root",
        ),
    ):
        with pytest.raises(SettingsError, match=why):
            run(folder, "add", *arguments, environ=environ)
        assert (folder / "etc/tokens.toml").read_bytes() == before


def test_a_file_that_cannot_be_used_stays_as_it_is(folder: Path) -> None:
    file = folder / "etc/tokens.toml"
    file.touch(0o600)
    for text in ("[", "[ann]\nsha256 = 1\n"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(SettingsError, match=r"tokens\.toml"):
            run(folder, "add", "ben", "--permission-mode", "read-only")
        assert file.read_text(encoding="utf-8") == text
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod"):
        run(folder, "list")
    with pytest.raises(SettingsError, match="cannot be opened"):
        run(folder / "absent", "add", "ben", "--permission-mode", "read-only")
    with pytest.raises(SettingsError, match="cannot be read"):
        run(folder / "absent", "list")
    invocation = load(["token", "list"], {})
    with pytest.raises(SettingsError, match="--tokens FILE"):
        token(invocation)


def test_a_time_is_a_span_from_now_or_a_date_with_a_zone() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert expiry("90d", now) == now + timedelta(days=90)
    assert expiry("12h", now) == now + timedelta(hours=12)
    assert expiry("2030-01-02T00:00:00+02:00", now) == datetime(2030, 1, 1, 22, tzinfo=UTC)
    for wrong in ("0d", "2030-01-02T00:00:00", "tomorrow", "2030-01-01T00:00:00Z"):
        with pytest.raises(SettingsError):
            expiry(wrong, now)
