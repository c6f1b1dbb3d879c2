"""Parses a shell script into the simple commands that it runs, also those that other commands run: for rules
and for the check of dangerous commands.

It reads what separates commands from text: quotes, comments, here-documents, substitutions, groups, functions
and `case`. Variables, globs and braces stay as they are written. It is no boundary: a shell has more ways to
name a program than a text can show.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice, pairwise

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")

SHELLS = frozenset(("ash", "bash", "dash", "fish", "ksh", "sh", "zsh"))

_RUNNERS = {
    "builtin": ("", 0), "busybox": ("", 0), "chroot": ("", 1), "chronic": ("", 0), "command": ("", 0),
    "doas": ("Cu", 0), "env": ("CSu", 0), "exec": ("a", 0), "flock": ("Ew", 1), "ionice": ("cnpPu", 0),
    "nice": ("n", 0), "nohup": ("", 0), "nsenter": ("GSt", 0), "parallel": ("jnNP", 0), "runuser": ("gGu", 0),
    "script": ("EIBOTm", 0), "setsid": ("", 0), "stdbuf": ("eio", 0), "strace": ("aeEIoOpPsSuUX", 0),
    "su": ("gGsw", 0), "sudo": ("CDghpRrTtUu", 0), "taskset": ("", 1), "time": ("fo", 0),
    "timeout": ("ks", 1), "unbuffer": ("", 0), "unshare": ("GRSw", 0), "xargs": ("adEILlnPs", 0),
}  # fmt: skip
"""What runs the command in its arguments: the options that take the next word as their value, and how many
operands stand before the command."""
_JOINERS = {"eval": ("", 0), "ssh": ("bcDEeFIiJLlmOopQRSWw", 1), "watch": ("n", 0)}
"""The same for what runs its arguments as one script."""
_TAKES_SCRIPT = re.compile(r"-\w*[cS]|--command|--split-string")
"""An option before a script."""

FIND_ACTIONS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
"""What runs the command after it, of find."""

_MOST_NESTED = 16
"""Commands, or substitutions, inside one another that are read; so many of a pipeline before a command."""

_MOST_UNFOLDED = 50_000
"""Characters that what commands run may have, and twice those of the script."""

_LONGEST_SKIPPED = 2_000
"""Characters of an array or a calculation."""

_KEYWORDS = {"!", "coproc", "do", "done", "elif", "else", "fi", "if", "then", "until", "while"}
_TOKEN = re.compile(
    r"[ \t\r]+|\\\n|#[^\n]*|(?P<redirect>(?:\d*(?:<<<|<<-?|<>|[<>]&|>>|>\||[<>](?!\())|&>>?)(?:[ \t]|\\\n)*)"
    r"|(?P<end>\|&|\|\|?|&&?|;+&?|\n)|(?P<group>[()])"
)
_PLAIN = re.compile(r"\$(?=\")|\\(.?)|'([^']*)'?|\$'((?:\\.|[^'\\])*)'?|([^\s;&|<>()'\"\\`$]+)", re.DOTALL)
_IN_QUOTES = re.compile(r"\\(.?)|([^\"\\`$]+)", re.DOTALL)
_BACKTICKS = re.compile(r"`((?:\\.|[^`\\])*)`?", re.DOTALL)
_EMPTY_PARENTHESES = re.compile(r"\s*\)")


@dataclass(frozen=True, kw_only=True)
class SimpleCommand:
    """One command, without keywords and assignments before it."""

    words: tuple[str, ...] = ()
    """Program and arguments without quotes, expansions as written; empty if there are only redirections."""
    targets: tuple[str, ...] = ()
    """Files to which its output is redirected."""
    texts: tuple[str, ...] = ()
    """Here-documents and here-strings that it reads."""
    feeding: tuple["SimpleCommand", ...] = ()
    """Commands before it in its pipeline, at most 16."""
    substituted: tuple["SimpleCommand", ...] = ()
    """Commands whose output becomes part of its words or its input."""
    followed_by: str = ""
    """The operator after it; empty at the end of a group or script."""
    is_function: bool = False
    """Whether it is called like a function of the script."""

    @cached_property
    def name(self) -> str:
        """The program without its folder; empty without one."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        return self.words[1:]

    @cached_property
    def operand(self) -> str:
        """The first argument that is no option; empty without one."""
        return next((word for word in self.arguments if not word.startswith("-")), "")


def simple_commands(script: str) -> tuple[SimpleCommand, ...]:
    """Return the commands that the script runs, each followed by those that it runs itself."""
    return _unfolded(script)[0]


def is_read_whole(script: str) -> bool:
    """Whether `simple_commands` returns every command, and left none out because of a limit."""
    return _unfolded(script)[1]


def with_input(script: str, stdin: str) -> str:
    """A script in which a shell runs what `script` reads: it may be one that does so."""
    return f"sh -c {shlex.quote(stdin)}\n{script}"


@lru_cache(maxsize=256)  # rules and the check ask about the same scripts
def _unfolded(script: str) -> tuple[tuple[SimpleCommand, ...], bool]:
    found: list[SimpleCommand] = []
    first, is_whole = _parsed(script)
    scripts, room = {script}, _MOST_UNFOLDED + 2 * len(script)
    unread = [(one, 0) for one in reversed(first)]
    while unread:
        command, depth = unread.pop()
        found.append(command)
        inner, texts = list(_run_by(command)), {*_scripts_of(command)} - scripts
        if depth == _MOST_NESTED or room < 0:
            is_whole = is_whole and not inner and not texts
            continue
        for text in texts:
            scripts.add(text)
            parsed, whole = _parsed(text)
            inner += parsed
            is_whole = is_whole and whole
        room -= sum(len(word) for one in inner for word in one.words)
        unread += [(one, depth + 1) for one in reversed(inner)]
    return tuple(found), is_whole


def _scripts_of(command: SimpleCommand) -> Iterator[str]:
    """Yield the scripts that the command runs: from its arguments or its input."""
    name, words = command.name, command.arguments
    if name in _JOINERS:
        yield from map(" ".join, _after_options(words, *_JOINERS[name]))
    elif name in SHELLS or name in _RUNNERS:
        yield from (script for option, script in pairwise(words) if _TAKES_SCRIPT.fullmatch(option))
    if name in SHELLS and (not command.operand or "-s" in words):
        yield from (text for one in (*command.feeding, command) for text in one.texts)
        yield from (" ".join(one.arguments) for one in command.feeding if one.name in ("echo", "printf"))


def _run_by(command: SimpleCommand) -> Iterator[SimpleCommand]:
    """Yield the commands that stand in the arguments of the command."""
    name, words = command.name, command.arguments
    if name == "find":
        end = 0
        for place, word in enumerate(words):
            if place >= end and word in FIND_ACTIONS:
                end = next((at for at in range(place, len(words)) if words[at] in (";", "+")), len(words))
                yield replace(command, words=words[place + 1 : end])
    elif name in _RUNNERS and (name != "command" or words[:1] not in (("-v",), ("-V",))):
        listed = [one.arguments for one in command.feeding if one.name in ("echo", "ls", "printf")]
        more = listed[-1] if name == "xargs" and listed else ()
        for inner in islice(_after_options(words, *_RUNNERS[name]), _MOST_NESTED):
            yield replace(command, words=(*inner, *more))


def _after_options(words: Sequence[str], valued: str, operands: int) -> Iterator[tuple[str, ...]]:
    """Yield what may stand after options, assignments and `operands` words; the word after a long option may
    be its value."""
    place, is_long = 0, False
    while place < len(words) and (word := words[place]) != "--":
        if word[:1] != "-" and not _ASSIGNMENT.match(word):
            yield tuple(words[place + operands :])
            if not is_long:
                return
        is_long = word.startswith("--") and "=" not in word
        place += 2 if word[:1] == "-" and not word.startswith("--") and word[-1] in valued else 1
    yield tuple(words[place + 1 + operands :])


def _parsed(script: str) -> tuple[list[SimpleCommand], bool]:
    """The commands of a script, and whether these are all."""
    parser = _Parser(text=script)
    parser.read()
    return parser.found, parser.is_whole


@dataclass(kw_only=True)
class _Draft:
    """A command while it is read."""

    begun: int = 0
    """How many commands were complete before it."""
    words: list[str] = field(default_factory=list[str])
    targets: list[str] = field(default_factory=list[str])
    texts: list[str] = field(default_factory=list[str])


@dataclass(kw_only=True)
class _Parser:
    """Reads `text` from `at` up to the end, or to the parenthesis that closes a substitution."""

    text: str
    at: int = 0
    depth: int = 0
    closes: bool = False
    is_whole: bool = True
    """Whether nothing was too deep inside to be read."""
    found: list[SimpleCommand] = field(default_factory=list[SimpleCommand])
    _draft: _Draft = field(default_factory=_Draft)
    _start: int = 0
    """How many commands were complete before the pipeline."""
    _open: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """The groups that are open: the word that closes each, and its place in its pipeline."""
    _functions: set[str] = field(default_factory=set[str])
    _documents: dict[int, int] = field(default_factory=dict[int, int])
    """Ends of lines → ends of the here-documents after them."""

    def read(self) -> None:
        if self.depth > _MOST_NESTED:
            self.at, self.is_whole = len(self.text), False
        while self.at < len(self.text):
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                self._take(self._word())
                continue
            self.at = match.end()
            if match["redirect"]:
                self._redirect(match["redirect"].strip("0123456789 \t\\\n"))
            elif match["end"]:
                self._end(match["end"])
                self.at = self._documents.get(match.start(), self.at)
            elif match["group"] == "(":
                self._parenthesis()
            elif match["group"] and self._ends_here():
                break
        self._end("")

    def _end(self, operator: str) -> None:
        """End the command, and its pipeline unless the operator is a pipe."""
        draft, found = self._draft, self.found
        if draft.words or draft.targets:
            made = SimpleCommand(
                words=tuple(draft.words),
                targets=tuple(draft.targets),
                texts=tuple(draft.texts),
                feeding=tuple(found[max(self._start, draft.begun - _MOST_NESTED) : draft.begun]),
                substituted=tuple(found[draft.begun :]),
                followed_by=operator,
                is_function=bool(self._functions.intersection(draft.words[:1])),
            )
            found.append(made)
        if operator not in ("|", "|&"):
            self._start = len(found)
        self._draft = _Draft(begun=len(found))

    def _take(self, word: str) -> None:
        """Add a word to the command, unless it is one of the shell's own at its start."""
        words = self._draft.words
        if words and not (word == "{" and words[0] == "function"):
            words.append(word)
        elif word == "{":
            self._functions.update(words[1:2])
            words.clear()
            self._open.append(("}", self._start))
        elif word in ("}", "esac"):
            self._close(word)
        elif word == "[[":
            self._skip_past("]]")
        elif word not in _KEYWORDS and not _ASSIGNMENT.match(word):
            words.append(word)
            if word == "case":
                self._open.append(("esac", self._start))

    def _close(self, word: str) -> None:
        self._end("")
        if self._open and self._open[-1][0] == word:
            self._start = self._open.pop()[1]

    def _parenthesis(self) -> None:
        words = self._draft.words
        if len(words) == 1 and (match := _EMPTY_PARENTHESES.match(self.text, self.at)):
            self._functions.add(words.pop())
            self.at = match.end()
        elif not (self.text.startswith("(", self.at) and self._skip_past("))")):
            self._open.append((")", self._start))

    def _ends_here(self) -> bool:
        """Take a closing parenthesis; return whether it ends the text of this parser."""
        closing = self._open[-1][0] if self._open else ""
        if closing == "esac":
            # What was read is a pattern.
            del self.found[self._start :]
            self._draft = _Draft(begun=len(self.found))
        elif closing == ")" or not self.closes:
            self._close(")")
        else:
            return True
        return False

    def _skip_past(self, end: str) -> bool:
        place = self.text.find(end, self.at, self.at + _LONGEST_SKIPPED)
        self.at = self.at if place < 0 else place + len(end)
        return place >= 0

    def _redirect(self, operator: str) -> None:
        start, word = self.at, self._word()
        if operator == "<<<":
            self._draft.texts.append(word)
        elif operator.startswith("<<"):
            self._document(word, is_quoted=self.text[start : self.at] != word)
        elif ">" in operator:
            self._draft.targets.append(word)

    def _document(self, delimiter: str, *, is_quoted: bool) -> None:
        """Take a here-document that starts after this line."""
        line_end = self.text.find("\n", self.at) % (len(self.text) + 1)
        start = self._documents.get(line_end, line_end) + 1
        match = re.compile(rf"^\t*{re.escape(delimiter)}$", re.MULTILINE).search(self.text, start)
        end, self._documents[line_end] = match.span() if match else (len(self.text), len(self.text))
        body = self.text[start:end]
        self._draft.texts.append(body)
        if not is_quoted:
            # As in quotes; the text itself is no command.
            self.found += self._inside('"' + body.replace('"', " ")).found[:-1]

    def _word(self) -> str:
        """Read one word, and the commands in it."""
        start, pieces, is_quoted = self.at, [""], False
        while self.at < len(self.text):
            char = self.text[self.at]
            if match := (_IN_QUOTES if is_quoted else _PLAIN).match(self.text, self.at):
                self.at = match.end()
                pieces += [part.removeprefix("\n") for part in match.groups() if part]
            elif char == '"':
                is_quoted = not is_quoted
                self.at += 1
            elif char in "$`" or self.text.startswith(("<(", ">("), self.at):
                pieces.append(self._expansion())
            elif char == "(" and pieces[-1][-1:] in ("=", "?", "*", "+", "@", "!") and self._skip_past(")"):
                # An array or a pattern.
                pieces.append("(")
            else:
                break
        self.at = max(self.at, start + 1)
        return "".join(pieces)

    def _expansion(self) -> str:
        """Read a substitution and the commands in it, or the sign that starts another expansion."""
        start, text = self.at, self.text
        if match := _BACKTICKS.match(text, start):
            self.at = match.end()
            self.found += self._inside(re.sub(r"\\([$`\\])", r"\1", match[1])).found
        elif not text.startswith("(", start + 1):
            self.at += 1
        elif not (text.startswith("$((", start) and self._skip_past("))")):
            inner = self._inside(text, start + 2, closes=True)
            self.at = inner.at
            self.found += inner.found
        return text[start : self.at]

    def _inside(self, text: str, at: int = 0, *, closes: bool = False) -> "_Parser":
        """Read a script inside this one."""
        inner = _Parser(text=text, at=at, depth=self.depth + 1, closes=closes)
        inner.read()
        self.is_whole = self.is_whole and inner.is_whole
        return inner
