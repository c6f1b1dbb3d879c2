"""Checks the declarations of a tool; missing ones get the safest default."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.custom_tools.built_tool import Check
from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.tool_spec import Kind

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_MAX_DESCRIPTION = 2_048
_MAX_DEADLINE = 3_600.0
_KINDS: Mapping[object, Kind] = {kind: kind for kind in get_args(Kind)}
_LEVELS: Mapping[object, Permission] = {
    **{level: level for level in Permission},
    **{level.flag: level for level in Permission},
}


@dataclass(frozen=True, kw_only=True)
class ParsedDeclarations:
    """The parsed form of `Declared`."""

    permission: Permission
    kind: Kind
    concurrency_safe: bool
    destructive: bool
    idempotent: bool
    check: Check | None
    deadline: float


def parse_declarations(name: str, description: str, declared: Mapping[str, object]) -> ParsedDeclarations:
    """Parse the declarations of the tool `name`.

    Raises:
        RegistrationError: a declaration has the wrong type or contradicts another.
    """
    check_names(name, description)
    reads = _flag(name, declared, "is_read_only")
    permission = _permission(name, declared, reads=bool(reads))
    if reads is not None and reads != (permission is Permission.READ_ONLY):
        raise RegistrationError(f"{name}: is_read_only and permission contradict each other")
    only_reads = permission is Permission.READ_ONLY
    destructive = _flag(name, declared, "is_destructive")
    if only_reads and destructive:
        raise RegistrationError(f"{name}: a read-only tool cannot be destructive")
    idempotent = _flag(name, declared, "is_idempotent")
    return ParsedDeclarations(
        permission=permission,
        kind=_kind(name, declared),
        concurrency_safe=bool(_flag(name, declared, "is_concurrency_safe")),
        destructive=not only_reads if destructive is None else destructive,
        idempotent=only_reads if idempotent is None else idempotent,
        check=_check(name, declared),
        deadline=_deadline(name, declared),
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


def _permission(name: str, declared: Mapping[str, object], *, reads: bool) -> Permission:
    if "permission" not in declared:
        return Permission.READ_ONLY if reads else Permission.DANGER_FULL_ACCESS
    value = declared["permission"]
    if not isinstance(value, (Permission, str)) or value not in _LEVELS:
        choices = ", ".join(level.flag for level in Permission)
        raise RegistrationError(f"{name}: permission must be one of {choices}")
    return _LEVELS[value]


def _kind(name: str, declared: Mapping[str, object]) -> Kind:
    value = declared.get("kind", "other")
    if not isinstance(value, str) or value not in _KINDS:
        raise RegistrationError(f"{name}: kind must be one of {', '.join(get_args(Kind))}")
    return _KINDS[value]


def _check(name: str, declared: Mapping[str, object]) -> Check | None:
    value = declared.get("check_permissions")
    if value is not None and not callable(value):
        raise RegistrationError(f"{name}: check_permissions must be a function")
    return value


def _deadline(name: str, declared: Mapping[str, object]) -> float:
    value = declared.get("deadline", 60.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MAX_DEADLINE:
        raise RegistrationError(f"{name}: deadline must be seconds above 0, at most {_MAX_DEADLINE:g}")
    return float(value)
