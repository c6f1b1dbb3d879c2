"""Rules of a project: the file `.mcp-toolserver.toml` in a root, with the keys deny, ask and hide.

They only take rights. A file that cannot be read or has anything else in it refuses every call that it is
about. What is hidden is hidden from the start: after a change that hides more files, calls are refused until
the server starts again.
"""

import logging
import os
import stat
import tomllib
from collections.abc import Sequence
from dataclasses import replace

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.policy.rules import Policy, Rule, RuleContext, Rules, parse
from mcp_toolserver.runtime.sandbox.protected.names import PROJECT_RULES
from mcp_toolserver.settings import TABLES, Raw, rule_line

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024
_KEYS = ("deny", "ask", "hide")
_READ = TABLES["rules"][0].read
"""Reads a list of rules."""


class ProjectRules:
    """The rules of the projects in the roots, in addition to those of a policy."""

    def __init__(self, policy: Policy, roots: Sequence[str], context: RuleContext) -> None:
        self._policy, self._roots, self._context = policy, tuple(roots), context
        self._hidden: frozenset[tuple[str, str]] | None = None
        self._state = _, rules, _ = self._read()
        self._hidden = frozenset((rule.root, rule.pattern) for rule in rules if rule.hides_files)
        self.hidden_tools = tuple(rule.tool for rule in rules if rule.is_hidden)
        """The tools that the files hid at the start."""
        self.problems = tuple(rule.problem for rule in rules if rule.problem)
        """What was wrong with the files at the start."""

    def applied(self, policy: Policy) -> Policy:
        """`policy`, which has the operator's rules, with these added as they were last read."""
        _, deny, ask = self._state
        return policy if policy.deny is deny else replace(policy, deny=deny, ask=ask)

    def refresh(self) -> None:
        """Read the files where one has changed; blocks."""
        if tuple(map(_signature, self._roots)) != self._state[0]:
            self._state = self._read()

    def _read(self) -> tuple[Sequence[tuple[int, ...]], Rules, Rules]:
        # Taken first: what changes while a file is read is seen by the next look.
        seen = tuple(map(_signature, self._roots))
        found = [one for root in self._roots for one in self._rules(root)]
        deny = Rules((*self._policy.deny, *(rule for key, rule in found if key != "ask")))
        return seen, deny, Rules((*self._policy.ask, *(rule for key, rule in found if key == "ask")))

    def _rules(self, root: str) -> list[tuple[str, Rule]]:
        """The rules of one root, each with its key; one that denies everything where the file is invalid."""
        path = os.path.join(root, PROJECT_RULES)
        others = tuple(other for other in self._roots if other != root)
        try:
            found = _parsed(path, self._context)
            hidden = {(root, rule.pattern) for key, rule in found if key == "deny" and rule.hides_files}
            if self._hidden is not None and hidden - self._hidden:
                raise SettingsError(f"{path} hides more files than at the start; restart the server")
        except SettingsError as error:
            log.warning("%s", error)
            problem = f"{error}. Until that is corrected, nothing runs here. Tell the user."
            found = [("deny", replace(parse("*", self._context, path), problem=problem))]
        # A tool is hidden for all roots.
        return [
            (key, replace(rule, root=root, other_roots=() if rule.is_hidden else others))
            for key, rule in found
        ]


def _parsed(path: str, context: RuleContext) -> list[tuple[str, Rule]]:
    """The rules in a file, each with its key. Raises: SettingsError: names the line."""
    try:
        text = _text(path)
        content: dict[str, Raw] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    found: list[tuple[str, Rule]] = []
    for key, raw in content.items():
        line = f"{path}:{rule_line(text, key)}"
        try:
            if key not in _KEYS:
                raise SettingsError(
                    f"unknown key {key!r}; a project has only {', '.join(_KEYS)}: it takes rights"
                )
            texts = _READ(raw)
            for one in texts if isinstance(texts, tuple) else ():
                line = f"{path}:{rule_line(text, key, one)}"
                rule = parse(one, context, line)
                if key == "hide" and (rule.pattern != "*" or rule.tool in ("", "*")):
                    raise SettingsError(f"hide lists names of tools; {one!r} is none")
                found.append((key, replace(rule, is_hidden=key == "hide")))
        except (SettingsError, ValueError) as error:
            raise SettingsError(f"{line}: {error}") from None
    return found


def _signature(root: str) -> tuple[int, ...]:
    """What changes with the file."""
    try:
        found = os.lstat(os.path.join(root, PROJECT_RULES))
    except OSError as error:
        return (error.errno or 0,)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _text(path: str) -> str:
    """The text of the file; empty without one. Raises: SettingsError: it cannot be read."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            content = file.read(MAX_BYTES + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}; it must be a regular file") from None
    if content is None or len(content) > MAX_BYTES:
        raise SettingsError(f"{path} must be a regular file of at most {MAX_BYTES >> 10} KiB")
    return content.decode()
