"""Finds rules that can never decide anything."""

from collections.abc import Mapping

from mcp_toolserver.app.compose import Application
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.policy.rules import Rule
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.search.glob import literal_prefix

_About = Mapping[Rule, Mapping[str, Entry]]
"""By rule the tools that it is about, by name."""


def unused_rules(app: Application) -> Mapping[str, str]:
    """By rule, with its source, why it can never decide anything."""
    entries = app.registry.entries.items()
    about: _About = {
        rule: {name: entry for name, entry in entries if rule.covers(name, entry.spec.needs)}
        for rule in (*app.policy.deny, *app.policy.ask, *app.policy.allow)
    }
    reasons = {rule: _refused(app, rule, about) or _without_effect(app, rule, about) for rule in about}
    return {f"{rule.text} ({rule.place})": why for rule, why in reasons.items() if why}


def _refused(app: Application, rule: Rule, about: _About) -> str:
    """Why a deny rule before it, or any where it is none, refuses all that it is about."""
    for other in app.policy.deny:
        if other is rule:
            break
        is_whole = other.pattern in ("*", rule.pattern)
        is_partial = other.argument or other.other_roots or other.problem
        # Tools of other servers are not known here.
        if is_whole and not is_partial and about[rule] and about[rule].keys() <= about[other].keys():
            return f"the deny rule {other.text} refuses all that it is about"
    return ""


def _without_effect(app: Application, rule: Rule, about: _About) -> str:
    policy, tools, start = app.policy, about[rule].values(), literal_prefix(rule.pattern)
    is_path = all(entry.spec.path_fields and not entry.spec.url_fields for entry in tools)
    is_near = any(lies_in(root, start) or lies_in(start, root) for root in app.roots)
    if is_path and start.startswith("/") and not rule.argument and not is_near:
        return "it is about paths outside of all roots, which its tools never reach"
    levels = sorted(map(app.dispatcher.level, tools))
    if rule in policy.deny or not levels:
        return ""
    if levels[0] > policy.ceiling:
        return "its tools need more than the permission mode"
    rivals = (other for other in policy.ask if about[rule].keys() & about[other].keys())
    if levels[-1] <= policy.granted and rule in policy.allow and not any(rivals):
        return "its tools run unasked without it"
    return ""
