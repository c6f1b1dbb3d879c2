"""The rights of a call as text for a store. Only servers that store or run such work import this."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.pipeline.call import Rights
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.policy.rules import Narrowing, Rule
from mcp_toolserver.text.file_names import lies_in


def to_json(rights: Rights) -> str:
    """Return the rights as text for a store."""
    client = rights.confined_to
    stored = _Stored(
        narrowings=tuple(_stored(one) for one in rights.narrowings),
        folders=rights.folders,
        client=client
        and _StoredClient(
            named=client.named,
            ceiling=client.ceiling.flag,
            network=client.network,
            areas=tuple(dict(area) for area in client.areas),
            hides=client.hides,
        ),
        depth=rights.depth,
    )
    return _adapter().dump_json(stored).decode()


def from_json(text: str, rules: Callable[[Sequence[str]], tuple[Rule, ...]]) -> Rights:
    """Return the rights that `to_json` wrote; `rules` parses rules and omits those it cannot parse.

    Raises:
        Unavailable: the text is damaged, so the rights are unknown and nothing may run with them.
    """
    try:
        stored = _parsed(text)
        client = stored.client
        return Rights(
            narrowings=tuple(_narrowing(one, rules) for one in stored.narrowings),
            folders=stored.folders,
            confined_to=client
            and ClientRestrictions(
                named=client.named,
                ceiling=_permission(client.ceiling),
                network=client.network,
                areas=client.areas,
                hides=client.hides,
            ),
            depth=stored.depth,
        )
    except (ValidationError, KeyError):
        raise Unavailable("Its stored rights are damaged, so it cannot run. Create it anew.") from None


def require(rights: Rights, text: str, what: str) -> None:
    """Check that a caller with `rights` may change `what`, which runs with the rights in `text`.

    Raises:
        Denied: the caller lacks one of them; the message names it. Damaged rights count as all rights.
    """
    mine = _parsed(to_json(rights))
    try:
        lacking = _lacking(mine, _parsed(text))
    except (ValidationError, KeyError):
        lacking = _lacking(mine, _parsed(to_json(Rights())))
    if lacking:
        raise Denied(
            f"{what} runs with a right that this call does not have: {lacking}. Without it, {what} can only "
            "be read. Ask the user to change it from a session that has this right."
        )


def _lacking(mine: "_Stored", wanted: "_Stored") -> str:
    """What `wanted` allows and `mine` does not; empty if nothing."""
    if _ceiling(mine) < (ceiling := _ceiling(wanted)):
        return f"the permission mode {ceiling.flag}"
    for folder in wanted.folders or ():
        if mine.folders is not None and not any(lies_in(own, folder) for own in mine.folders):
            return f"the folder {folder}"
    limits = [set(one.tools) for one in wanted.narrowings if one.tools is not None]
    for one in mine.narrowings:
        if one.tools is not None and not any(tools <= set(one.tools) for tools in limits):
            return f"the tools that {one.source} takes away"
    client, other = mine.client, wanted.client
    if client and (
        other is None
        or any(area not in other.areas for area in client.areas)
        or client.network < other.network
        or client.hides > other.hides
    ):
        return f"what the client's own sandbox policy ({client.named}) forbids"
    return ""


def _ceiling(stored: "_Stored") -> Permission:
    flags = [one.ceiling for one in (*stored.narrowings, stored.client) if one is not None]
    return min(map(_permission, flags), default=Permission.DANGER_FULL_ACCESS)


@dataclass(frozen=True, kw_only=True)
class _StoredNarrowing:
    source: str
    advice: str
    ceiling: str
    tools: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class _StoredClient:
    named: str
    ceiling: str
    network: bool
    areas: tuple[dict[str, bool], ...]
    hides: bool


@dataclass(frozen=True, kw_only=True)
class _Stored:
    narrowings: tuple[_StoredNarrowing, ...]
    folders: tuple[str, ...] | None
    client: _StoredClient | None
    depth: int


def _adapter() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


def _parsed(text: str) -> _Stored:
    return _adapter().validate_json(text)


def _stored(narrowing: Narrowing) -> _StoredNarrowing:
    tools = narrowing.tools
    return _StoredNarrowing(
        source=narrowing.source,
        advice=narrowing.advice,
        ceiling=narrowing.ceiling.flag,
        tools=None if tools is None else tuple(rule.text for rule in tools),
    )


def _narrowing(stored: _StoredNarrowing, rules: Callable[[Sequence[str]], tuple[Rule, ...]]) -> Narrowing:
    return Narrowing(
        source=stored.source,
        advice=stored.advice,
        ceiling=_permission(stored.ceiling),
        tools=None if stored.tools is None else rules(stored.tools),
    )


def _permission(flag: str) -> Permission:
    return {one.flag: one for one in Permission}[flag]
