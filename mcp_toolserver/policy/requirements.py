"""Translates the requirement set of a tool into a narrowing of its calls: it takes rights and gives none."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from posixpath import join, normpath

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.capabilities.requirements import VARIABLE, RequirementSet, ShellRequirement
from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.policy.rules import RUNS_COMMANDS, Narrowing, Rule, RuleContext, parse
from mcp_toolserver.text.search.glob import escaped
from mcp_toolserver.tool_spec import ToolSpec

_SPECIAL = frozenset("$`*?[]{}~;|&<>()#!\n\r")
"""Characters by which a shell makes other words or commands of a text."""

_WORDS = RuleContext(canonical=str, commands=frozenset())


def narrowing(spec: ToolSpec, given: RequirementSet, variables: Mapping[str, Sequence[str]]) -> Narrowing:
    """The narrowing of all calls of `spec`; `variables` have the absolute paths that each stands for.

    What a call of a tool that runs commands touches is a command, otherwise it is an address or a path.

    Raises:
        ValueError: a pattern is invalid.
        RegistrationError: the tool needs something that is not in the set.
    """
    read, write, hosts = given.fs.get("read", ()), given.fs.get("write", ()), given.net.get("hosts", ())
    sections: dict[Capability, object] = dict.fromkeys(RUNS_COMMANDS, given.shell)
    sections |= {Capability.FS_READ: read + write, Capability.FS_WRITE: write}
    sections |= {Capability.FETCH: hosts, Capability.SEND: hosts}
    listed = {Capability.OWN_CODE.label, *given.capabilities}
    if missing := [need.label for need in spec.needs if not (need.label in listed or sections.get(need))]:
        raise RegistrationError(f"{spec.name} needs {min(missing)}, which its requirement set leaves out")
    if unknown := listed - {one.label for one in Capability}:
        raise RegistrationError(f"{spec.name} requires {min(unknown)}, which is no capability")
    if spec.kind == "execute" or spec.needs & RUNS_COMMANDS:
        rules = [_command(spec.name, one) for one in given.shell]
    else:
        # Which of its paths a tool writes is known to the tool only.
        paths = read + write if spec.own_permission is Permission.READ_ONLY else write
        patterns = [place for one in paths for place in _places(one, variables)]
        patterns += [f"domain:{host}" for host in hosts]
        rules = [parse(f"{spec.name}({one})", _WORDS) for one in patterns]
        # Paths in marked arguments are canonical.
        base = "" if spec.path_fields else next(iter(variables["workspace"]), "/")
        rules = [replace(rule, permits=partial(_as_sent, rule, base)) for rule in rules]
    return Narrowing(source=f"the requirement set of {spec.name}", tools=tuple(rules))


def _places(pattern: str, variables: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The globs that a pattern stands for: one for each path of its variable, so maybe none."""
    if not (found := VARIABLE.match(pattern)):
        return (pattern,)
    return [f"{escaped(path)}{pattern[found.end() :] or '/**'}" for path in variables[found[1]]]


def _as_sent(rule: Rule, base: str, text: str) -> bool:
    """Whether the rule permits an address, or a path as a client spells it, perhaps relative to `base`."""
    path = normpath(join(base, text))
    has_scheme = re.match(r"[A-Za-z][\w+.-]*:", text)
    return rule.permits(text if has_scheme or path == text else path)


def _command(tool: str, given: ShellRequirement) -> Rule:
    def permits(text: str) -> bool:
        try:
            words = shlex.split(text)
        except ValueError:
            return False
        if len(words) != 1 + len(given.args) or not _SPECIAL.isdisjoint(text):
            return False
        pairs = zip((given.cmd, *given.args), words, strict=True)
        return all(one == word if isinstance(one, str) else one.fits(word) for one, word in pairs)

    return Rule(f"{tool}({given.cmd} ...)", tool, given.cmd, permits, permits)
