"""The rights of a call that can be stored, for what runs later on its behalf."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.policy.narrowing import Narrowing
from mcp_toolserver.policy.rules import Rule


@dataclass(frozen=True, kw_only=True)
class Rights:
    """What a call may do at most, besides the rules and the ceiling of the server."""

    narrowings: tuple[Narrowing, ...] = ()
    folders: tuple[str, ...] | None = None
    """The folders that the client announced, absolute; None if it announced none."""
    confined_to: ClientRestrictions | None = None
    """The restrictions of the client."""
    depth: int = 0
    """How many agents started each other down to the call."""

    @property
    def ceiling(self) -> Permission:
        """The lowest ceiling of the narrowings."""
        return min((one.ceiling for one in self.narrowings), default=Permission.DANGER_FULL_ACCESS)

    def narrowed(self, *narrowings: Narrowing) -> "Rights":
        """The same with fewer rights."""
        return replace(self, narrowings=(*self.narrowings, *narrowings))

    def to_json(self) -> str:
        """Return the rights as text for a store."""
        client = self.confined_to
        stored = _Stored(
            narrowings=tuple(_stored(one) for one in self.narrowings),
            folders=self.folders,
            client=client
            and _StoredClient(
                named=client.named,
                ceiling=client.ceiling.flag,
                network=client.network,
                areas=tuple(dict(area) for area in client.areas),
                hides=client.hides,
            ),
            depth=self.depth,
        )
        return _adapter().dump_json(stored).decode()

    @classmethod
    def from_json(cls, text: str, rules: Callable[[Sequence[str]], tuple[Rule, ...]]) -> "Rights":
        """Return the rights that `to_json` wrote; `rules` parses rules and omits those it cannot parse.

        Raises:
            Unavailable: the text is damaged, so the rights are unknown and nothing may run with them.
        """
        try:
            stored = _adapter().validate_json(text)
            client = stored.client
            return cls(
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
