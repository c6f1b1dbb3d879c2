"""The rights of a call as text for a store. Only servers that store or run such work import this."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
)

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.pipeline.call import Rights
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.policy.rules import Narrowing, Rule
from mcp_toolserver.text.file_names import lies_in

_FLAGS = {permission.flag: permission for permission in Permission}

_Ceiling = Annotated[
    Permission,
    BeforeValidator(lambda value: value if isinstance(value, Permission) else _FLAGS.get(value)),
    PlainSerializer(lambda permission: permission.flag),
]


class _Stored(BaseModel):
    """What is stored, read from JSON or from the attributes of what is to be stored."""

    model_config = ConfigDict(from_attributes=True)


class _StoredNarrowing(_Stored):
    source: str
    advice: str
    ceiling: _Ceiling
    tools: tuple[Annotated[str, BeforeValidator(lambda rule: getattr(rule, "text", rule))], ...] | None


class _StoredClient(_Stored):
    named: str
    ceiling: _Ceiling
    network: bool
    areas: tuple[dict[str, bool], ...]
    hides: bool


class _StoredRights(_Stored):
    narrowings: tuple[_StoredNarrowing, ...]
    folders: tuple[str, ...] | None
    client: _StoredClient | None = Field(validation_alias=AliasChoices("client", "confined_to"))
    depth: int

    @property
    def ceiling(self) -> Permission:
        """The lowest."""
        ceilings = (one.ceiling for one in (*self.narrowings, self.client) if one is not None)
        return min(ceilings, default=Permission.DANGER_FULL_ACCESS)


def to_json(rights: Rights) -> str:
    """Return the rights as text for a store."""
    return _StoredRights.model_validate(rights).model_dump_json()


def from_json(text: str, rules: Callable[[Sequence[str]], tuple[Rule, ...]]) -> Rights:
    """Return the rights that `to_json` wrote; `rules` parses rules and omits those it cannot parse.

    Raises:
        Unavailable: the text is damaged, so the rights are unknown and nothing may run with them.
    """
    try:
        stored = _StoredRights.model_validate_json(text)
    except ValidationError:
        raise Unavailable("Its stored rights are damaged, so it cannot run. Create it anew.") from None
    return Rights(
        narrowings=tuple(
            replace(Narrowing(**vars(one)), tools=None if one.tools is None else rules(one.tools))
            for one in stored.narrowings
        ),
        folders=stored.folders,
        confined_to=stored.client and ClientRestrictions(**vars(stored.client)),
        depth=stored.depth,
    )


def wanted_mode(text: str) -> Permission:
    """The permission mode that a server needs for all the rights in `text`; the lowest if that is damaged,
    which its run says."""
    try:
        return _StoredRights.model_validate_json(text).ceiling
    except ValidationError:
        return Permission.READ_ONLY


def require(rights: Rights, text: str, what: str) -> None:
    """Check that a caller with `rights` may change `what`, which runs with the rights in `text`.

    Raises:
        Denied: the caller lacks one of them; the message names it. Damaged rights count as all rights.
    """
    try:
        wanted = _StoredRights.model_validate_json(text)
    except ValidationError:
        wanted = _StoredRights.model_validate(Rights())
    if lacking := _lacking(_StoredRights.model_validate(rights), wanted):
        raise Denied(
            f"{what} runs with a right that this call does not have: {lacking}. Without it, {what} can only "
            "be read. Ask the user to change it from a session that has this right."
        )


def _lacking(mine: _StoredRights, wanted: _StoredRights) -> str:
    """What `wanted` allows and `mine` does not; empty if nothing."""
    if mine.ceiling < wanted.ceiling:
        return f"the permission mode {wanted.ceiling.flag}"
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
