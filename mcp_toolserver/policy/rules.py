"""Decides on calls by the ceiling and the deny, ask and allow rules of operator, session and project.

A call is decided in this order, and the first that applies wins:

    deny rule → refuse;  above the ceiling → refuse;  not allowed by a narrowing → refuse;
    the most specific ask or allow rule of each subject: one ask → ask, all allow → run;
    within `granted` → run;  else → ask

An allow rule replaces a question; it never raises a permission. A deny or ask rule applies when any subject
of the call matches; an allow rule only when every subject does. Of two rules the more specific is the one
that names a tool, then one that names a toolset or capability, then one for `*`; then the one with more
characters that are no wildcards; then the one without wildcards. Between equals ask wins.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.text.file_names import VolumePath, lies_in, path_tests
from mcp_toolserver.text.search.glob import starts
from mcp_toolserver.text.shell.words import CommandPattern, text_matcher
from mcp_toolserver.text.web.urls import url_matcher

_Test = Callable[[str], bool]

Action = Literal["run", "ask", "refuse"]

Stage = Literal["deny", "ceiling", "narrowing", "ask", "allow", "granted", "default"]
"""What decided."""

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

TOOLSET = "toolset:"
"""The prefix by which a rule names a toolset."""

RUNS_COMMANDS = frozenset(
    {Capability.PROCESS, Capability.SESSIONS, Capability.POWERSHELL, Capability.CONTAINERS}
)
_FILES = frozenset({Capability.FS_READ, Capability.FS_WRITE})
_REACHES_WEB = frozenset({Capability.FETCH, Capability.SEND})

_MOST_KEPT = 1_000

_SHOWN = 20
"""Rules of a narrowing that an error text names."""

_RULE = re.compile(
    r"(?P<tool>\*|(?:capability:|toolset:)?[A-Za-z_][\w-]*)(?:\((?P<pattern>.*)\))?", re.DOTALL
)

_SITE = re.compile(r"https?://|domain:")
"""The start of a web address or of a pattern for one. No path in canonical spelling starts like this."""

_WILDCARDS = re.compile(r":\*$|\[[^]]*\]|\{[^}]*\}|[*?]")


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
    argument: Callable[[str], tuple[str, ...]] = lambda _: ()
    """The texts of an argument, by its name."""
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

    action: Action
    reason: str = ""
    """For `ask` and `refuse`: why, as a sentence for the model."""
    rule: str = ""
    """The rule that decided, as it was written; several are joined by commas."""
    stage: Stage = "default"
    source: str = ""
    """The scope of the rule and where it stands."""


def _first_component(path: str) -> str:
    """`docs` of `docs/a`, and `/srv` of `/srv/a`."""
    end = path.find("/", 1)
    return path if end < 0 else path[:end]


@dataclass(frozen=True)
class Rule:
    """A parsed `Tool(pattern)`, `toolset:name(pattern)` or `capability:name(pattern)`."""

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
    tools: frozenset[str] = frozenset()
    """Those of the toolset that the rule names."""
    start: str = ""
    """The first component of every path that it matches; empty if they differ, or are no paths."""
    argument: str = ""
    """The argument that the pattern is about; empty for the subjects."""
    source: str = ""
    """The file and line that have the rule, if they are known."""
    root: str = ""
    """The root that a rule of a project is about; empty for one of the operator."""
    other_roots: tuple[str, ...] = ()
    """Folders on whose paths it says nothing."""
    is_hidden: bool = False
    """Whether the rule hides the tool instead of some calls."""
    problem: str = ""
    """For a rule that stands for an invalid file: what is wrong, as a sentence."""

    @cached_property
    def specificity(self) -> tuple[int, int, bool]:
        """The rule with the greater one is the more specific; see the module docstring."""
        name = 0 if self.tool == "*" else 2 if self.tool else 1
        literal = _WILDCARDS.sub("", pattern := _SITE.sub("", self.pattern, count=1))
        return name, len(literal), literal == pattern

    @property
    def hides_files(self) -> bool:
        """Whether the rule, where it denies, hides files from every tool."""
        return self.covers(READER, _READS) and not (self.argument or self.problem or self.is_hidden)

    @property
    def place(self) -> str:
        """Its scope and source, for people."""
        return ", ".join(filter(None, ("project" if self.root else "operator", self.source)))

    def covers(self, tool: str, needs: frozenset[Capability]) -> bool:
        """Whether the rule, where it denies or asks, is about `tool`, which needs `needs`."""
        return self._names(tool) or self._is_about_all(needs) or self.capability in needs

    def _names(self, tool: str) -> bool:
        is_server = self.tool.startswith(FOREIGN) and tool.startswith(f"{self.tool}__")
        return self.tool == tool or tool in self.tools or is_server

    def _is_about_all(self, needs: frozenset[Capability]) -> bool:
        """Whether it names every tool, and its pattern can be about what one with `needs` touches: a glob on
        paths says nothing of the text of a command."""
        is_glob = self.pattern != "*" and not _SITE.match(self.pattern)
        return self.tool == "*" and not (is_glob and needs and needs <= RUNS_COMMANDS)

    def touches(self, subject: Subject) -> bool:
        """Whether any spelling of the subject matches."""
        return any(map(self.matches, subject)) and not self._is_elsewhere(subject)

    def _is_elsewhere(self, subject: Subject) -> bool:
        """Whether the subject is a path in another root only."""
        is_other = any(lies_in(root, one) for root in self.other_roots for one in subject)
        return is_other and not any(lies_in(self.root, one) for one in subject)

    def applies(self, request: Request, subject: Subject) -> bool:
        """Whether the rule, where it denies or asks and covers the tool, applies for this subject."""
        if not self.argument:
            return self.touches(subject)
        return any(map(self.matches, request.argument(self.argument))) and not self._is_elsewhere(subject)

    def allows(self, request: Request, subject: Subject) -> bool:
        """Whether the rule, where it allows, is about the call and this subject of it.

        One that names a capability is about tools that need nothing else.
        """
        alone = self.capability in request.needs and len(request.needs) == 1
        if not (alone or self._names(request.tool) or self._is_about_all(request.needs)):
            return False
        if self.argument:
            texts = request.argument(self.argument)
            return bool(texts) and all(map(self.permits, texts))
        return any(map(self.permits, subject))


_Index = tuple[Sequence[Rule], Sequence[Rule], Mapping[str, Sequence[Rule]]]
"""All rules about a tool; those of them without a `start`; the others by it."""


class Rules(tuple[Rule, ...]):
    """Rules in their order, with an index, so that a call tests only those that can apply to it."""

    @cached_property
    def _indexed(self) -> dict[tuple[tuple[str, ...], frozenset[Capability]], _Index]:
        return {}

    def about(self, request: Request, subject: Subject) -> Sequence[Rule]:
        """The rules about any of the tools of the call, less those on paths that begin otherwise."""
        key = tools, needs = request.tools, request.needs
        if (index := self._indexed.get(key)) is None:
            every = [one for one in self if any(one.covers(tool, needs) for tool in tools)]
            by_start = dict[str, list[Rule]]()
            for rule in every:
                by_start.setdefault(rule.start, []).append(rule)
            if len(self._indexed) >= _MOST_KEPT:
                # Another server may name ever new tools.
                self._indexed.clear()
            index = self._indexed[key] = every, by_start.pop("", ()), by_start
        every, others, by_start = index
        if not by_start or any(isinstance(one, VolumePath) for one in subject):
            return every
        found = [rule for one in subject for rule in by_start.get(_first_component(one), ())]
        return (*found, *others) if found else others


NO_RULES = Rules()


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
        rules, subjects = self.tools, request.subjects or _ALL
        if rules is None or all(any(rule.allows(request, one) for rule in rules) for one in subjects):
            return ""
        texts = [rule.text for rule in rules]
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
    toolset: Callable[[str], frozenset[str]] = lambda _: frozenset()
    """The names of the tools in a toolset; none if there is no such toolset."""
    argument: Callable[[str, str], str] = lambda _tool, _name: ""
    """Any name of a tool and of an argument → the argument's own name; empty if there is none."""


def parse(text: str, words: RuleContext, source: str = "") -> Rule:
    """Parse one rule; `source` is where it stands.

    `Tool`, `Tool()` and `Tool(*)` match every call of the tool; `*` instead of a name means every tool,
    `capability:name` every tool that needs the capability, `toolset:name` those of the toolset.
    `Tool(argument:pattern)` is about an argument of the tool, as text in which `*` is any text. For what runs
    commands, the pattern is a command, in which `*` stands for any text and a last `:*` means "and anything
    after these words" (see `text/command_pattern`). For what has only to do with the web, and wherever it
    starts with `https://` or `domain:`, it is a host, perhaps with a path (see `text/urls`). Everything else
    is a glob on paths, which without `/` matches at any depth, and which compares names as the volume of the
    path does.

    Raises:
        SettingsError: no such tool or capability, or not of this form.
    """
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"rule {text!r} is not of the form Tool or Tool(pattern)")
    named, pattern = found["tool"], found["pattern"] or "*"
    tool, capability, tools = _named(text, named, words)
    # `Bash(timeout:*)` is a command.
    name, colon, rest = pattern.partition(":")
    is_command = tool in words.commands and rest == "*"
    argument = words.argument(named, name) if colon and not is_command else ""
    try:
        if argument:
            pattern, (matches, permits, start) = rest, (test := text_matcher(rest), test, "")
        else:
            matches, permits, start = _tests(pattern, tools or {tool}, capability, words)
    except ValueError as error:
        raise SettingsError(f"rule {text!r}: {error}") from None
    return Rule(text, tool, pattern, matches, permits, capability, tools, start, argument, source=source)


def _named(text: str, name: str, words: RuleContext) -> tuple[str, Capability | None, frozenset[str]]:
    """The tool that a rule names, or else the capability or the tools of the toolset."""
    if name.startswith(CAPABILITY):
        choices = {one.label: one for one in Capability}
        if found := choices.get(name.removeprefix(CAPABILITY)):
            return "", found, frozenset()
        raise SettingsError(f"rule {text!r} names an unknown capability; choose from {', '.join(choices)}")
    if name.startswith(TOOLSET):
        if tools := words.toolset(name.removeprefix(TOOLSET)):
            return "", None, tools
        raise SettingsError(f"rule {text!r} names a toolset that does not exist")
    try:
        return name if name == "*" else words.canonical(name), None, frozenset()
    except LookupError:
        raise SettingsError(f"rule {text!r} names a tool that does not exist") from None


def _tests(
    pattern: str, tools: Set[str], capability: Capability | None, words: RuleContext
) -> tuple[_Test, _Test, str]:
    """The test for deny and ask rules, the one for allow rules, usually the same, and the `start`."""
    if pattern == "*":
        return _always, _always, ""
    if tools <= words.commands or capability in RUNS_COMMANDS:
        return (command := CommandPattern(pattern)).matches, command.permits, ""
    if tools <= words.texts:
        return (test := text_matcher(pattern)), test, ""
    if tools <= words.sites or capability in _REACHES_WEB or _SITE.match(pattern):
        return (test := url_matcher(pattern)), test, ""
    denies, allows = path_tests(pattern)
    start, *others = {_first_component(one) for one in starts(pattern)}
    return (
        lambda subject: not _SITE.match(subject) and denies(subject),
        lambda subject: not _SITE.match(subject) and allows(subject),
        "" if others or start == "/" else start,
    )


def _always(_: str) -> bool:
    return True


def by_reach(deny: Iterable[str], words: RuleContext) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The deny rules that hide paths, and those that bind only calls of the tool they name.

    The sandbox hides the paths of the first kind from commands; rules of the second kind do not apply to what
    a command does. A rule on a tool that runs commands is about the text of its calls, and is in neither.
    """
    hiding, tools_only = list[str](), list[str]()
    for text in deny:
        try:
            rule = parse(text, words)
        except SettingsError:
            # It may name one of the operator's own tools.
            rule = None
        if rule and rule.hides_files:
            hiding.append(text)
        elif not rule or (rule.tool not in words.commands and rule.capability not in RUNS_COMMANDS):
            tools_only.append(text)
    return tuple(hiding), tuple(tools_only)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Decides on calls; constant for the life of the process."""

    ceiling: Permission
    granted: Permission
    """Calls up to this permission run without a question."""
    deny: Rules = NO_RULES
    ask: Rules = NO_RULES
    allow: Rules = NO_RULES
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
        subjects = request.subjects or _ALL
        for subject in subjects:
            for rule in self.deny.about(request, subject):
                if rule.applies(request, subject):
                    reason = rule.problem or f"{request.tool} is denied here by the rule {rule.text}."
                    return _by("refuse", "deny", rule, reason=reason)
        if request.level > self.ceiling:
            return Verdict(action="refuse", reason=self._above(request), stage="ceiling")
        for narrowing in self.narrowings:
            if reason := narrowing.refusal(request):
                return Verdict(action="refuse", reason=reason, stage="narrowing")
        return self._unrefused(request, subjects)

    def _unrefused(self, request: Request, subjects: Sequence[Subject]) -> Verdict:
        """Whether a call that nothing refuses runs or is asked about."""
        asking, allowing = list[Rule](), list[Rule]()
        for subject in subjects if self.ask or self.allow else ():
            asks = [rule for rule in self.ask.about(request, subject) if rule.applies(request, subject)]
            allows: list[Rule] = []
            if not request.outside and (asks or request.level > self.granted):
                # Nothing else needs an allow rule, and none lets a script out of the sandbox.
                allows = [one for one in self.allow.about(request, subject) if one.allows(request, subject)]
            # The first of several equals wins.
            if found := max((*asks, *allows), key=lambda rule: rule.specificity, default=None):
                (asking if found in asks else allowing).append(found)
        if asking:
            return _by("ask", "ask", asking[0], reason=f"The rule {asking[0].text} wants it approved.")
        if allowing and len(allowing) == len(subjects):
            return _by("run", "allow", *allowing)
        if request.level <= self.granted:
            return Verdict(action="run", stage="granted")
        return Verdict(
            action="ask",
            reason=f"It needs {request.level.flag}; only {self.granted.flag} is granted unasked.",
        )

    @cached_property
    def _hiding(self) -> Rules:
        """The deny rules on reading, which hide files."""
        return Rules(rule for rule in self.deny if rule.hides_files)

    def hiding_rule(self, spellings: Subject) -> str:
        """The deny rule on reading that covers this path, so that no file tool may show or change it; empty
        without one."""
        if not self._hiding:
            return ""
        rules = self._hiding.about(_READING, spellings)
        return next((rule.text for rule in rules if rule.touches(spellings)), "")

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
        needs = f"{request.tool} requires {request.level.flag} permission;"
        if lower := next((one for one in self.narrowings if one.ceiling < request.level), None):
            allowed = f"{lower.source} allows this call no more than {lower.ceiling.flag}."
            return f"{needs} {allowed} {lower.advice}".rstrip()
        if self.token:
            return (
                f"{needs} the token {self.token!r} allows {self.ceiling.flag} at most, and nothing in a call "
                "can raise that. The operator of the server can change the token."
            )
        return (
            f"{needs} this server runs with --permission-mode {self.ceiling.flag}, and nothing in a call can "
            f"raise that. The operator can restart it with --permission-mode {request.level.flag}."
        )


_READING = Request(tool=READER, level=Permission.READ_ONLY, needs=_READS)

_ALL: tuple[Subject, ...] = (("",),)
"""Stands for the subjects of a call that names none: a rule for everything a tool does applies."""


def _by(action: Action, stage: Stage, *rules: Rule, reason: str = "") -> Verdict:
    """The verdict of rules."""
    text = ", ".join(dict.fromkeys(rule.text for rule in rules))
    source = ", ".join(dict.fromkeys(rule.place for rule in rules))
    return Verdict(action=action, reason=reason, rule=text, stage=stage, source=source)
