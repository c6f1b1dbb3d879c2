"""DeepAgents' `AgentToolPolicy`: which tools exist, and which calls run, are asked about or are denied."""

import re
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.text.json_values import is_object

Approval = Literal["approve", "ask", "deny"]
"""In the order of strictness, which is that of the alphabet too."""

_SHELL = frozenset({"shell", "bash"})
"""The tool that runs commands on this machine, which `sandbox` switches."""


class ToolDecision(NamedTuple):
    """What a policy says of one tool."""

    is_enabled: bool
    approval: Approval
    """`approve` for a tool that is not enabled: nobody is asked about it."""


class AgentToolPolicy(BaseModel):
    """What deviates from the defaults: an empty policy changes nothing. Names are compared without case, and
    with `_` for every character that is no ASCII letter or digit."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, validate_by_name=True)

    disabled_middleware: frozenset[str] = frozenset()
    disabled_tools: frozenset[str] = frozenset()
    approvals: Mapping[str, Approval] = Field(default_factory=dict[str, Approval])
    """By the name of a tool, or by the id of a middleware for its other tools."""
    sandbox: Literal["off", "failover", "containerOnly"] = "off"
    """`failover` switches the shell on, and `containerOnly` off, whatever else is disabled."""
    sandbox_image: str | None = Field(default=None, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: object) -> object:
        return {key: part for key, part in given.items() if part is not None} if is_object(given) else given

    @classmethod
    def from_json(cls, text: str) -> "AgentToolPolicy":
        """Parse what DeepAgents stores: missing keys have their defaults, unknown ones are ignored.

        Raises:
            SettingsError: a value is wrong; the text names its key.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise SettingsError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None

    def to_json(self) -> str:
        """The policy as DeepAgents stores it."""
        return self.model_dump_json(by_alias=True, exclude_none=True)

    def expand(
        self,
        catalogue: Mapping[str, Mapping[str, Approval]],
        extra_defaults: Mapping[str, Approval] = {},
    ) -> dict[str, ToolDecision]:
        """Decide on every tool of `catalogue`, which has by the id of each middleware its tools with their
        defaults, and on those that the policy or `extra_defaults` names besides, such as those of
        MCP servers.

        The first of these that is there holds: the approval of the tool, that of its middleware, that of
        `extra_defaults`, that of `catalogue`, `approve`.
        """
        pairs = [pair for tools in catalogue.values() for pair in tools.items()]
        owners: dict[str, set[str]] = {}
        for middleware, tools in catalogue.items():
            for tool in tools:
                owners.setdefault(normalised(tool), set()).add(normalised(middleware))
        ids = set[str]().union(*owners.values())
        own, others, defaults = map(_strictest, (self.approvals.items(), extra_defaults.items(), pairs))
        more = (*extra_defaults, *self.approvals, *self.disabled_tools)
        names = {normalised(name): name for name in more if normalised(name) not in ids}
        names |= {normalised(tool): tool for tool, _ in pairs}
        disabled = {*map(normalised, self.disabled_tools)}
        removed = {*map(normalised, self.disabled_middleware)}

        def decision(tool: str) -> ToolDecision:
            mine = owners.get(tool, set())
            is_enabled = tool not in disabled and not mine & removed
            if tool in _SHELL and self.sandbox != "off":
                is_enabled = self.sandbox == "failover"
            inherited = _strictest((tool, own[one]) for one in mine if one in own)
            mode = own.get(tool) or inherited.get(tool) or others.get(tool) or defaults.get(tool)
            return ToolDecision(is_enabled, mode if mode and is_enabled else "approve")

        return {name: decision(tool) for tool, name in names.items()}


def normalised(name: str) -> str:
    """The one spelling in which names are compared."""
    return re.sub("[^A-Za-z0-9_]", "_", name).lower() or "_"


def _strictest(modes: Iterable[tuple[str, Approval]]) -> dict[str, Approval]:
    """The modes by normalised name; the strictest where one name has several."""
    return {normalised(name): mode for name, mode in sorted(modes, key=itemgetter(1))}
