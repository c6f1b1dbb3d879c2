"""Checks the robots.txt of each site and caches it."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from mcp_toolserver.errors import Denied
from mcp_toolserver.text.web.robots import Robots, parse_robots
from mcp_toolserver.text.web.urls import Url

AGENT = "mcp-toolserver"

MOST_BYTES = 500 * 1024
_SITES = 128
_SECONDS = 3600.0
_NOTHING_SAID = parse_robots("", AGENT)
_NOTHING_ALLOWED = parse_robots("User-agent: *\nDisallow: /", AGENT)

Read = Callable[[Url], Awaitable[tuple[int, bytes]]]
"""Returns the status and the first bytes of an address."""


@dataclass(frozen=True, kw_only=True)
class RobotsChecker:
    """Refuses pages that a site excludes for robots."""

    read: Read
    _known: OrderedDict[str, tuple[float, Robots]] = field(
        default_factory=OrderedDict[str, tuple[float, Robots]]
    )

    async def check(self, url: Url) -> None:
        """Check the site's robots.txt, fetched at most once an hour.

        Raises:
            Denied: the site excludes this page.
        """
        if not (await self._rules(url)).allows(url.target):
            raise Denied(
                f"The robots.txt of {url.host} excludes this page. Do not retry; "
                "the operator can set web-robots = false."
            )

    async def _rules(self, url: Url) -> Robots:
        until, rules = self._known.get(url.origin, (0.0, _NOTHING_SAID))
        if until < time.monotonic():
            rules = _rules(*await self.read(replace(url, target="/robots.txt")))
            self._known[url.origin] = (time.monotonic() + _SECONDS, rules)
            while len(self._known) > _SITES:
                self._known.popitem(last=False)
        return rules


def _rules(status: int, body: bytes) -> Robots:
    """Parse robots.txt. A missing file allows everything; a server error forbids everything for now."""
    if status >= 500 or status == 429:
        return _NOTHING_ALLOWED
    return parse_robots(body.decode(errors="replace"), AGENT) if 200 <= status < 300 else _NOTHING_SAID
