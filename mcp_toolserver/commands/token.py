"""`token`: adds, lists and revokes the names in a file of tokens, and gives them new tokens.

The command makes each token, so that none can be guessed; the file gets its hash only.
"""

import os
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.setup.files import replaced
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol.http.tokens import (
    NAME,
    Grant,
    ServerLimits,
    make_token,
    parse_grants,
    read_private,
    token_hash,
)
from mcp_toolserver.stores.file_lock import locked
from mcp_toolserver.text.json_values import is_list, is_object

_DURATION = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}

_NEW = "# One table for each name. Change it with: mcp-toolserver token add, rotate, revoke\n"


def token(request: Invocation) -> int:
    """Do what `request` says with the file that `--tokens` names; returns the exit status.

    A name gets at most what the environment or the config file gives the server: its mode, and folders in
    its roots; the whole machine where they say nothing.

    Raises:
        SettingsError: the file, the name or a value is wrong; nothing was changed.
    """
    if request.settings.tokens is None:
        raise SettingsError("name the file of tokens with --tokens FILE, or in the config file")
    ceiling, roots = request.configured.get("permission_mode"), request.configured.get("root")
    limits = ServerLimits(
        ceiling=ceiling if isinstance(ceiling, Permission) else Permission.DANGER_FULL_ACCESS,
        roots=roots if isinstance(roots, tuple) else ("/",),
    )
    path = os.path.realpath(request.settings.tokens)
    if request.what == "list":
        _list(path, limits)
        return 0
    made = make_token()
    _change(path, limits, lambda document: _edit(document, request, token_hash(made.encode())))
    if request.what == "revoke":
        print(f"{request.token_name} is revoked; a running server ends its sessions within a second.")
        return 0
    print(made)
    print(
        f"mcp-toolserver: this is the token of {request.token_name}, shown once. The client sends it in the "
        "header Authorization: Bearer TOKEN.",
        file=sys.stderr,
    )
    return 0


def _edit(document: tomlkit.TOMLDocument, request: Invocation, hashed: str) -> None:
    """Add the name with the hash of its token, give it this token, or revoke it."""
    name = request.token_name
    if request.what == "add":
        if NAME.fullmatch(name) is None:
            raise SettingsError(f"{name!r} is no name; use 1 to 64 of A-Z a-z 0-9 . _ -")
        if "permission-mode" not in request.given:
            raise SettingsError("give the name a --permission-mode")
        if name in document:
            raise SettingsError(f"{name} has a token already; rotate or revoke it")
        document.append(name, tomlkit.item({"sha256": hashed, **_terms(request)}))
        return
    there = name in document
    if there and request.what == "revoke":
        document.remove(name)
        return
    if not there or not is_object(table := document[name]):
        raise SettingsError(f"there is no token of the name {name!r}")
    last = table.get("sha256")
    table["sha256"] = [hashed, last[0] if is_list(last) else last]
    if request.expires:
        table["expires"] = expiry(request.expires, datetime.now(UTC))


def _terms(request: Invocation) -> dict[str, object]:
    """What the name may do: the flags that were given."""
    settings = request.settings
    terms: dict[str, object] = {"permission-mode": settings.permission_mode.flag}
    if "root" in request.given:
        if others := [root for root in settings.root if not os.path.isdir(root)]:
            raise SettingsError(f"--root {others[0]}: not a folder")
        if settings.read_only_roots:
            raise SettingsError(
                "--root: those of a token have no mode of their own; the server's keep theirs"
            )
        terms["roots"] = [os.path.realpath(root) for root in settings.root]
    limits = {"calls-per-minute": settings.calls_per_minute, "max-calls": settings.max_calls}
    terms |= {name: limit for name, limit in limits.items() if name in request.given}
    if request.expires:
        terms["expires"] = expiry(request.expires, datetime.now(UTC))
    return terms


def expiry(text: str, now: datetime, flag: str = "--expires") -> datetime:
    """The time that `text` means: `90d`, `12h` or `2w` from now, or a date and time with a zone.

    Raises:
        SettingsError: it is neither, or in the past.
    """
    if found := _DURATION.fullmatch(text):
        return (now + int(found[1]) * _UNITS[found[2]]).replace(microsecond=0)
    try:
        end = datetime.fromisoformat(text)
    except ValueError:
        end = None
    if end is None or end.tzinfo is None:
        raise SettingsError(
            f"{flag} {text}: give 12h, 90d or 4w, or a date and time with a zone, such as "
            "2027-01-31T12:00:00Z"
        )
    if end <= now:
        raise SettingsError(f"{flag} {text}: that time is over")
    return end


def _list(path: str, limits: ServerLimits) -> None:
    rows = [("name", "mode", "roots", "calls/min", "max calls", "expires")]
    rows += [_row(grant, time.time()) for grant in parse_grants(_text(path), limits).values()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _row(grant: Grant, now: float) -> tuple[str, ...]:
    ends = "never" if grant.expires is None else grant.expires.isoformat().replace("+00:00", "Z")
    return (
        grant.name,
        grant.ceiling.flag,
        os.pathsep.join(grant.roots) or "all",
        str(grant.per_minute or "-"),
        str(grant.max_calls or "-"),
        f"{ends} (over)" if grant.is_expired(now) else ends,
    )


def _change(path: str, limits: ServerLimits, edit: Callable[[tomlkit.TOMLDocument], None]) -> None:
    """Replace the file by an edited one, valid and with its comments, while no other command does."""
    folder = os.path.dirname(path)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SettingsError(f"{folder} cannot be opened: {error.strerror}") from None
    try:
        with locked(descriptor):
            text = _edited(path, limits, edit)
            # The server may run as another user than the one who changes the file.
            with replaced(Path(path), text.encode(), os.stat(path) if os.path.exists(path) else None):
                pass
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _edited(path: str, limits: ServerLimits, edit: Callable[[tomlkit.TOMLDocument], None]) -> str:
    try:
        document = tomlkit.parse(_text(path) if os.path.lexists(path) else _NEW)
    except TOMLKitError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    edit(document)
    after = tomlkit.dumps(document)
    try:
        parse_grants(after, limits)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}; nothing was changed") from None
    return after


def _text(path: str) -> str:
    try:
        return read_private(path)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
