"""Makes rules and settings of DeepAgents' `AgentToolPolicy`, which names tools and toolsets."""

from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.pipeline.registry import Registry
from mcp_toolserver.policy.agent_tool_policy import AgentToolPolicy, Approval, ToolDecision, normalised
from mcp_toolserver.policy.rules import FOREIGN, READER
from mcp_toolserver.settings import Settings


def with_agent_policy(settings: Settings, registry: Registry) -> Settings:
    """The settings with what the `AgentToolPolicy` says of the tools here; of others, mode and rules decide.

    Raises:
        SettingsError: it names what is neither a tool nor a toolset.
    """
    if not settings.agent_policy:
        return settings
    given, members = AgentToolPolicy.from_json(settings.agent_policy), registry.members
    spelt = {
        normalised(one): name for name, tool in registry.entries.items() for one in (name, *tool.other_names)
    }

    def own(name: str) -> tuple[str, ...]:
        """The names here. A toolset, which `shell` is too, stands for all that does the same."""
        key = normalised(name)
        found = (*filter(None, [spelt.get(key)]), *members.keys() & {key})
        if not found and "__" not in name:
            raise SettingsError(f"the policy {settings.policy}: there is no tool or toolset {name!r}")
        return found or (f"{FOREIGN}{name}",)

    switched_off = given.disabled_tools | given.disabled_middleware
    disabled = frozenset(one for name in switched_off for one in own(name))
    # In the order of strictness, for two names of one tool.
    approvals = sorted(given.approvals.items(), key=itemgetter(1))
    modes = {one: mode for name, mode in approvals for one in own(name)}
    policy = given.model_copy(
        update={"disabled_tools": disabled, "disabled_middleware": disabled, "approvals": modes}
    )

    def decided(default: Approval) -> Mapping[str, ToolDecision]:
        return policy.expand({toolset: dict.fromkeys(tools, default) for toolset, tools in members.items()})

    found, allowed = decided("approve"), decided("ask")
    denied = {name for name, one in found.items() if one.approval == "deny"}
    # A deny rule on reading would hide every file.
    off = {name for name, one in found.items() if not one.is_enabled} | denied & {READER}
    excluded = {name for name in off if not name.startswith(FOREIGN)}
    return replace(
        settings,
        exclude_tools=(*settings.exclude_tools, *sorted(excluded)),
        deny=(*settings.deny, *sorted((denied | off) - excluded)),
        ask=(*settings.ask, *(name for name, one in found.items() if one.approval == "ask")),
        allow=(*settings.allow, *(name for name, one in allowed.items() if one == (True, "approve"))),
        containers=max(settings.containers, given.sandbox, key=("off", "failover", "containerOnly").index),
        container_image=given.sandbox_image or settings.container_image,
    )
