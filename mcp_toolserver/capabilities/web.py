"""Reading from the web, and sending to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class WebRead:
    """What to read from the web."""

    url: str
    """In canonical spelling."""
    headers: Mapping[str, str]
    most: int
    """Bytes of the body to take at most, unpacked."""
    seconds: float
    """For all of it, redirects included."""


@dataclass(frozen=True, kw_only=True)
class WebSend(WebRead):
    """What to send to the web."""

    method: str
    body: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class WebAnswer:
    """What a server of the web said. Nothing in it is to be trusted."""

    url: str
    """Where it came from in the end."""
    status: int
    reason: str
    """The usual words for the status; never the server's."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    complete: bool
    """Whether `body` is all there was."""
    mark: str
    """Random, so that nothing on a page can pass for the end of it."""


@dataclass(frozen=True, kw_only=True)
class WebQuery:
    """What to look for on the web."""

    text: str
    most: int
    """Results."""
    allowed_domains: tuple[str, ...] = ()
    """Only these and what is below them; empty is all."""
    blocked_domains: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WebHit:
    """One result of a search."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, kw_only=True)
class WebHits:
    """What a search found."""

    hits: tuple[WebHit, ...]
    provider: str
    left: int
    """Searches that the session has left."""
    mark: str
    """As in `WebAnswer`."""


class Fetch(Protocol):
    """Reading from the web: GET alone, and no address but public ones and those the operator named.

    All methods raise `Denied` (an address, a port, a rule, robots.txt), `Unavailable` (no such host, no
    answer, one that breaks the protocol) and `TimedOut`.
    """

    async def get(self, request: WebRead) -> WebAnswer:
        """Read one address, through redirects, each of which is checked like the first."""
        ...

    async def search(self, query: WebQuery) -> WebHits:
        """Ask the search engine of this session."""
        ...


class Send(Protocol):
    """Any request to the web, under the same guard as `Fetch`."""

    async def send(self, request: WebSend) -> WebAnswer:
        """Raises: as for `Fetch`; robots.txt is not asked."""
        ...
