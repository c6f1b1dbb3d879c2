"""Turns the declarations of a tool into its `ToolSpec`; missing ones get the safest default."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypedDict, TypeVar, get_args

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.custom_tools.arguments import ArgumentForm, payload
from mcp_toolserver.custom_tools.call import Check
from mcp_toolserver.custom_tools.check_schema import nodes
from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.tool_spec import Args, Kind, Limits, Output, Profile, Runtime, ToolSpec

T = TypeVar("T")

NEEDS = frozenset({Capability.OWN_CODE})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_MAX_DESCRIPTION = 2_048
_MAX_DEADLINE = 3_600.0
_KINDS: Mapping[str, Kind] = {kind: kind for kind in get_args(Kind)}
_LEVELS = {level.flag: level for level in Permission}


class Declared(TypedDict, total=False):
    """Optional declarations of a tool; missing ones get the safest default."""

    is_read_only: bool
    """The tool changes nothing. Default: false."""
    is_concurrency_safe: bool
    """Its calls may run concurrently with unsafe ones. Default: false."""
    is_destructive: bool
    """It may overwrite or delete data. Default: true, unless it only reads."""
    is_idempotent: bool
    """A second identical call has no further effect. Default: false, unless it only reads."""
    permission: Permission
    """The permission mode the server needs. Default: read-only if it only reads, else danger-full-access."""
    check_permissions: Check
    """Refuses a call by raising PermissionError; permits it by returning None or True."""
    kind: Kind
    """The Agent Client Protocol's tool kind. Default: other."""
    deadline: float
    """Timeout of a call in seconds. Default: 60."""


def declared_spec(
    name: str,
    description: str,
    declared: Mapping[str, object],
    form: ArgumentForm,
    run: Callable[[Args, Runtime], Awaitable[Output]],
) -> ToolSpec:
    """Return the tool that is declared so.

    Raises:
        RegistrationError: a declaration has the wrong type or contradicts another.
    """
    check_names(name, description)
    reads = _flag(name, declared, "is_read_only")
    cheapest = Permission.READ_ONLY if reads else Permission.DANGER_FULL_ACCESS
    permission = _choice(name, declared, "permission", _LEVELS, cheapest)
    only_reads = permission is Permission.READ_ONLY
    if reads is not None and reads != only_reads:
        raise RegistrationError(f"{name}: is_read_only and permission contradict each other")
    destructive = _flag(name, declared, "is_destructive")
    if only_reads and destructive:
        raise RegistrationError(f"{name}: a read-only tool cannot be destructive")
    idempotent = _flag(name, declared, "is_idempotent")
    deadline = _deadline(name, declared)
    return ToolSpec(
        name=name,
        description=description.strip(),
        permission=permission,
        needs=NEEDS,
        args=form.args,
        run=run,
        kind=_choice(name, declared, "kind", _KINDS, "other"),
        subjects=lambda args: tuple(value for value in nodes(payload(args)) if isinstance(value, str)),
        destructive=not only_reads if destructive is None else destructive,
        idempotent=only_reads if idempotent is None else idempotent,
        serial=not _flag(name, declared, "is_concurrency_safe"),
        may_be_long=deadline > Limits().deadline,
        limits=Limits(deadline=deadline),
        profile=Profile.DEFAULT,
        custom_schema=form.checked,
    )


def check_names(name: str, description: str) -> None:
    """Check that every client can handle the name and the description.

    Raises:
        RegistrationError: one of them is invalid.
    """
    if not _NAME.fullmatch(name):
        raise RegistrationError(
            f"{name[:64]!r} is not a valid tool name: a letter or _, then up to 63 letters, digits, _ and -"
        )
    if not 0 < len(description.strip()) <= _MAX_DESCRIPTION:
        raise RegistrationError(f"{name}: the description must have 1 to {_MAX_DESCRIPTION} characters")


def _flag(name: str, declared: Mapping[str, object], key: str) -> bool | None:
    value = declared.get(key)
    if callable(value):
        try:
            value = value()
        except Exception as error:
            raise RegistrationError(f"{name}: {key}() failed") from error
    if value is not None and not isinstance(value, bool):
        raise RegistrationError(f"{name}: {key} must be true or false")
    return value


def _choice(name: str, declared: Mapping[str, object], key: str, choices: Mapping[str, T], default: T) -> T:
    value = declared.get(key, default)
    given = value.flag if isinstance(value, Permission) else value
    if not isinstance(given, str) or given not in choices:
        raise RegistrationError(f"{name}: {key} must be one of {', '.join(choices)}")
    return choices[given]


def declared_check(name: str, declared: Mapping[str, object]) -> Check | None:
    """Return the tool's own check. Raises: RegistrationError: it is no function."""
    value = declared.get("check_permissions")
    if value is not None and not callable(value):
        raise RegistrationError(f"{name}: check_permissions must be a function")
    return value


def _deadline(name: str, declared: Mapping[str, object]) -> float:
    value = declared.get("deadline", Limits().deadline)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MAX_DEADLINE:
        raise RegistrationError(f"{name}: deadline must be seconds above 0, at most {_MAX_DEADLINE:g}")
    return float(value)
