"""Translates the sandbox policy that Codex sends with each call to a server that declares `KEY`.

The dispatcher applies the stricter of this policy and its own. A policy that cannot be parsed counts as
read-only without a network.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.policy.client_restrictions import Area, ClientRestrictions, stricter
from mcp_toolserver.protocol.client_identity import file_path

KEY = "codex/sandbox-state-meta"

UNREADABLE = ClientRestrictions(named="it cannot be read here, so it counts as read-only")

_EXTERNAL = "external; what it holds is not known here, so it counts as read-only"
_UNTOUCHED = (".git", ".agents", ".codex")
"""Names that Codex protects in every writable folder."""
_MOST = 256
"""Maximum folders in one policy."""
_LONGEST = 4096
"""Maximum characters of a path."""


def restrictions(params: Mapping[str, Any] | None) -> ClientRestrictions | None:
    """The restrictions in a request; None if it carries none."""
    meta: JsonValue = (params or {}).get("_meta")
    if not isinstance(meta, dict) or KEY not in meta:
        return None
    try:
        return _state(meta[KEY])
    except ValueError:
        return UNREADABLE


def _state(state: JsonValue) -> ClientRestrictions:
    """Raises: ValueError: the state is malformed."""
    if not isinstance(state, dict):
        raise ValueError("no object")
    cwd = _folder(state.get("sandboxCwd"))
    policies = [
        read(state[name], cwd)
        for name, read in (("sandboxPolicy", _policy), ("permissionProfile", _profile))
        if state.get(name) is not None
    ]
    if not policies:
        raise ValueError("no policy")
    return reduce(stricter, policies)


def _policy(policy: JsonValue, cwd: str | None) -> ClientRestrictions:
    """A sandbox policy, which has one of four types."""
    match policy:
        case {"type": "danger-full-access"}:
            return _full("danger-full-access", network=True)
        case {"type": "read-only"}:
            hides = _is_partial(policy.get("access"))
            return ClientRestrictions(
                named="read-only", network=policy.get("network_access") is True, hides=hides
            )
        case {"type": "external-sandbox"}:
            return ClientRestrictions(named=_EXTERNAL, network=policy.get("network_access") == "enabled")
        case {"type": "workspace-write"}:
            return ClientRestrictions(
                named="workspace-write",
                ceiling=Permission.WORKSPACE_WRITE,
                network=policy.get("network_access") is True,
                areas=(_area(policy, cwd),),
                hides=_is_partial(policy.get("read_only_access")),
            )
        case _:
            raise ValueError("an unknown kind of policy")


def _full(named: str, *, network: bool) -> ClientRestrictions:
    return ClientRestrictions(named=named, ceiling=Permission.DANGER_FULL_ACCESS, network=network)


def _is_partial(access: JsonValue) -> bool:
    """Whether reading is restricted."""
    is_whole = access is None or (isinstance(access, dict) and access.get("type") == "full-access")
    return not is_whole


def _area(policy: Mapping[str, JsonValue], cwd: str | None) -> Area:
    given = policy.get("writable_roots", [])
    if not isinstance(given, list) or len(given) > _MOST:
        raise ValueError("no list of folders")
    folders = {*map(_folder, given), cwd}
    if policy.get("exclude_slash_tmp", False) is False:
        folders.add("/tmp")  # noqa: S108  as Codex has it
    named = sorted(folder for folder in folders if folder is not None)
    kept = {f"{folder.rstrip('/')}/{name}": False for folder in named for name in _UNTOUCHED}
    return {**dict.fromkeys(named, True), **kept}


def _profile(profile: JsonValue, cwd: str | None) -> ClientRestrictions:
    """A permission profile, which replaces the policy in newer versions."""
    match profile:
        case {"type": "disabled"}:
            return _full("disabled", network=True)
        case {"type": "external", "network": network}:
            return ClientRestrictions(named=_EXTERNAL, network=_is_enabled(network))
        case {"type": "managed", "file_system": {"type": "unrestricted"}, "network": network}:
            return _full("managed", network=_is_enabled(network))
        case {
            "type": "managed",
            "file_system": {"type": "restricted", "entries": list() as entries},
            "network": network,
        } if len(entries) <= _MOST:
            return _managed([_entry(entry, cwd) for entry in entries], network=_is_enabled(network))
        case _:
            raise ValueError("an unknown kind of profile")


def _is_enabled(network: JsonValue) -> bool:
    if network not in ("enabled", "restricted"):
        raise ValueError("an unknown kind of network")
    return network == "enabled"


def _managed(entries: Sequence[tuple[str | None, str]], *, network: bool) -> ClientRestrictions:
    """The restrictions of all entries together; an unknown place allows no writing."""
    area: dict[str, bool] = {}
    for wanted, writable in (("read", False), ("write", True), ("deny", False)):
        area |= {path: writable for path, access in entries if access == wanted and path is not None}
    readable = any(path == "/" and access != "deny" for path, access in entries)
    ceiling = Permission.WORKSPACE_WRITE if any(area.values()) else Permission.READ_ONLY
    if area.get("/") and all(area.values()):
        ceiling = Permission.DANGER_FULL_ACCESS
    return ClientRestrictions(
        named="managed",
        ceiling=ceiling,
        network=network,
        areas=(area,),
        hides=not readable or any(access == "deny" for _, access in entries),
    )


def _entry(entry: JsonValue, cwd: str | None) -> tuple[str | None, str]:
    """The path of an entry, None if unknown here, and its access."""
    match entry:
        case {"path": place, "access": "read" | "write" | "deny" as access}:
            return _place(place, cwd), access
        case {"path": place, "access": "none"}:
            return _place(place, cwd), "deny"
        case _:
            raise ValueError("an unknown kind of entry")


def _place(place: JsonValue, cwd: str | None) -> str | None:
    match place:
        case {"type": "path", "path": str() as path}:
            return _folder(path)
        case {"type": "special", "value": {"kind": "root"}}:
            return "/"
        case {"type": "special", "value": {"kind": "slash_tmp"}}:
            return "/tmp"  # noqa: S108  as Codex has it
        case {
            "type": "special",
            "value": {"kind": "project_roots" | "current_working_directory"} as value,
        } if cwd is not None:
            inner = value.get("subpath")
            return _folder(f"{cwd}/{inner}") if isinstance(inner, str) else cwd
        case {"type": "glob_pattern"} | {"type": "special", "value": {"kind": str()}}:
            return None
        case _:
            raise ValueError("an unknown kind of place")


def _folder(given: JsonValue) -> str | None:
    """An absolute path, or the path of a `file:` address of this machine."""
    if given is None:
        return None
    if not isinstance(given, str) or len(given) > _LONGEST:
        raise ValueError("no path")
    path = file_path(given) if given.startswith("file:") else given
    if path is None or not path.startswith("/") or "\0" in path:
        raise ValueError("no path of this machine")
    return path
