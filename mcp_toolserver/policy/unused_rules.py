"""Finds rules that can never decide anything."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.policy.rules import Policy, Rule
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.search.glob import literal_prefix


def unused_rules(
    policy: Policy,
    levels: Callable[[Rule], Sequence[Permission]],
    is_on_paths: Callable[[Rule], bool],
    roots: Sequence[str],
) -> Iterator[tuple[Rule, str]]:
    """Rules that can never match or decide, each with the reason.

    `levels` are the permissions of the tools that a rule is about, `is_on_paths` says whether all that these
    touch are paths in the roots.
    """
    for rule in (*policy.deny, *policy.ask, *policy.allow):
        if why := _covered_by(rule, policy.deny) or _out_of_reach(rule, roots, is_path=is_on_paths(rule)):
            yield rule, why
    for rule in (*policy.ask, *policy.allow):
        if (found := levels(rule)) and min(found) > policy.ceiling:
            yield rule, f"its tools need {min(found).flag}, above the permission mode"
    for rule in policy.allow:
        found = levels(rule)
        if found and max(found) <= policy.granted and not any(_overlaps(rule, other) for other in policy.ask):
            yield (
                rule,
                f"its tools need at most {max(found).flag}, which runs unasked, and no ask rule names them",
            )


def _covered_by(rule: Rule, deny: Iterable[Rule]) -> str:
    for other in deny:
        if other is rule:
            # Of two equal ones the later is never reached.
            break
        is_whole = other.pattern == "*" or other.pattern == rule.pattern
        if is_whole and not (other.argument or other.other_roots or other.problem) and _includes(other, rule):
            return f"the deny rule {other.text} refuses all that it is about"
    return ""


def _includes(wide: Rule, narrow: Rule) -> bool:
    """Whether all tools of `narrow` are tools of `wide`."""
    if wide.tool == "*":
        return wide.pattern == "*" or narrow.tool == "*"
    tools = {narrow.tool} if narrow.tool else narrow.tools
    is_same = wide.capability is not None and wide.capability is narrow.capability
    return is_same or bool(tools and tools <= ({wide.tool} | wide.tools))


def _overlaps(one: Rule, other: Rule) -> bool:
    every = {"*"} & {one.tool, other.tool}
    tools = ({one.tool} | one.tools) & ({other.tool} | other.tools) - {""}
    return bool(every or tools or one.capability or other.capability)


def _out_of_reach(rule: Rule, roots: Sequence[str], *, is_path: bool) -> str:
    start = literal_prefix(rule.pattern)
    if not is_path or rule.argument or not start.startswith("/"):
        return ""
    is_near = any(lies_in(root, start) or f"{root}/".startswith(start) for root in roots)
    return "" if is_near else "it is about paths outside of all roots, which its tools never reach"
