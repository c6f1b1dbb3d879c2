"""Who may do what: the ceiling, and the operator's deny, ask and allow rules.

A call is decided in this order, and the first that applies wins:

    deny rule → refuse;  above the ceiling → refuse;  ask rule → ask;  within `granted` → run;
    allow rule → run;  else → ask

An allow rule spares a question; it never raises a right. A deny or ask rule applies when any subject of the
call matches; an allow rule only when every subject does.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mcp_toolserver.capabilities.prices import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.policy.narrowing import Narrowing
from mcp_toolserver.text.glob import matcher, wildcard
from mcp_toolserver.text.urls import url_matcher

Subject = tuple[str, ...]
"""One thing a call touches, in each spelling that a rule may use for it."""

READER = "read_file"
"""A deny rule on this tool hides the file from every tool that reads or writes files."""

_RULE = re.compile(r"(?P<tool>\*|[A-Za-z_][\w-]*)(?:\((?P<pattern>.*)\))?", re.DOTALL)

_SITE = re.compile(r"https?://|domain:")
"""How an address of the web starts, and a pattern for one. No path in canonical spelling does."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A validated call, as rules see it."""

    tool: str
    """The canonical name."""
    level: Permission
    """What the call needs on this host."""
    subjects: tuple[Subject, ...] = ()
    through: str = ""
    """The tool that was called to call this one, if any. A rule about it can deny or ask, never allow."""

    @property
    def tools(self) -> tuple[str, ...]:
        """Every tool that must be permitted for the call."""
        return (self.tool, self.through) if self.through else (self.tool,)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The decision on a call."""

    action: Literal["run", "ask", "refuse"]
    reason: str = ""
    """For `ask` and `refuse`: why, as a sentence for the model."""
    rule: str = ""
    """The rule that decided, as the operator wrote it; several are joined by commas."""


@dataclass(frozen=True)
class Rule:
    """A parsed `Tool(pattern)`."""

    text: str
    tool: str
    """The canonical name, or `*` for every tool."""
    matches: Callable[[str], bool]

    def covers(self, tool: str) -> bool:
        """Whether the rule is about `tool` at all."""
        return self.tool in ("*", tool)

    def touches(self, subject: Subject) -> bool:
        """Whether any spelling of the subject matches."""
        return any(self.matches(spelling) for spelling in subject)


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What a rule may name."""

    canonical: Callable[[str], str]
    """Any name of a tool → its canonical name; raises LookupError."""
    commands: frozenset[str]
    """Tools whose subjects are commands or other plain text, not paths."""
    sites: frozenset[str] = frozenset()
    """Tools whose subjects are addresses of the web, and nothing else."""


def parse(text: str, words: Vocabulary) -> Rule:
    """Parse one rule.

    `Tool`, `Tool()` and `Tool(*)` match every call of the tool; `*` instead of a name means every tool. For a
    tool that runs commands, `*` in the pattern stands for any text and a last `:*` means "and anything after
    these words". For a tool that has only to do with the web, and wherever it starts with `https://` or
    `domain:`, it is a host, perhaps with a path (see `text/urls`). Everything else is a glob on paths, which
    without `/` matches at any depth.

    Raises:
        SettingsError: no such tool, or not of this form.
    """
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"rule {text!r} is not of the form Tool or Tool(pattern)")
    tool = found["tool"]
    if tool != "*":
        try:
            tool = words.canonical(tool)
        except LookupError:
            raise SettingsError(f"rule {text!r} names a tool that does not exist") from None
    pattern = found["pattern"] or "*"
    try:
        return Rule(text, tool, _matcher(pattern, tool, words))
    except ValueError as error:
        raise SettingsError(f"rule {text!r}: {error}") from None


def _matcher(pattern: str, tool: str, words: Vocabulary) -> Callable[[str], bool]:
    if pattern == "*":
        return lambda _: True
    if tool not in words.commands:
        if tool in words.sites or _SITE.match(pattern):
            return url_matcher(pattern)
        path = matcher(pattern)
        return lambda subject: not _SITE.match(subject) and path(subject)
    if not pattern.endswith(":*"):
        return wildcard(pattern)
    start = pattern.removesuffix(":*")
    alone, followed = wildcard(start), wildcard(f"{start} *")
    return lambda subject: alone(subject) or followed(subject)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The decision maker: constant for the life of the process."""

    ceiling: Permission
    granted: Permission
    """Up to here calls run without a question."""
    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()
    bound: str = ""
    """Whose the ceiling of a single call is, where it is lower than that of the server."""

    def under(self, narrowing: Narrowing) -> "Policy":
        """The same policy for one call, which a client confines further."""
        if narrowing.ceiling >= self.ceiling:
            return self
        return replace(self, ceiling=narrowing.ceiling, bound=narrowing.whose)

    def decide(self, request: Request) -> Verdict:
        """Decide on one call; see the order in the module docstring."""
        if denied := _any(self.deny, request):
            reason = f"{request.tool} is denied here by the rule {denied.text}."
            return Verdict(action="refuse", reason=reason, rule=denied.text)
        if request.level > self.ceiling:
            return Verdict(action="refuse", reason=self._above(request))
        if asked := _any(self.ask, request):
            reason = f"The rule {asked.text} wants it approved."
            return Verdict(action="ask", reason=reason, rule=asked.text)
        if request.level <= self.granted:
            return Verdict(action="run")
        if allowed := _all(self.allow, request):
            return Verdict(action="run", rule=", ".join(allowed))
        return Verdict(
            action="ask",
            reason=f"It needs {request.level.flag}; only {self.granted.flag} is granted unasked.",
        )

    def hides(self, spellings: Subject) -> bool:
        """Whether a deny rule on reading covers this path, so that no file tool may show or change it."""
        return any(rule.covers(READER) and rule.touches(spellings) for rule in self.deny)

    @property
    def may_ask(self) -> bool:
        """Whether any call could lead to a question."""
        return bool(self.ask) or self.granted < self.ceiling

    @property
    def hides_anything(self) -> bool:
        """False spares a search the question per file."""
        return any(rule.covers(READER) for rule in self.deny)

    def _above(self, request: Request) -> str:
        if self.bound:
            return (
                f"{request.tool} requires {request.level.flag} permission; {self.bound} allows this call no "
                f"more than {self.ceiling.flag}. The user can change that in the client."
            )
        return (
            f"{request.tool} requires {request.level.flag} permission; this server runs with "
            f"--permission-mode {self.ceiling.flag}, and nothing in a call can raise that. "
            f"The operator can restart it with --permission-mode {request.level.flag}."
        )


def _any(rules: Iterable[Rule], request: Request) -> Rule | None:
    """A rule for everything a tool does applies even when a call names no subject."""
    subjects = request.subjects or (("",),)
    return next(
        (rule for rule in rules if any(map(rule.covers, request.tools)) and any(map(rule.touches, subjects))),
        None,
    )


def _all(rules: Sequence[Rule], request: Request) -> tuple[str, ...]:
    """The rules by which every subject is allowed; none when a subject is not."""
    mine = [rule for rule in rules if rule.covers(request.tool)]
    subjects = request.subjects or (("",),)
    found = [next((rule.text for rule in mine if rule.touches(subject)), None) for subject in subjects]
    texts = tuple(dict.fromkeys(text for text in found if text is not None))
    return () if None in found else texts
