"""The target of `open`: a URL, a mail address, or a path in the workspace."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BeforeValidator, InstanceOf, WithJsonSchema

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.text.file_names import check_spelling
from mcp_toolserver.text.web.urls import canonical_url

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MAIL = re.compile(r"mailto:[\w.+-]+@[\w.-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class OpenTarget:
    """A web or mail address, or a path; empty without either."""

    address: str = ""
    path: str = ""

    def __str__(self) -> str:
        return self.address or self.path

    @property
    def paths(self) -> tuple[str, ...]:
        """The path, if it is one."""
        return (self.path,) if self.path else ()

    def respelt(self, canonical: Callable[[str], CanonicalPath]) -> "OpenTarget":
        """Return this target with its canonical path. Raises: ToolError: the path cannot be used."""
        return replace(self, path=canonical(self.path)) if self.path else self


def _parsed(value: object) -> object:
    """Read what was given. Other schemes start programs of their own, so they are not allowed.

    Raises:
        ValueError: it is neither.
    """
    if not isinstance(value, str):
        return value
    if value.lower().startswith(("http://", "https://")):
        return OpenTarget(address=canonical_url(value))
    if _MAIL.fullmatch(value):
        return OpenTarget(address=value)
    if not value or _SCHEME.match(value):
        raise ValueError("give an http, https or mailto address, or a path of the workspace")
    return OpenTarget(path=check_spelling(value))


Target = Annotated[InstanceOf[OpenTarget], BeforeValidator(_parsed), WithJsonSchema({"type": "string"})]
"""The argument type: a target written as text."""
