"""Requests to the web."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WebSend:
    """A request."""

    url: str
    """In canonical spelling."""
    method: str = "GET"
    headers: Mapping[str, str]
    most: int
    """Maximum bytes of the decompressed body."""
    seconds: float
    """Timeout in seconds for everything, including redirects."""
    body: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class WebAnswer:
    """A response. Its content is untrusted."""

    url: str
    """The URL after redirects."""
    status: int
    reason: str
    """The standard reason phrase of the status; never the server's own."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    complete: bool
    """Whether `body` is the whole body."""
    mark: str
    """A random marker, so that no page can imitate the end of its own text."""


@dataclass(frozen=True, kw_only=True)
class WebQuery:
    """A web search."""

    text: str
    most: int
    """Maximum number of results."""
    allowed_domains: tuple[str, ...] = ()
    """Only these domains and their subdomains; empty for all."""
    blocked_domains: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WebHit:
    """A search result."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, kw_only=True)
class WebHits:
    """Search results."""

    hits: tuple[WebHit, ...]
    provider: str
    left: int
    """Number of searches left for the session."""
    mark: str
    """As in `WebAnswer`."""
