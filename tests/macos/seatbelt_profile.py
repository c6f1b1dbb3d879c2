"""Reads a profile for macOS as text, the way Seatbelt does: of the rules that match, the last decides."""

import os
import re
from collections.abc import Mapping, Sequence

Form = str | list["Form"]

_TOKEN = re.compile(r'\s+|(?P<mark>[()])|#"(?P<raw>[^"]*)"|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()"]+)')


def parsed(text: str) -> list[Form]:
    """The S-expressions in `text`; a raw string is a list of `raw` and its content."""
    stack: list[list[Form]] = [[]]
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found, f"not in the language: {text[at : at + 20]!r}"
        at = found.end()
        mark, raw, string, word = found.group("mark", "raw", "text", "word")
        if mark == "(":
            stack.append([])
        elif mark == ")":
            form = stack.pop()
            stack[-1].append(form)
        elif raw is not None:
            stack[-1].append(["raw", raw])
        elif string is not None:
            unescaped = re.sub(r"\\(.)", r"\1", string)
            stack[-1].append(f'"{unescaped}')
        elif word is not None:
            stack[-1].append(str(word))
    assert len(stack) == 1, "parentheses do not match"
    return stack[0]


def allows(
    forms: Sequence[Form], named: Mapping[str, str], operation: str, path: str = "", kind: str = ""
) -> bool:
    """Whether the profile lets a process do `operation`, as far as the profiles of the server go."""
    for form in reversed(forms):
        assert isinstance(form, list)
        if form[0] not in ("allow", "deny"):
            continue
        operations = [part for part in form[1:] if isinstance(part, str)]
        filters = [part for part in form[1:] if isinstance(part, list)]
        if not any(_covers(each, operation) for each in operations):
            continue
        if not filters or any(_matches(each, path, kind, named) for each in filters):
            return form[0] == "allow"
    return False


def _covers(pattern: str, operation: str) -> bool:
    return pattern in ("default", operation) or (
        pattern.endswith("*") and operation.startswith(pattern.removesuffix("*"))
    )


def _matches(form: Form, path: str, kind: str, named: Mapping[str, str]) -> bool:
    assert isinstance(form, list)
    match form:
        case ["require-all", *parts]:
            return all(_matches(part, path, kind, named) for part in parts)
        case ["require-any", *parts]:
            return any(_matches(part, path, kind, named) for part in parts)
        case ["require-not", part]:
            return not _matches(part, path, kind, named)
        case ["literal", value]:
            return path == _value(value, named)
        case ["subpath", value]:
            top = _value(value, named).rstrip("/")
            return path == top or path.startswith(f"{top}/")
        case ["regex" | "ipc-posix-name-regex", ["raw", str() as pattern]]:
            # Bytes, as the kernel has them.
            return re.search(os.fsencode(pattern), os.fsencode(path)) is not None
        case ["sysctl-name-prefix", value]:
            return kind.startswith(_plain(value))
        case [
            "vnode-type" | "global-name" | "remote" | "local" | "target" | "extension" | "sysctl-name"
            | "socket-domain",
            value,
        ]:  # fmt: skip
            return kind == _plain(value)
        case _:
            raise AssertionError(f"unknown filter {form}")


def _value(form: Form, named: Mapping[str, str]) -> str:
    match form:
        case ["param", str() as name]:
            return named[_plain(name)]
        case str():
            return _plain(form)
        case _:
            raise AssertionError(f"unknown value {form}")


def _plain(form: Form) -> str:
    assert isinstance(form, str)
    return form.removeprefix('"')
