"""The rights of a call as text for a store. Only servers that store or run such work import this."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.pipeline.rights import Rights
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.policy.narrowing import Narrowing
from mcp_toolserver.policy.rules import Rule


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
        stored = _adapter().validate_json(text)
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
