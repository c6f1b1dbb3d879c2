"""Replaces private names, paths, addresses and secrets in a text that is to be published.

It replaces what it is given, in every spelling that it knows, and then what looks private: paths outside the
folders of the system, addresses, and long random words. It replaces too much rather than too little.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mcp_toolserver.text.redact_secrets import redacted

Replacements = Sequence[tuple[re.Pattern[str], str]]

LONGEST = 2_000
"""Characters of one text in a report; the rest is cut off."""

_SYSTEM_FOLDERS = (
    *("bin", "sbin", "lib", "lib64", "dev", "proc", "sys", "usr", "System"),
    *("opt/homebrew/bin", "opt/local/bin", "nix/store", "etc", "private/etc", "Library/Apple"),
)
"""Folders whose contents are those of the system or of a package manager, without names of a user."""

_SYSTEM_PATH = re.compile(
    rf"/(?:{'|'.join(_SYSTEM_FOLDERS)})(?:/[\w.@+-]+)*/?|/(?:tmp|var|private|private/tmp|Users|home)/?"
)

_COMMON_NAMES = frozenset(
    {
        *(
            "root",
            "home",
            "users",
            "user",
            "work",
            "workspace",
            "project",
            "projects",
            "code",
            "source",
            "src",
        ),
        *(
            "repo",
            "repos",
            "data",
            "docs",
            "documents",
            "desktop",
            "downloads",
            "library",
            "private",
            "public",
        ),
        *("application support", "application", "state", "share", "local", "config", "cache", "temp"),
        *("volumes", "system", "python", "token", "tokens", "localhost", "server", "mcp-toolserver"),
        *("config.toml", "tokens.toml", "mcp_toolserver", "tests", "main", "venv", "bin", "lib"),
    }
)
"""Names of folders and files that say nothing of a user, in lower case."""

_END_OF_PATH = r"[^\n:;,\"'`()\[\]<>]*"
"""The rest of a private path. It may contain spaces, so it ends at punctuation."""

_GUESSES: Replacements = tuple(
    (re.compile(guess, re.IGNORECASE), placeholder)
    for guess, placeholder in (
        (r"\b[a-z][a-z0-9+.-]{0,30}://[^\s\"'`]+", "<address>"),
        (r"[\w.+%-]{1,64}@[\w-]+(?:\.[\w-]+)*", "<address>"),
        (r"(?<![\w.])(?!127\.0\.0\.1|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}(?![\w.])", "<address>"),
        (r"(?<![\w:])(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{0,4}(?![\w:])", "<address>"),
        (r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{24,}", "<secret>"),
    )
)
"""What looks like an address or a random word."""

_PATHS = re.compile(
    rf"(?P<windows>(?<!\w)[A-Za-z]:\\|\\\\){_END_OF_PATH}"
    rf"|(?P<home>(?<![\w>~])~[\w.-]*/){_END_OF_PATH}"
    r"|(?P<absolute>(?<![\w.>~@+-])/+[^\s:;,\"'`()\[\]<>]*)"
    r"|(?P<relative>(?<![\w./@+-])[\w.@+-]+(?:/[\w.@+-]+)+)"
)


@dataclass(frozen=True, kw_only=True)
class Private:
    """What must not appear in the report."""

    paths: Sequence[tuple[str, str]] = ()
    """Absolute paths, each with its placeholder, such as `<root 1>`."""
    names: Sequence[tuple[str, str]] = ()
    """Names of users, machines, folders and servers, each with its placeholder."""
    values: Sequence[tuple[str, str]] = ()
    """Other texts, such as tokens and values of variables, each with its placeholder."""
    public: frozenset[str] = frozenset()
    """Words that are never replaced, such as those of settings."""


class Anonymizer:
    """Replaces what is private, consistently: equal things get equal placeholders."""

    def __init__(self, private: Private, *, resolved: Callable[[str], str]) -> None:
        """`resolved` returns a path with its links resolved."""
        paths = _first(_path_spellings(private.paths, resolved))
        names = _first((*_given_names(private), *_components(paths, private.public)))
        self._exact = (
            *_by_length(_first(_values(private)), _spelled),
            *_by_length(paths, _path_pattern),
        )
        self._names = _by_length(names, _name_pattern)

    def __call__(self, text: str) -> str:
        """Return `text` without what is private, in NFC, and at most `LONGEST` characters long."""
        found = _replaced(unicodedata.normalize("NFC", text[: 10 * LONGEST]), self._exact)
        found = _replaced(str(redacted(found)), _GUESSES)
        # Names come last: a path with a name in it is replaced as a whole.
        found = _replaced(_without_paths(found), self._names)
        return found if len(found) <= LONGEST else f"{found[:LONGEST]}… (cut)"


def is_system_path(path: str) -> bool:
    """Whether an absolute path says nothing of a user."""
    return _SYSTEM_PATH.fullmatch(path) is not None and ".." not in path


def _replaced(text: str, replacements: Replacements) -> str:
    for pattern, placeholder in replacements:
        text = pattern.sub(lambda _, placeholder=placeholder: placeholder, text)
    return text


def _without_paths(text: str) -> str:
    """Replace each path that is not one of the system."""
    done: list[str] = []
    at = 0
    while (found := _PATHS.search(text, at)) is not None:
        done.append(text[at : found.start()])
        at = found.end()
        if found.lastgroup != "absolute":
            done.append("<path>")
        elif is_system_path(found[0]) or not found[0].strip("/"):
            done.append(found[0])
        else:
            # A name in it may contain spaces.
            rest = re.compile(_END_OF_PATH).match(text, at)
            at = rest.end() if rest else at
            done.append("<path>")
    return "".join((*done, text[at:]))


# --- what is replaced, and how it may be spelt -------------------------------------------------------------


def _path_spellings(
    paths: Sequence[tuple[str, str]], resolved: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """Each path as it is, with its links resolved, with and without the `/private` of macOS, where /tmp,
    /var and /etc are links, and as clients name folders after it (`-Users-name-project`)."""
    for path, placeholder in paths:
        for one in (path, resolved(path)):
            clean = one.rstrip("/")
            if is_system_path(clean or "/") or not clean.strip("/"):
                continue
            for spelling in (clean, clean.removeprefix("/private"), f"/private{clean}"):
                yield spelling, placeholder
                yield spelling.replace("/", "-"), placeholder


def _first(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """The first placeholder of each text."""
    found: dict[str, str] = {}
    for text, placeholder in pairs:
        found.setdefault(text, placeholder)
    return found


def _given_names(private: Private) -> Iterator[tuple[str, str]]:
    for name, placeholder in private.names:
        if name and name.lower() not in _COMMON_NAMES | private.public:
            yield name, placeholder


def _components(paths: Iterable[str], public: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Every component of private paths: a program may print it alone."""
    for path in paths:
        for part in path.split("/"):
            if len(part) >= 4 and part.lower() not in _COMMON_NAMES | public:
                yield part, "<name>"


def _values(private: Private) -> Iterator[tuple[str, str]]:
    for value, placeholder in private.values:
        # What is shorter occurs everywhere.
        if len(value) >= 4 and not _is_public(value, private.public):
            yield value, placeholder


def _is_public(value: str, public: frozenset[str]) -> bool:
    """Whether a value has only words that are public and paths of the system."""
    words = re.split(r"[\s:;,=]+", value)
    return all(not word or word.lower() in public | _COMMON_NAMES or is_system_path(word) for word in words)


def _by_length(texts: Mapping[str, str], pattern: Callable[[str], str]) -> Replacements:
    """The patterns of texts, the longest first, because it may contain others."""
    ordered = sorted(texts.items(), key=lambda one: (-len(one[0]), one[0]))
    return tuple((re.compile(pattern(text), re.IGNORECASE), placeholder) for text, placeholder in ordered)


def _path_pattern(path: str) -> str:
    """A known path with what follows in it: that is private too."""
    return rf"{_spelled(path)}(?:(?=[/\\%])[/\\%]{_END_OF_PATH})?(?![\w-]|\.\w)"


def _name_pattern(name: str) -> str:
    """A name; a short one only as a word of its own."""
    spelled = _spelled(name)
    return spelled if len(name) >= 6 else rf"(?<![A-Za-z0-9]){spelled}(?![A-Za-z0-9])"


def _spelled(text: str) -> str:
    """A pattern for `text` as it is, URL-encoded, and escaped as by JSON, Python, C and shells."""
    return "".join(map(_character, unicodedata.normalize("NFC", text)))


def _character(character: str) -> str:
    """The spellings of one character in NFC; in NFD it may be several, each spelt in its own way."""
    if character == "/":
        return r"(?:(?:\\*/|%(?:25)?2f)(?:\./)*)+"
    parts = unicodedata.normalize("NFD", character)
    spellings = [*_escapes(character), *(("_", r"\+") if character == " " else ())]
    if parts != character:
        spellings.append("".join(f"(?:{'|'.join(_escapes(part))})" for part in parts))
    return f"(?:{'|'.join(dict.fromkeys(spellings))})"


def _escapes(character: str) -> Iterator[str]:
    encoded = character.encode("utf-8", "replace")
    yield re.escape(character)
    yield rf"\\{re.escape(character)}"
    yield "".join(f"%(?:25)?{byte:02x}" for byte in encoded)
    yield "".join(rf"\\x{byte:02x}" for byte in encoded)
    yield "".join(rf"\\{byte:03o}" for byte in encoded)
    yield "".join(rf"\\u{unit:04x}" for unit in _utf16(character))


def _utf16(character: str) -> Iterator[int]:
    encoded = character.encode("utf-16-be", "surrogatepass")
    return (int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2))
