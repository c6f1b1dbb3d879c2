"""Recognizes definitions by a few forms for all languages: a keyword before the name, an assignment at the
start of a line, or the head of a function as in C and Java. Comments and strings may look like one."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_NAME = "NAME"
"""Stands for the name in a form."""

_ANY_NAME = r"[A-Za-z_$][\w$]*"

_KEYWORDS = (
    r"class|struct|interface|enum|union|protocol|trait|record|object|module|namespace|mod|type|typealias|"
    r"typedef|data|newtype|func|fun|function|def|defp|defmodule|defmacro|defstruct|fn|sub|proc|macro_rules!|"
    r"#\s*define|let|var|val|const|external|local"
)
_BETWEEN = r"(?:\([^)]*\)\s*|<[^>]*>\s*|(?:rec|mut)\s+)?(?:[\w.:]+[.:])?"
"""Between keyword and name: the receiver of Go, type parameters, the table of a function of Lua."""

_ARGUMENTS = r"\([^;{()]*(?:\([^()]*\)[^;{()]*)*\)"

_FORMS = (
    rf"^\s*(?:[^\s\"'`#/*]+\s+)*(?:{_KEYWORDS})[\s*]+{_BETWEEN}NAME\b",
    r"^\s*typedef\b.*\bNAME\s*;",
    r"^(?:using\s+)?NAME\s*(?::[^=]+)?=(?:[^=]|$)",
    r"^NAME\s+::\s",
    # The block begins on the same line, or, if a type starts the line, perhaps on another.
    rf"^\s*(?:[\w<>\[\],.?@&*:~]+\s+)*[*&]*(?:\w+::)*NAME\s*{_ARGUMENTS}[^;={{]*\{{",
    r"^[A-Za-z_][\w:<>,*&\s]*[\s*&:]NAME\s*\([^;]*$",
)
"""They mean the same to Python and to Rust."""

_STATEMENT = re.compile(
    r"\s*(?:if|elif|else|for|foreach|while|until|switch|match|when|catch|except|with|synchronized|return|"
    r"yield|await|throw|raise|assert|defer|go|new|from|import)\b"
)
"""The start of a line that defines nothing."""

_MOST = 1_000
"""Characters of a line that are looked at."""


@dataclass(frozen=True)
class Definition:
    """A line that seems to define something."""

    name: str
    line: int
    """Line number, from 0."""
    index: int
    """Index of the name in the line, from 0."""


def definition_pattern(name: str) -> str:
    """Return a regex that finds lines that may define what the pattern `name` matches."""
    return "|".join(form.replace(_NAME, name) for form in _FORMS)


def definitions(lines: Iterable[str], name: str = _ANY_NAME) -> Iterator[Definition]:
    """Yield the definitions of what the pattern `name` matches."""
    forms = [re.compile(form.replace(_NAME, f"(?P<name>{name})")) for form in _FORMS]
    for number, line in enumerate(lines):
        hit = next((hit for form in forms if (hit := form.search(line[:_MOST]))), None)
        if hit is not None and not _STATEMENT.match(line):
            yield Definition(hit["name"], number, hit.start("name"))
