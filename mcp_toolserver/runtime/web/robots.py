"""The robots.txt of each site, looked at before the site is read and remembered for a while."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from mcp_toolserver.errors import Denied
from mcp_toolserver.text.robots import Robots, parse_robots
from mcp_toolserver.text.urls import Url

AGENT = "mcp-toolserver"

MOST_BYTES = 500 * 1024
_SITES = 128
_SECONDS = 3600.0
_NOTHING_SAID = parse_robots("", AGENT)
_NOTHING_ALLOWED = parse_robots("User-agent: *\nDisallow: /", AGENT)

Read = Callable[[Url], Awaitable[tuple[int, bytes]]]
"""The status and the first bytes of an address."""


@dataclass(frozen=True, kw_only=True)
class Courtesy:
    """Refuses what a site does not want to be read by programs."""

    read: Read
    _known: OrderedDict[str, tuple[float, Robots]] = field(
        default_factory=OrderedDict[str, tuple[float, Robots]]
    )

    async def check(self, url: Url) -> None:
        """Ask the site, at most once in an hour.

        Raises:
            Denied: the site does not want this page to be read.
        """
        if not (await self._rules(url)).allows(url.target):
            raise Denied(
                f"{url.host} asks programs not to read this page (robots.txt). Do not retry; "
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
    """A site without such a file allows everything; one that cannot say so for the moment allows nothing."""
    if status >= 500 or status == 429:
        return _NOTHING_ALLOWED
    return parse_robots(body.decode(errors="replace"), AGENT) if 200 <= status < 300 else _NOTHING_SAID
