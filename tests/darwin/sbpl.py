"""A strict interpreter of Seatbelt profiles: `compile_profile(text, parameters)`, `Profile.allows`.

It accepts the part of the language that generated profiles need. Everything else is a `ProfileError`, as
`sandbox-exec` fails with status 65 on what libsandbox cannot compile; some of what libsandbox accepts is an
error here too, because such a rule can never match or because its meaning depends on the macOS version.

What decides, with its source:

* Of the rules with filters, the last that matches wins (Chromium, sandbox/mac/seatbelt_sandbox_design.md).
* A rule without filters is the default of its operations wherever it stands (measured with `sandbox-exec`
  on macOS 27.0 by the author of an egress policy compiler). Here it is an error to let the order matter.
* What no rule decides is denied, also without `(deny default)`; except `process-info*`, see `operations`.
* Paths are those of the file itself with links resolved (Chromium's design document: "/tmp" is
  "/private/tmp"). `literal`, `subpath` and `prefix` compare as a volume does that ignores case and Unicode
  normalisation, while `regex` compares the spelling it gets (several agents report both;
  github.com/constellation-works/orbit, pull request 494).
* The host of a network address is `*` or `localhost`; anything else does not compile ("host must be * or
  localhost in network address"). `localhost` is 127.0.0.1, ::1 and 0.0.0.0, but not 127.0.0.2.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.darwin import operations
from tests.darwin.regular_expression import translate


class ProfileError(ValueError):
    """The profile does not compile; the message says why and in which line."""


# --- requests ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a process wants to do."""

    operation: str
    """One operation, not a group."""
    path: str = ""
    """Absolute, links resolved; of a Unix socket with a path too."""
    vnode_type: str = "REGULAR-FILE"
    target: str = ""
    """Of a signal or a question about a process: self, same-sandbox or others."""
    name: str = ""
    """Of a Mach service, a kernel parameter, a preference domain, a class in the I/O Registry."""
    protocol: str = ""
    """Of a network connection: tcp4, tcp6, udp4, udp6 or unix-socket."""
    host: str = ""
    """The IP address of the other end, or of this end for `network-bind` and `network-inbound`."""
    port: int = 0
    domain: str = ""
    """Of a socket, such as AF_SYSTEM."""
    socket_type: str = ""
    socket_protocol: int = 0
    extensions: frozenset[str] = frozenset()
    """The classes of the sandbox extensions that the process has for this."""


LOOPBACK = frozenset({"127.0.0.1", "::1", "0.0.0.0", "::"})


# --- filters -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class All:
    """`require-all`."""

    parts: tuple["Filter", ...]

    def matches(self, request: Request) -> bool:
        return all(part.matches(request) for part in self.parts)


@dataclass(frozen=True)
class Either:
    """`require-any`, and the filters of a rule."""

    parts: tuple["Filter", ...]

    def matches(self, request: Request) -> bool:
        return any(part.matches(request) for part in self.parts)


@dataclass(frozen=True)
class Negation:
    """`require-not`."""

    part: "Filter"

    def matches(self, request: Request) -> bool:
        return not self.part.matches(request)


@dataclass(frozen=True)
class PathFilter:
    """`literal`, `subpath` or `prefix`."""

    how: str
    path: str

    def matches(self, request: Request) -> bool:
        if not request.path:
            return False
        here, there = _folded(request.path), _folded(self.path)
        match self.how:
            case "literal":
                return here == there
            case "subpath":
                return here == there or here.startswith(f"{there.rstrip('/')}/")
            case _:
                return here.startswith(there)


@dataclass(frozen=True)
class PatternFilter:
    """A POSIX extended regular expression that is searched in a path or a name."""

    of: str
    """"path" or "name"."""
    pattern: str

    def matches(self, request: Request) -> bool:
        subject = request.path if self.of == "path" else request.name
        return bool(subject) and re.search(translate(self.pattern), subject.encode(errors="surrogateescape"),
                                           re.DOTALL) is not None  # fmt: skip


@dataclass(frozen=True)
class WordFilter:
    """A filter that compares one field: `vnode-type`, `target`, `socket-domain` and the like."""

    of: str
    value: str

    def matches(self, request: Request) -> bool:
        match self.of:
            case "target":
                # A process is in its own sandbox.
                return request.target in ("self", self.value) if self.value == "same-sandbox" else (
                    request.target == self.value
                )  # fmt: skip
            case "vnode-type":
                return request.vnode_type == self.value and bool(request.path)
            case "extension":
                return self.value in request.extensions
            case "name-prefix":
                return bool(request.name) and request.name.startswith(self.value)
            case "socket-protocol":
                return str(request.socket_protocol) == self.value
            case "socket-domain":
                return request.domain == self.value
            case "socket-type":
                return request.socket_type == self.value
            case _:
                return request.name == self.value


@dataclass(frozen=True)
class AddressFilter:
    """`remote` or `local`; None for what is not said."""

    side: str
    protocol: str
    host: str | None = None
    port: int | None = None
    paths: "Filter | None" = None

    def matches(self, request: Request) -> bool:
        wanted = {"remote": ("network-outbound",), "local": ("network-bind", "network-inbound")}[self.side]
        if request.operation not in wanted or not self._is_of(request.protocol):
            return False
        if self.paths is not None and not self.paths.matches(request):
            return False
        return (self.host is None or request.host in LOOPBACK) and self.port in (None, request.port)

    def _is_of(self, protocol: str) -> bool:
        if self.protocol == "unix-socket" or protocol == "unix-socket":
            return self.protocol == protocol
        family = self.protocol[-1] if self.protocol[-1] in "46" else ""
        kind = self.protocol.rstrip("46")
        return kind in ("ip", protocol[:3]) and protocol.endswith(family)


Filter = All | Either | Negation | PathFilter | PatternFilter | WordFilter | AddressFilter


def _folded(path: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


# --- profiles ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """One `allow` or `deny`."""

    allow: bool
    operations: tuple[str, ...]
    filters: Either | None
    """None for a rule that matches everything."""
    line: int

    def covers(self, operation: str) -> bool:
        return any(operations.covers(group, operation) for group in self.operations)


@dataclass(frozen=True)
class Profile:
    """A compiled profile."""

    rules: tuple[Rule, ...] = field(default=())

    def decisions(self, operation: str) -> tuple[bool, tuple[Rule, ...]]:
        """The default of an operation, and the rules with filters that may change it, in order."""
        if operations.canonical(operation) != operation or operation == operations.DEFAULT:
            raise ValueError(f"{operation} is no operation")
        default = any(rule.allow for rule in self.rules if operations.DEFAULT in rule.operations)
        if operations.covers(operations.NOT_DENIED_BY_DEFAULT, operation):
            default = True
        for rule in self.rules:
            if rule.filters is None and rule.covers(operation):
                default = rule.allow
        return default, tuple(rule for rule in self.rules if rule.filters and rule.covers(operation))

    def allows(self, request: Request) -> bool:
        """Whether the profile lets a process do this."""
        verdict, rules = self.decisions(request.operation)
        for rule in rules:
            if rule.filters and rule.filters.matches(request):
                verdict = rule.allow
        return verdict


def compile_profile(text: str, parameters: Mapping[str, str] | None = None) -> Profile:
    """Read a profile.

    Args:
        text: The profile.
        parameters: What `-D NAME=VALUE` gives.

    Raises:
        ProfileError: it would not compile, or a rule in it cannot mean what it says.
    """
    forms = list(_forms(text))
    if not forms or [_word(part) for part in forms[0].parts] != ["version", "1"]:
        raise ProfileError("the profile does not begin with (version 1)")
    reader = _Reader(parameters or {})
    rules = tuple(reader.rule(form) for form in forms[1:])
    _check_order(rules)
    return Profile(rules)


def _check_order(rules: Sequence[Rule]) -> None:
    """Refuse a rule without filters that looks as if it replaced an earlier rule."""
    for index, rule in enumerate(rules):
        if rule.filters is not None:
            continue
        for earlier in rules[:index]:
            if earlier.allow == rule.allow:
                continue
            both = _overlap(rule, earlier)
            if both and earlier.filters is not None:
                raise ProfileError(
                    f"line {rule.line}: a rule for {both} without filters is its default wherever it "
                    f"stands, so it does not replace the rule of line {earlier.line}"
                )
            if both and not set(rule.operations) <= {both}:
                raise ProfileError(
                    f"line {rule.line}: it contradicts the default of {both} in line {earlier.line}"
                )


def _overlap(one: Rule, other: Rule) -> str:
    """An operation that both rules are for; `default` is for none."""
    return next(
        (
            name
            for name in sorted(operations.OPERATIONS)
            if not name.endswith("*") and one.covers(name) and other.covers(name)
        ),
        "",
    )


# --- text --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    text: str
    line: int


@dataclass(frozen=True)
class String:
    text: str
    line: int
    raw: bool = False


@dataclass(frozen=True)
class List:
    parts: tuple["Form", ...]
    line: int


Form = Word | String | List

_TOKEN = re.compile(
    r"""
      (?P<space>\s+ | ;[^\n]*)
    | (?P<mark>[()])
    | \#"(?P<raw>[^"]*)"
    | "(?P<string>(?:[^"\\]|\\.)*)"
    | (?P<word>[A-Za-z0-9*+/<=>!?:$%_&~^.-]+ | \#[tf](?![^\s()]))
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


def _forms(text: str) -> Iterator[List]:
    """The lists at the top of `text`."""
    open_lists: list[tuple[int, list[Form]]] = []
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            raise ProfileError(f"line {line}: this is not in the language: {text[at : at + 20]!r}")
        piece = found[0]
        if found["mark"] == "(":
            open_lists.append((line, []))
        elif found["mark"] == ")":
            if not open_lists:
                raise ProfileError(f"line {line}: there is a closing parenthesis too many")
            start, parts = open_lists.pop()
            finished = List(tuple(parts), start)
            if open_lists:
                open_lists[-1][1].append(finished)
            else:
                yield finished
        elif not found["space"]:
            if not open_lists:
                raise ProfileError(f"line {line}: {piece!r} stands outside of any list")
            open_lists[-1][1].append(_atom(found, line))
        line += piece.count("\n")
        at = found.end()
    if open_lists:
        raise ProfileError(f"line {open_lists[-1][0]}: a parenthesis is not closed")


def _atom(found: re.Match[str], line: int) -> Form:
    if found["raw"] is not None:
        return String(found["raw"], line, raw=True)
    if found["string"] is not None:

        def unescaped(escape: re.Match[str]) -> str:
            if escape[1] not in _ESCAPES:
                raise ProfileError(f"line {line}: \\{escape[1]} is not an escape sequence")
            return _ESCAPES[escape[1]]

        return String(re.sub(r"\\(.)", unescaped, found["string"], flags=re.DOTALL), line)
    return Word(found["word"], line)


def _word(form: Form) -> str | None:
    return form.text if isinstance(form, Word) else None


# --- meaning -----------------------------------------------------------------------------------------------

_VNODE_TYPES = {
    "BLOCK-DEVICE",
    "CHARACTER-DEVICE",
    "DIRECTORY",
    "FIFO",
    "REGULAR-FILE",
    "SOCKET",
    "SYMLINK",
    "TTY",
}
_TARGETS = {"self", "pgrp", "others", "children", "same-sandbox"}
_PROTOCOLS = {f"{kind}{family}" for kind in ("ip", "tcp", "udp") for family in ("", "4", "6")} | {
    "unix-socket"
}
_WORDS = {
    "vnode-type": _VNODE_TYPES,
    "target": _TARGETS,
    "socket-domain": {"AF_UNIX", "AF_INET", "AF_INET6", "AF_SYSTEM", "AF_ROUTE"},
    "socket-type": {"SOCK_STREAM", "SOCK_DGRAM", "SOCK_RAW"},
}


@dataclass(frozen=True)
class _Reader:
    parameters: Mapping[str, str]

    def rule(self, form: List) -> Rule:
        if not form.parts:
            raise ProfileError(f"line {form.line}: an empty list is no rule")
        head = _word(form.parts[0])
        if head not in ("allow", "deny"):
            raise _unbound(form.parts[0])
        rest = [part for part in form.parts[1:] if not _is_modifier(part)]
        for modifier in (part for part in form.parts[1:] if _is_modifier(part)):
            _check_modifier(modifier)
        names = [part for part in rest if isinstance(part, Word)]
        lists = rest[len(names) :]
        if not names or any(not isinstance(part, List) for part in lists):
            raise ProfileError(f"line {form.line}: a rule is a verdict, operations, then filters")
        found = tuple(self._operation(name) for name in names)
        if lists and operations.DEFAULT in found:
            raise ProfileError(f"line {form.line}: the default has no filters")
        filters = tuple(self.filter(part, found) for part in lists)
        return Rule(head == "allow", found, Either(filters) if filters else None, form.line)

    def _operation(self, name: Word) -> str:
        found = operations.canonical(name.text)
        if found is None:
            raise _unbound(name)
        return found

    def filter(self, form: Form, of: Sequence[str]) -> Filter:
        if not isinstance(form, List) or not form.parts or not isinstance(form.parts[0], Word):
            raise ProfileError(f"line {form.line}: this is no filter")
        name, arguments = form.parts[0].text, form.parts[1:]
        match name:
            case "require-all" | "require-any":
                if not arguments:
                    raise ProfileError(f"line {form.line}: {name} needs filters")
                parts = tuple(self.filter(part, of) for part in arguments)
                return All(parts) if name == "require-all" else Either(parts)
            case "require-not":
                if len(arguments) != 1:
                    raise ProfileError(f"line {form.line}: require-not needs one filter")
                return Negation(self.filter(arguments[0], of))
        read = _READERS.get(name)
        if read is None:
            raise _unbound(form.parts[0])
        for operation in of:
            if name not in operations.filters_of(operation):
                raise ProfileError(f"line {form.line}: the filter {name} does not apply to {operation}")
        if not arguments and name not in ("remote", "local"):
            raise ProfileError(f"line {form.line}: {name} needs an argument")
        return read(self, form)

    def text(self, form: Form) -> str:
        """A string, or what gives one."""
        match form:
            case String():
                return form.text
            case List((Word("param"), String(name))):
                if name not in self.parameters:
                    raise ProfileError(f'line {form.line}: (param "{name}") is not given; expected a string')
                return self.parameters[name]
            case List((Word("string-append"), *parts)) if parts:
                return "".join(self.text(part) for part in parts)
            case List((Word() as head, *_)) if head.text not in ("param", "string-append"):
                raise _unbound(head)
        raise ProfileError(f"line {form.line}: expected a string")


def _is_modifier(form: Form) -> bool:
    return isinstance(form, List) and bool(form.parts) and _word(form.parts[0]) == "with"


def _check_modifier(form: Form) -> None:
    assert isinstance(form, List)
    name = _word(form.parts[1]) if len(form.parts) > 1 else None
    if name not in operations.MODIFIERS:
        raise ProfileError(f"line {form.line}: unknown modifier")
    if len(form.parts) != (3 if name in ("message", "send-signal") else 2):
        raise ProfileError(f"line {form.line}: wrong arguments for the modifier {name}")


def _unbound(form: Form) -> ProfileError:
    shown = form.text if isinstance(form, (Word, String)) else "(...)"
    return ProfileError(f"unbound variable: {shown} at <input string>, line {form.line}")


def _path(reader: _Reader, form: List) -> Filter:
    how = str(_word(form.parts[0])).removeprefix("path-")
    found = []
    for part in form.parts[1:]:
        path = reader.text(part)
        if not path.startswith("/") or (how != "prefix" and path != "/" and _never(path)):
            raise ProfileError(f"line {form.line}: no path is {path!r}, so {how} would never match")
        if "\0" in path:
            raise ProfileError(f"line {form.line}: a path has no NUL")
        found.append(PathFilter(how, path))
    return Either(tuple(found))


def _never(path: str) -> bool:
    """Whether no real path is spelt like this."""
    return any(part in ("", ".", "..") for part in path.split("/")[1:])


def _pattern(reader: _Reader, form: List) -> Filter:
    name = str(_word(form.parts[0]))
    of = "path" if name in ("regex", "path-regex") else "name"
    patterns = tuple(PatternFilter(of, reader.text(part)) for part in form.parts[1:])
    for pattern in patterns:
        try:
            translate(pattern.pattern)
        except ValueError as error:
            raise ProfileError(f"line {form.line}: {error}") from None
    return Either(patterns)


def _name(reader: _Reader, form: List) -> Filter:
    name = str(_word(form.parts[0]))
    of = "extension" if name == "extension" else "name-prefix" if name.endswith("-prefix") else "name"
    values = [reader.text(part) for part in form.parts[1:]]
    if not all(values):
        raise ProfileError(f"line {form.line}: {name} is empty")
    return Either(tuple(WordFilter(of, value) for value in values))


def _keyword(_: _Reader, form: List) -> Filter:
    name, *values = form.parts
    assert isinstance(name, Word)
    for value in values:
        if _word(value) not in _WORDS[name.text]:
            raise _unbound(value)
    return Either(tuple(WordFilter(name.text, str(_word(value))) for value in values))


def _number(_: _Reader, form: List) -> Filter:
    name, *values = form.parts
    if any(not str(_word(value)).isdecimal() for value in values):
        raise ProfileError(f"line {form.line}: expected a number")
    return Either(tuple(WordFilter(str(_word(name)), str(_word(value))) for value in values))


def _address(reader: _Reader, form: List) -> Filter:
    side, *arguments = form.parts
    side = str(_word(side))
    if not arguments:
        raise ProfileError(f"line {form.line}: {side} needs a protocol")
    protocol, *rest = arguments
    if not isinstance(protocol, Word) or protocol.text not in _PROTOCOLS:
        raise _unbound(protocol)
    protocol = protocol.text
    if len(rest) > 1:
        raise ProfileError(f"line {form.line}: {side} has too many arguments")
    if not rest:
        return AddressFilter(side, protocol)
    if protocol == "unix-socket":
        paths = reader.filter(rest[0], ("network-outbound",))
        if not _are_paths(paths):
            raise ProfileError(f"line {form.line}: a Unix socket has a path")
        return AddressFilter(side, protocol, paths=paths)
    if not isinstance(rest[0], String) and _head(rest[0]) not in ("param", "string-append"):
        raise ProfileError(f"line {form.line}: {side} expects string argument")
    return AddressFilter(side, protocol, *_host_and_port(reader.text(rest[0]), form.line))


def _head(form: Form) -> str | None:
    return _word(form.parts[0]) if isinstance(form, List) and form.parts else None


def _are_paths(found: Filter) -> bool:
    match found:
        case PathFilter() | PatternFilter(of="path"):
            return True
        case All(parts) | Either(parts):
            return all(map(_are_paths, parts))
        case Negation(part):
            return _are_paths(part)
        case _:
            return False


def _host_and_port(text: str, line: int) -> tuple[str | None, int | None]:
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ProfileError(f"line {line}: port missing in network address")
    if host not in ("*", "localhost"):
        raise ProfileError(f"line {line}: host must be * or localhost in network address")
    if port != "*" and not (port.isdecimal() and 0 < int(port) < 65536):
        raise ProfileError(f"line {line}: invalid port in network address")
    return (None if host == "*" else host), (None if port == "*" else int(port))


_READERS: Mapping[str, Callable[[_Reader, List], Filter]] = {
    **dict.fromkeys(("literal", "subpath", "prefix", "path-literal", "path-prefix"), _path),
    **dict.fromkeys(("regex", "path-regex", "sysctl-name-regex", "ipc-posix-name-regex"), _pattern),
    **{f"{kind}-regex": _pattern for kind in ("global-name", "local-name", "xpc-service-name")},
    **{
        f"{kind}{how}": _name
        for kind in ("global-name", "local-name", "xpc-service-name", "sysctl-name", "ipc-posix-name")
        for how in ("", "-prefix")
    },
    **dict.fromkeys(
        ("extension", "iokit-user-client-class", "iokit-registry-entry-class", "preference-domain",
         "appleevent-destination", "right-name", "notification-name", "control-name"),
        _name,
    ),
    **dict.fromkeys(_WORDS, _keyword),
    **dict.fromkeys(("socket-protocol", "fcntl-command"), _number),
    "remote": _address,
    "local": _address,
}  # fmt: skip
