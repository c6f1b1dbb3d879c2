"""Builds the policy from the settings."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from mcp_toolserver.app.confinement import wanted_roots
from mcp_toolserver.app.project_rules import ProjectRules
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.pipeline.hooks import Hook
from mcp_toolserver.pipeline.registry import Registry
from mcp_toolserver.policy.rules import FOREIGN, Policy, Rule, RuleContext, Rules, parse
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.which import is_usable
from mcp_toolserver.settings import RuleText, Settings
from mcp_toolserver.stores.approvals import Approvals
from mcp_toolserver.stores.database import Database
from mcp_toolserver.text.search.glob import starts


def rule_context(registry: Registry, *, takes_foreign: bool = True) -> RuleContext:
    """What rules may name, and how their patterns are read; with `takes_foreign` any tool of another server,
    known or not."""
    specs = {name: entry.spec for name, entry in registry.entries.items()}
    return RuleContext(
        canonical=lambda name: (
            name if takes_foreign and name.startswith(FOREIGN) else registry.find(name).spec.name
        ),
        commands=frozenset(name for name, one in specs.items() if one.kind == "execute"),
        texts=frozenset(name for name, one in specs.items() if one.kind == "fetch" and not one.url_fields),
        sites=frozenset(name for name, one in specs.items() if one.url_fields and not one.path_fields),
        toolset=registry.toolset,
        argument=registry.argument,
    )


def lenient_rules(
    registry: Registry, *, takes_foreign: bool = False
) -> Callable[[Sequence[str]], tuple[Rule, ...]]:
    """A function that parses rules of agents and skills, and omits those that this server cannot parse."""

    def parsed(texts: Sequence[str]) -> tuple[Rule, ...]:
        context, found = rule_context(registry, takes_foreign=takes_foreign), list[Rule]()
        for text in texts:
            with suppress(SettingsError):
                found.append(parse(text, context))
        return tuple(found)

    return parsed


def build_hooks(settings: Settings, registry: Registry, broker: Broker | None) -> tuple[Hook, ...]:
    """The hooks of the settings. Raises: SettingsError: one cannot run here, or its matcher is wrong."""
    if not settings.hooks.each:
        return ()
    is_confined = settings.permission_mode is not Permission.DANGER_FULL_ACCESS
    if broker is None or (is_confined and broker.proof.commands == broker.proof.helpers == "none"):
        raise SettingsError("hooks: their commands cannot be confined here; see mcp-toolserver doctor")
    if bad := [one.command[0] for one in settings.hooks.each if not is_usable(one.command[0], settings.root)]:
        raise SettingsError(f"hooks: {bad[0]} is not an executable file outside the roots")
    # Few servers have hooks.
    from mcp_toolserver.runtime.processes.hook_commands import HookCommands

    commands, context = HookCommands(broker), rule_context(registry)
    return tuple(
        Hook(
            name=f"hook {number}",
            event=one.event,
            run=partial(commands.run, one.command),
            timeout=one.timeout,
            rules=tuple(parse(text, context) for text in one.matcher),
        )
        for number, one in enumerate(settings.hooks.each, 1)
    )


def build_policy(settings: Settings, registry: Registry) -> Policy:
    """The policy of the operator. Raises: SettingsError: a rule is wrong."""
    context, ceiling = rule_context(registry), settings.permission_mode

    def rules(texts: Sequence[str]) -> Rules:
        return Rules(parse(one, context, one.source if isinstance(one, RuleText) else "") for one in texts)

    return Policy(
        ceiling=ceiling,
        granted=ceiling if settings.granted is None else min(settings.granted, ceiling),
        deny=rules(settings.deny),
        ask=rules(settings.ask),
        allow=rules(settings.allow),
    )


def approvals_of(settings: Settings, database: Database, roots: Sequence[str], user: str = "") -> Approvals:
    """The approvals of a server on these roots, for the clients that have the token `user`."""
    return Approvals(
        database=database,
        workspace=os.pathsep.join(sorted(roots)),
        user=user,
        seconds=settings.ask_seconds,
        flags=f" --state-dir {shlex.quote(settings.state_dir)}" if settings.state_dir else "",
    )


def project_rules(settings: Settings, policy: Policy, registry: Registry) -> ProjectRules:
    """The rules of the projects in the roots, in addition to those of `policy`."""
    return ProjectRules(policy, wanted_roots(settings), rule_context(registry))


def hide_from_commands(
    settings: Settings, policy: Policy, broker: Broker | None, git: str | None
) -> Mapping[str, str]:
    """Have commands kept from what deny rules on reading hide; in danger-full-access nothing is.

    Returns the `.git` folders that are hidden for the sake of their history, each with the reason, as of
    the last command. `git` is the program.

    Raises:
        SettingsError: commands cannot be kept from it.
    """
    if broker is None or settings.permission_mode is Permission.DANGER_FULL_ACCESS:
        return {}
    for pattern in policy.hidden_patterns:
        if "/" in starts(pattern):
            raise SettingsError(
                f"a deny rule on reading, {pattern}, may match anywhere on this machine, and commands cannot "
                "be kept from that; name the folder that it starts from"
            )
    if not policy.hidden_patterns:
        return {}
    broker.hide(policy.hidden_patterns)
    # Few servers have such rules.
    from mcp_toolserver.runtime.git.histories import GitHistories
    from mcp_toolserver.runtime.git.runner import Git

    runner = git and Git(Programs(broker), git, os.path.expanduser("~"))
    histories = GitHistories(runner or None, wanted_roots(settings), policy.hiding_rule)
    broker.hidden_git = histories.look
    return histories.hidden
