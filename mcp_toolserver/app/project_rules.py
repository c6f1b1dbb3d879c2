"""Rules of a project: the file `.mcp-toolserver.toml` in a root, with the keys deny, ask and hide.

They only take rights.
A file that cannot be read or has anything else in it refuses every call that it is about. The tools that it
hides, and the files that it hides from commands, are those of the start: a call is refused after a change
that hides more files, until the server starts again.
"""

import logging
import os
import stat
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.policy.rules import Policy, Rule, RuleContext, Rules, parse
from mcp_toolserver.runtime.sandbox.protected.names import PROJECT_RULES
from mcp_toolserver.settings import TABLES, Raw, rule_line

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024
MAX_RULES = 1_000
_KEYS = ("deny", "ask", "hide")
_NAMES = ", ".join(_KEYS)
_READ = TABLES["rules"][0].read
"""Reads a list of rules."""
_CHECK = "Its owner can correct the file; until then nothing runs here."

_Signature = tuple[int, ...] | None
_Lists = dict[str, tuple[Rule, ...]]


@dataclass(frozen=True)
class _State:
    seen: tuple[_Signature, ...]
    deny: Rules
    ask: Rules


class ProjectRules:
    """The rules of the projects in the roots, in addition to those of a policy."""

    def __init__(self, policy: Policy, roots: Sequence[str], context: RuleContext) -> None:
        self._policy, self._roots, self._context = policy, tuple(roots), context
        self.hidden_tools = frozenset[str]()
        """Those that the files hid at the start."""
        self._hidden: frozenset[tuple[str, str]] | None = None
        self._state = self._read()
        hiding = [rule for rule in self._state.deny if rule.hides_files]
        self._hidden = frozenset((rule.root, rule.pattern) for rule in hiding)

    def applied(self, policy: Policy) -> Policy:
        """`policy`, which has the operator's rules, with these added as they were last read."""
        state = self._state
        return policy if policy.deny is state.deny else replace(policy, deny=state.deny, ask=state.ask)

    def refresh(self) -> None:
        """Read the files where one has changed; blocks."""
        if tuple(map(_signature, self._roots)) != self._state.seen:
            self._state = self._read()

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files."""
        return tuple(rule.problem for rule in self._state.deny if rule.problem)

    def _read(self) -> _State:
        # Taken first: what changes while a file is read is seen by the next look.
        seen = tuple(map(_signature, self._roots))
        deny, ask = [*self._policy.deny], [*self._policy.ask]
        for root in self._roots:
            lists = self._lists(root)
            deny += (*lists["hide"], *lists["deny"])
            ask += lists["ask"]
        return _State(seen, Rules(deny), Rules(ask))

    def _lists(self, root: str) -> _Lists:
        """The rules of one root by key; one that denies everything where the file is invalid."""
        path = os.path.join(root, PROJECT_RULES)
        others = tuple(other for other in self._roots if other != root)
        try:
            lists = parsed(path, _text(path), self._context)
            hidden = {(root, rule.pattern) for rule in lists["deny"] if rule.hides_files}
            if self._hidden is not None and hidden - self._hidden:
                raise SettingsError(f"{path} hides more files than at the start; restart the server")
        except SettingsError as error:
            log.warning("%s", error)
            invalid = replace(parse("*", self._context, path), problem=f"{error}. {_CHECK}")
            lists = {"deny": (invalid,), "ask": (), "hide": ()}
        if self._hidden is None:
            self.hidden_tools |= {rule.tool for rule in lists["hide"]}
        return {
            key: tuple(
                # A tool is hidden for all roots.
                replace(rule, scope="project", root=root, other_roots=() if key == "hide" else others)
                for rule in rules
            )
            for key, rules in lists.items()
        }


def parsed(path: str, text: str, context: RuleContext) -> _Lists:
    """The rules in the text of the file `path`, by key. Raises: SettingsError: names the line."""
    try:
        content: dict[str, Raw] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    lists: _Lists = dict.fromkeys(_KEYS, ())
    for key, raw in content.items():
        line = f"{path}:{rule_line(text, key)}"
        if key not in _KEYS:
            raise SettingsError(f"{line}: unknown key {key!r}; a project only takes rights, by {_NAMES}")
        try:
            texts = _READ(raw)
        except ValueError as error:
            raise SettingsError(f"{line}: {error}") from None
        if not isinstance(texts, tuple) or len(texts) > MAX_RULES:
            raise SettingsError(f"{line}: at most {MAX_RULES} rules")
        lists[key] = tuple(_rule(path, text, key, one, context) for one in texts)
    return lists


def _rule(path: str, text: str, key: str, written: str, context: RuleContext) -> Rule:
    line = f"{path}:{rule_line(text, key, written)}"
    try:
        rule = parse(written, context, line)
    except SettingsError as error:
        raise SettingsError(f"{line}: {error}") from None
    if key == "hide" and (rule.pattern != "*" or not rule.tool or rule.tool == "*"):
        raise SettingsError(f"{line}: hide lists names of tools; {written!r} is none")
    return rule


def _signature(root: str) -> _Signature:
    """What changes with the file; None without one."""
    try:
        found = os.lstat(os.path.join(root, PROJECT_RULES))
    except OSError as error:
        return None if isinstance(error, (FileNotFoundError, NotADirectoryError)) else (error.errno or 0,)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _text(path: str) -> str:
    """The text of the file; empty without one. Raises: SettingsError: it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}; it must be a regular file") from None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or len(content := file.read(MAX_BYTES + 1)) > MAX_BYTES:
            raise SettingsError(f"{path} must be a regular file of at most {MAX_BYTES >> 10} KiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8") from None
