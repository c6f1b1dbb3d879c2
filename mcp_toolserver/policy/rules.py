"""Decides on calls by the ceiling and the operator's deny, ask and allow rules.

A call is decided in this order, and the first that applies wins:

    deny rule → refuse;  above the ceiling → refuse;  not allowed by a narrowing → refuse;
    ask rule → ask;  within `granted` → run;  allow rule → run;  else → ask

An allow rule replaces a question; it never raises a permission. A deny or ask rule applies when any subject
of the call matches; an allow rule only when every subject does.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.text.file_names import path_tests
from mcp_toolserver.text.shell.words import CommandPattern, text_matcher
from mcp_toolserver.text.web.urls import url_matcher

_Test = Callable[[str], bool]

Subject = tuple[str, ...]
"""One thing a call touches, in each spelling that a rule may use for it."""

READER = "read_file"
"""A deny rule on this tool hides the file from every tool that reads or writes files."""

_READS = frozenset({Capability.FS_READ})
"""So does one on this capability."""

FOREIGN = "mcp__"
"""Begins the name of another server's tool, `mcp__SERVER__TOOL`; `mcp__SERVER` means all of its tools."""

CAPABILITY = "capability:"
"""The prefix by which a rule names a capability, and so every tool that needs it."""

_RUNS_COMMANDS = frozenset(
    {Capability.PROCESS, Capability.SESSIONS, Capability.POWERSHELL, Capability.CONTAINERS}
)
_FILES = frozenset({Capability.FS_READ, Capability.FS_WRITE})
_REACHES_WEB = frozenset({Capability.FETCH, Capability.SEND})

_SHOWN = 20
"""Rules of a narrowing that an error text names."""

_RULE = re.compile(r"(?P<tool>\*|(?:capability:)?[A-Za-z_][\w-]*)(?:\((?P<pattern>.*)\))?", re.DOTALL)

_SITE = re.compile(r"https?://|domain:")
"""The start of a web address or of a pattern for one. No path in canonical spelling starts like this."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A validated call, as rules see it."""

    tool: str
    """The canonical name."""
    level: Permission
    """The permission that the call needs on this host."""
    subjects: tuple[Subject, ...] = ()
    needs: frozenset[Capability] = frozenset()
    """The capabilities that the tool needs."""
    script: str = ""
    """The shell script that the call runs; empty for none."""
    outside: str = ""
    """Why the script is to run outside the sandbox of commands; empty where it is not. No rule allows it: a
    human is asked each time."""
    preview: str = ""
    """What the call would do, as its tool found out for the question to the user."""
    through: str = ""
    """The tool through which this one is called, if any. A rule about it can deny or ask, never allow."""

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
    """A parsed `Tool(pattern)` or `capability:name(pattern)`."""

    text: str
    tool: str
    """The canonical name, `*` for every tool, or empty where the rule names a capability."""
    pattern: str
    """As written; `*` for a rule about every call."""
    matches: Callable[[str], bool]
    """For a rule that denies or asks."""
    permits: Callable[[str], bool]
    """For a rule that allows: never more than `matches`."""
    capability: Capability | None = None

    def covers(self, tool: str, needs: frozenset[Capability]) -> bool:
        """Whether the rule, where it denies or asks, is about `tool`, which needs `needs`."""
        return self.tool == tool or self._is_about_all(needs) or self.capability in needs

    def _is_about_all(self, needs: frozenset[Capability]) -> bool:
        """Whether it names every tool, and its pattern can be about what one with `needs` touches: a glob on
        paths says nothing of the text of a command."""
        is_glob = self.pattern != "*" and not _SITE.match(self.pattern)
        return self.tool == "*" and not (is_glob and needs and needs <= _RUNS_COMMANDS)

    def touches(self, subject: Subject) -> bool:
        """Whether any spelling of the subject matches."""
        return any(self.matches(spelling) for spelling in subject)

    def allows(self, request: "Request", subject: Subject) -> bool:
        """Whether the rule, where it allows, is about the call and this subject of it.

        One that names a capability is about tools that need nothing else.
        """
        alone = self.capability in request.needs and len(request.needs) == 1
        about = alone or self.tool == request.tool or self._is_about_all(request.needs)
        return about and any(self.permits(spelling) for spelling in subject)


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """Rights taken from calls on top of the server's policy: by an agent's type, a skill or plan mode. The
    defaults take nothing."""

    source: str
    """What takes the rights, as the subject of an error message: `plan mode`, `the skill 'release'`."""
    advice: str = ""
    """What to do instead, as a sentence."""
    ceiling: Permission = Permission.DANGER_FULL_ACCESS
    tools: tuple[Rule, ...] | None = None
    """Rules by which every subject of a call must be allowed; None: every tool."""
    exempt: str = ""
    """The absolute path of a file that calls may write nevertheless; empty for none."""

    def applies(self, request: Request) -> bool:
        """Whether it takes rights from the call; not from one that only reads and writes the exempt file."""
        is_exempt = bool(self.exempt and request.subjects) and request.needs <= _FILES
        return not (is_exempt and all(self.exempt in subject for subject in request.subjects))

    def refusal(self, request: Request) -> str:
        """Why the call is not allowed by `tools`; empty if it is."""
        if self.tools is None or _all(self.tools, request):
            return ""
        texts = [rule.text for rule in self.tools]
        allowed = ", ".join(texts[:_SHOWN]) + (", ..." if len(texts) > _SHOWN else "")
        return (
            f"{self.source} allows only {allowed or 'no tool'}, and not this call of {request.tool}. "
            f"{self.advice}"
        ).rstrip()


@dataclass(frozen=True, kw_only=True)
class RuleContext:
    """The names that a rule may use."""

    canonical: Callable[[str], str]
    """Any name of a tool → its canonical name; raises LookupError."""
    commands: frozenset[str]
    """Tools whose subjects are commands, which rules match word by word."""
    texts: frozenset[str] = frozenset()
    """Tools whose subjects are other plain text."""
    sites: frozenset[str] = frozenset()
    """Tools whose subjects are addresses of the web, and nothing else."""


def parse(text: str, words: RuleContext) -> Rule:
    """Parse one rule.

    `Tool`, `Tool()` and `Tool(*)` match every call of the tool; `*` instead of a name means every tool, and
    `capability:name` every tool that needs the capability. For what runs commands, the pattern is a command,
    in which `*` stands for any text and a last `:*` means "and anything after these words" (see
    `text/command_pattern`). For what has only to do with the web, and wherever it starts with `https://`
    or `domain:`, it is a host, perhaps with a path (see `text/urls`). Everything else is a glob on paths,
    which without `/` matches at any depth, and which compares names as the volume of the path does.

    Raises:
        SettingsError: no such tool or capability, or not of this form.
    """
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"rule {text!r} is not of the form Tool or Tool(pattern)")
    tool, capability = found["tool"], None
    if tool.startswith(CAPABILITY):
        tool, capability = "", _capability(text, tool.removeprefix(CAPABILITY))
    elif tool != "*":
        try:
            tool = words.canonical(tool)
        except LookupError:
            raise SettingsError(f"rule {text!r} names a tool that does not exist") from None
    try:
        pattern = found["pattern"] or "*"
        matches, permits = _tests(pattern, tool, capability, words)
    except ValueError as error:
        raise SettingsError(f"rule {text!r}: {error}") from None
    return Rule(text, tool, pattern, matches, permits, capability)


def _capability(text: str, name: str) -> Capability:
    named = {one.label: one for one in Capability}
    if name not in named:
        choices = ", ".join(named)
        raise SettingsError(f"rule {text!r} names an unknown capability; choose from {choices}")
    return named[name]


def _tests(pattern: str, tool: str, capability: Capability | None, words: RuleContext) -> tuple[_Test, _Test]:
    """The test for deny and ask rules, and the one for allow rules; usually they are the same."""
    if pattern == "*":
        return _always, _always
    if tool in words.commands or capability in _RUNS_COMMANDS:
        return (command := CommandPattern(pattern)).matches, command.permits
    if tool in words.texts:
        return (test := text_matcher(pattern)), test
    if tool in words.sites or capability in _REACHES_WEB or _SITE.match(pattern):
        return (test := url_matcher(pattern)), test
    denies, allows = path_tests(pattern)
    return (
        lambda subject: not _SITE.match(subject) and denies(subject),
        lambda subject: not _SITE.match(subject) and allows(subject),
    )


def _always(_: str) -> bool:
    return True


def by_reach(deny: Iterable[str], words: RuleContext) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The deny rules that hide paths, and those that bind only calls of the tool they name.

    The sandbox hides the paths of the first kind from commands; rules of the second kind do not apply to what
    a command does. A rule on a tool that runs commands is about the text of its calls, and is in neither.
    """
    hiding: list[str] = []
    tools_only: list[str] = []
    for text in deny:
        try:
            rule = parse(text, words)
        except SettingsError:
            # It may name one of the operator's own tools.
            tools_only.append(text)
            continue
        if rule.covers(READER, _READS):
            hiding.append(text)
        elif rule.tool not in words.commands and rule.capability not in _RUNS_COMMANDS:
            tools_only.append(text)
    return tuple(hiding), tuple(tools_only)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Decides on calls; constant for the life of the process."""

    ceiling: Permission
    granted: Permission
    """Calls up to this permission run without a question."""
    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()
    narrowings: tuple[Narrowing, ...] = ()
    """What takes rights from single calls."""
    token: str = ""
    """The name of the token that set the ceiling; empty if the server's mode did."""

    def for_token(self, name: str, ceiling: Permission) -> "Policy":
        """This policy for the clients that have the token `name`; a token never raises the ceiling."""
        ceiling = min(ceiling, self.ceiling)
        return replace(self, ceiling=ceiling, granted=min(self.granted, ceiling), token=name)

    def under(self, restrictions: ClientRestrictions) -> "Policy":
        """This policy under a client's restrictions of one call."""
        if restrictions.ceiling >= self.ceiling:
            return self
        advice = "The user can change that in the client."
        own = Narrowing(source=restrictions.source, ceiling=restrictions.ceiling, advice=advice)
        return self.narrowed((own,))

    def narrowed(self, narrowings: Sequence[Narrowing]) -> "Policy":
        """This policy for calls that each of `narrowings` takes rights from."""
        ceiling = min((self.ceiling, *(one.ceiling for one in narrowings)))
        return replace(
            self,
            ceiling=ceiling,
            granted=min(self.granted, ceiling),
            narrowings=(*self.narrowings, *narrowings),
        )

    def decide(self, request: Request) -> Verdict:
        """Decide on one call; see the order in the module docstring."""
        if denied := _any(self.deny, request):
            reason = f"{request.tool} is denied here by the rule {denied.text}."
            return Verdict(action="refuse", reason=reason, rule=denied.text)
        if request.level > self.ceiling:
            return Verdict(action="refuse", reason=self._above(request))
        for narrowing in self.narrowings:
            if reason := narrowing.refusal(request):
                return Verdict(action="refuse", reason=reason)
        if asked := _any(self.ask, request):
            reason = f"The rule {asked.text} wants it approved."
            return Verdict(action="ask", reason=reason, rule=asked.text)
        if request.level <= self.granted:
            return Verdict(action="run")
        if not request.outside and (allowed := _all(self.allow, request)):
            return Verdict(action="run", rule=", ".join(allowed))
        return Verdict(
            action="ask",
            reason=f"It needs {request.level.flag}; only {self.granted.flag} is granted unasked.",
        )

    @cached_property
    def _hiding(self) -> tuple[Rule, ...]:
        """The deny rules on reading, which hide files."""
        return tuple(rule for rule in self.deny if rule.covers(READER, _READS))

    def hides(self, spellings: Subject) -> bool:
        """Whether a deny rule on reading covers this path, so that no file tool may show or change it."""
        return bool(self._hiding and self.hiding_rule(spellings))

    def hiding_rule(self, spellings: Subject) -> str:
        """The deny rule on reading that covers this path; empty without one."""
        return next((rule.text for rule in self._hiding if rule.touches(spellings)), "")

    @property
    def hidden_patterns(self) -> tuple[str, ...]:
        """The globs on paths of the deny rules on reading."""
        return tuple(rule.pattern for rule in self._hiding if not _SITE.match(rule.pattern))

    @property
    def hides_anything(self) -> bool:
        """Whether any rule hides files; if not, a search need not check every file."""
        return bool(self._hiding)

    @property
    def may_ask(self) -> bool:
        """Whether any call can lead to a question."""
        return bool(self.ask) or self.granted < self.ceiling

    def _above(self, request: Request) -> str:
        if lower := next((one for one in self.narrowings if one.ceiling < request.level), None):
            return (
                f"{request.tool} requires {request.level.flag} permission; {lower.source} allows this call "
                f"no more than {lower.ceiling.flag}. {lower.advice}".rstrip()
            )
        if self.token:
            return (
                f"{request.tool} requires {request.level.flag} permission; the token {self.token!r} allows "
                f"{self.ceiling.flag} at most, and nothing in a call can raise that. The operator of the "
                "server can change the token."
            )
        return (
            f"{request.tool} requires {request.level.flag} permission; this server runs with "
            f"--permission-mode {self.ceiling.flag}, and nothing in a call can raise that. "
            f"The operator can restart it with --permission-mode {request.level.flag}."
        )


def _any(rules: Sequence[Rule], request: Request) -> Rule | None:
    """A rule for everything a tool does applies even when a call names no subject."""
    if not rules:
        return None
    subjects = request.subjects or (("",),)
    about = (rule for rule in rules if any(rule.covers(tool, request.needs) for tool in request.tools))
    return next((rule for rule in about if any(map(rule.touches, subjects))), None)


def _all(rules: Sequence[Rule], request: Request) -> tuple[str, ...]:
    """The rules by which every subject is allowed; none when a subject is not."""
    subjects = request.subjects or (("",),)
    found = [next((rule.text for rule in rules if rule.allows(request, one)), None) for one in subjects]
    texts = tuple(dict.fromkeys(text for text in found if text is not None))
    return () if None in found else texts
