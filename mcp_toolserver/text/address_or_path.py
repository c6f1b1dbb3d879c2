"""An argument that is an address, or a path in the workspace: what `open` opens, and what is cloned."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BeforeValidator, InstanceOf, WithJsonSchema

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.text.file_names import check_spelling
from mcp_toolserver.text.web.urls import canonical_url, parse_url

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MAIL = re.compile(r"mailto:[\w.+-]+@[\w.-]+", re.ASCII)
_REMOTE = re.compile(r"[^/]*:")
"""How everything begins that git takes for another machine or for a program to run."""

_FILE = "file://"


@dataclass(frozen=True, kw_only=True)
class AddressOrPath:
    """One of them; empty without either."""

    address: str = ""
    path: str = ""

    def __str__(self) -> str:
        return self.address or self.path

    @property
    def paths(self) -> tuple[str, ...]:
        """The path, if it is one."""
        return (self.path,) if self.path else ()

    def respelt(self, canonical: Callable[[str], CanonicalPath]) -> "AddressOrPath":
        """Return this target with its canonical path. Raises: ToolError: the path cannot be used."""
        return replace(self, path=canonical(self.path)) if self.path else self


def open_target(text: str) -> AddressOrPath:
    """Read what is to be opened. Other schemes start programs of their own, so they are not allowed.

    Raises:
        ValueError: it is neither a web or mail address nor a path.
    """
    if text.lower().startswith(("http://", "https://")):
        return AddressOrPath(address=canonical_url(text))
    if _MAIL.fullmatch(text):
        return AddressOrPath(address=text)
    if not text or _SCHEME.match(text):
        raise ValueError("give an http, https or mailto address, or a path of the workspace")
    return AddressOrPath(path=check_spelling(text))


def clone_source(text: str) -> AddressOrPath:
    """Read what is to be cloned: an https URL or a folder. Other forms that git accepts can run programs.

    Raises:
        ValueError: it is neither.
    """
    if text.lower().startswith("https://"):
        url = parse_url(text)
        if "?" in url.target:
            raise ValueError("the address of a repository has no query; leave out `?` and what follows")
        return AddressOrPath(address=str(url))
    path = text.removeprefix(_FILE) if text.startswith(f"{_FILE}/") else text
    if not path or (path is text and _REMOTE.match(path)):
        raise ValueError("give an https:// address, or a folder of the workspace; nothing else is cloned")
    return AddressOrPath(path=check_spelling(path))


def _parsed(read: Callable[[str], AddressOrPath]) -> BeforeValidator:
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


_SCHEMA = WithJsonSchema({"type": "string"})
OpenTarget = Annotated[InstanceOf[AddressOrPath], _parsed(open_target), _SCHEMA]
CloneSource = Annotated[InstanceOf[AddressOrPath], _parsed(clone_source), _SCHEMA]
"""The argument types: text as `open_target` and `clone_source` read it."""
