"""Tokens for HTTP: the file of a single one, and the file that says which name has which token, and what its
holder may do.

The file of named tokens stores a SHA-256 hash of each token. A fast hash is right for these: the server makes
every token from 256 random bits, so nobody can guess one, and a slow hash would only delay each request. A
token that a human chose would need a slow hash; there is no way to store one.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.json_values import is_list

log = logging.getLogger(__name__)

MIN_TOKEN = 16
"""Characters that a token of the operator must have at least."""

_MAX_TOKEN = 4096

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")

MAX_SIZE = 1 << 20
"""Maximum bytes of the file."""

_SETTLED_SECONDS = 1.0
"""A file that changed within this time is read again at the next look, because a second change may leave its
time and size the same."""

_MODES = {permission.flag: permission for permission in Permission}
_KEYS = ("sha256", "permission-mode", "roots", "calls-per-minute", "max-calls", "expires")

_Value = str | int | float | bool | datetime | list[object] | dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What the holder of a token may do."""

    name: str
    sha256: tuple[str, ...] = field(repr=False)
    """The hashes of its tokens, in hexadecimal: several while one replaces another."""
    ceiling: Permission
    roots: tuple[str, ...] = ()
    """Absolute, links resolved; empty for all roots of the server."""
    per_minute: int = 0
    """Tool calls per minute; 0 is no limit."""
    max_calls: int = 0
    """Requests in progress; 0 is the server's limit for one client."""
    expires: datetime | None = None

    def is_expired(self, now: float) -> bool:
        """Whether it ended before `now`, in seconds since 1970."""
        return self.expires is not None and self.expires.timestamp() <= now

    def permits_like(self, other: "Grant") -> bool:
        """Whether it permits the same, and has one of the tokens of `other`."""
        same = replace(self, expires=None, sha256=()) == replace(other, expires=None, sha256=())
        return same and not set(self.sha256).isdisjoint(other.sha256)


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """What no token can exceed."""

    ceiling: Permission
    roots: tuple[str, ...]


def token_hash(token: bytes) -> str:
    """The hash of a token, as the file has it."""
    return hashlib.sha256(token).hexdigest()


def parse_grants(text: str, limits: ServerLimits) -> Mapping[str, Grant]:
    """The grants in the text of a file, by name. Raises: SettingsError: it is wrong; names the entry."""
    try:
        tables: dict[str, _Value] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"it is not TOML: {error}") from None
    grants = {name: _grant(name, table, limits) for name, table in tables.items()}
    names: dict[str, str] = {}
    for grant in grants.values():
        for known in grant.sha256:
            if (other := names.setdefault(known, grant.name)) != grant.name:
                raise SettingsError(f"[{grant.name}] and [{other}] have the same token; give each its own")
    return grants


def _grant(name: str, table: _Value, limits: ServerLimits) -> Grant:
    if not isinstance(table, dict):
        raise SettingsError(f"{name} must be a table, [{name}]")
    if NAME.fullmatch(name) is None:
        raise SettingsError(f"{name!r} is no name; it takes 1 to 64 of A-Z a-z 0-9 . _ - and no first . _ -")
    for key in table:
        if key not in _KEYS:
            raise SettingsError(f"[{name}] has the unknown key {key!r}; choose from {', '.join(_KEYS)}")
    try:
        return Grant(
            name=name,
            sha256=_hashes(table.get("sha256")),
            ceiling=_ceiling(table.get("permission-mode"), limits.ceiling),
            roots=_roots(table, limits),
            per_minute=_count(table, "calls-per-minute"),
            max_calls=_count(table, "max-calls"),
            expires=_expiry(table.get("expires")),
        )
    except ValueError as error:
        raise SettingsError(f"[{name}] {error}") from None


def _hashes(value: object) -> tuple[str, ...]:
    given = value if is_list(value) else [value]
    found = tuple(one for one in given if isinstance(one, str) and _HASH.fullmatch(one))
    if not found or len(found) < len(given):
        raise ValueError(
            "sha256 must be the SHA-256 of a token, 64 hexadecimal digits in lower case, or a list of them"
        )
    return found


def _ceiling(value: object, highest: Permission) -> Permission:
    found = _MODES.get(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"permission-mode must be one of {', '.join(_MODES)}")
    if found > highest:
        raise ValueError(f"permission-mode {found.flag} is above {highest.flag}, the mode of the server")
    return found


def _roots(table: Mapping[str, object], limits: ServerLimits) -> tuple[str, ...]:
    if "roots" not in table:
        return ()
    given = table["roots"]
    if not is_list(given) or not given:
        raise ValueError("roots must be a list of folders; without it, all roots of the server are meant")
    folders = tuple(_root(folder, limits.roots) for folder in given)
    if limits.ceiling is Permission.DANGER_FULL_ACCESS == _MODES[str(table["permission-mode"])]:
        raise ValueError("roots do not hold in danger-full-access, where commands run without a sandbox")
    return folders


def _root(folder: object, roots: Sequence[str]) -> str:
    if not isinstance(folder, str) or not os.path.isabs(folder) or "\0" in folder:
        raise ValueError("roots must be absolute paths")
    real = os.path.realpath(folder)
    if not any(lies_in(os.path.realpath(root), real) for root in roots):
        raise ValueError(f"roots: {folder} lies in no root of the server")
    return real


def _count(table: Mapping[str, object], key: str) -> int:
    value = table.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1_000_000:
        if key not in table:
            return 0
        raise ValueError(f"{key} must be a whole number from 1 to 1000000")
    return value


def _expiry(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise ValueError("expires must be a date and time with a zone, such as 2027-01-31T12:00:00Z")
    return found.astimezone(UTC)


class GrantFile:
    """The file of grants, read again whenever it changes.

    While the file is missing or invalid, no token is accepted: what it says of a name that was revoked is not
    known.
    """

    def __init__(self, path: str, limits: ServerLimits, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._limits = limits
        self._now = now
        self._seen: object = None
        self._grants: Mapping[str, Grant] = {}
        self.problem = ""
        """Why the file cannot be used; empty if it can."""

    @classmethod
    def opened(cls, path: str, limits: ServerLimits) -> "GrantFile":
        """The file at `path`. Raises: SettingsError: it cannot be used."""
        file = cls(path, limits)
        if problem := file._refreshed():
            raise SettingsError(f"--tokens {path}: {problem}")
        return file

    def grants(self) -> Mapping[str, Grant]:
        """The grants that hold now, by name; none while the file cannot be used."""
        problem = self._refreshed()
        if problem and problem != self.problem:
            log.error("no token is accepted until this is corrected: --tokens %s: %s", self._path, problem)
        self.problem = problem
        if problem:
            return {}
        now = self._now()
        return {name: grant for name, grant in self._grants.items() if not grant.is_expired(now)}

    def check(self) -> str:
        """Why the file cannot be used now; empty if it can."""
        self.grants()
        return self.problem

    def find(self, token: bytes) -> Grant | None:
        """The grant of a token; None if there is none. Takes the same time whichever token matches."""
        given = token_hash(token)
        hashes = ((known, grant) for grant in self.grants().values() for known in grant.sha256)
        found = [grant for known, grant in hashes if hmac.compare_digest(known, given)]
        return found[0] if found else None

    def _refreshed(self) -> str:
        """Read the file if it has changed; returns why it cannot be used, or an empty text."""
        try:
            status = os.stat(self._path)
            seen = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            if seen == self._seen:
                return self.problem
            self._grants, self._seen = {}, None
            self._grants = parse_grants(read_private(self._path), self._limits)
        except (SettingsError, OSError) as error:
            self._grants, self._seen = {}, None
            return f"cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)
        if abs(self._now() - max(status.st_mtime, status.st_ctime)) >= _SETTLED_SECONDS:
            self._seen = seen
        return ""


def read_private(path: str) -> str:
    """The text of a file that only this user may read or change. Raises: OSError, SettingsError."""
    content = _private(path, MAX_SIZE + 1)
    if len(content) > MAX_SIZE:
        raise SettingsError(f"larger than {MAX_SIZE} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SettingsError("not UTF-8") from None


def _private(path: str, size: int) -> bytes:
    """The first `size` bytes of a file. Raises: see `read_private`."""
    # Without O_NONBLOCK, opening a FIFO would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # The checks are on what was opened; the name can mean another file meanwhile.
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise SettingsError("not a regular file")
        if mode & 0o077:
            raise SettingsError(f"other users may read or change it. Run: chmod 600 {path}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(size)
    finally:
        os.close(descriptor)


def make_token() -> str:
    """A token that nobody guesses: 256 random bits, fit for a header."""
    return secrets.token_urlsafe(32)


def read_token_file(path: str) -> str:
    """The token in a file, without the white space around it.

    Raises:
        SettingsError: the file is missing, open to others, or holds no usable token. The text never repeats
            its content.
    """
    try:
        token = _private(path, _MAX_TOKEN + 16).strip().decode("latin-1")
    except OSError as error:
        raise SettingsError(f"--token-file {path}: cannot be read ({error.strerror}).") from None
    except SettingsError as error:
        raise SettingsError(f"--token-file {path}: {error}") from None
    if not MIN_TOKEN <= len(token) <= _MAX_TOKEN or not all("!" <= character <= "~" for character in token):
        raise SettingsError(
            f"--token-file {path}: must hold one token of at least {MIN_TOKEN} printable ASCII characters, "
            "without spaces."
        )
    return token
