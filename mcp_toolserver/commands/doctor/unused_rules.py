"""Finds rules that can never decide anything."""

from collections.abc import Mapping, Sequence

from mcp_toolserver.app.compose import Application
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.policy.rules import Rule
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.search.glob import literal_prefix


def unused_rules(app: Application) -> Mapping[str, str]:
    """By rule, with its source, why it can never decide anything."""
    policy, found = app.policy, dict[str, str]()
    for rule in (*policy.deny, *policy.ask, *policy.allow):
        why = _refused(app, rule) or _out_of_reach(app, rule)
        if not why and rule not in policy.deny:
            why = _without_effect(app, rule)
        if why:
            found[f"{rule.text} ({rule.place})"] = why
    return found


def _about(app: Application, rule: Rule) -> Mapping[str, Entry]:
    entries = app.registry.entries.items()
    return {name: entry for name, entry in entries if rule.covers(name, entry.spec.needs)}


def _refused(app: Application, rule: Rule) -> str:
    """Why a deny rule before it, or any where it is none, refuses all that it is about."""
    for other in app.policy.deny:
        if other is rule:
            break
        is_whole = other.pattern in ("*", rule.pattern)
        if not is_whole or other.argument or other.other_roots or other.problem:
            continue
        if _about(app, rule).keys() <= _about(app, other).keys():
            return f"the deny rule {other.text} refuses all that it is about"
    return ""


def _out_of_reach(app: Application, rule: Rule) -> str:
    start, tools = literal_prefix(rule.pattern), _about(app, rule).values()
    is_path = all(entry.spec.path_fields and not entry.spec.url_fields for entry in tools)
    if not is_path or rule.argument or not start.startswith("/"):
        return ""
    is_near = any(lies_in(root, start) or lies_in(start, root) for root in app.roots)
    return "" if is_near else "it is about paths outside of all roots, which its tools never reach"


def _without_effect(app: Application, rule: Rule) -> str:
    """Why an ask or allow rule changes nothing."""
    policy, tools = app.policy, _about(app, rule)
    levels: Sequence[int] = sorted(map(app.dispatcher.level, tools.values()))
    if levels and levels[0] > policy.ceiling:
        return "its tools need more than the permission mode"
    rivals = (other for other in policy.ask if tools.keys() & _about(app, other).keys())
    if levels and levels[-1] <= policy.granted and rule in policy.allow and not any(rivals):
        return "its tools run unasked without it"
    return ""
