"""The web as calls may use it. What speaks HTTP is imported when the first call needs it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.calls import Scope
from mcp_toolserver.capabilities.web import Fetch, Send
from mcp_toolserver.runtime.web.guard import Guard, Resolve, system_resolve
from mcp_toolserver.runtime.web.options import WebOptions

if TYPE_CHECKING:
    import ssl

    import httpcore

    from mcp_toolserver.runtime.web.calls import Sources


@dataclass(frozen=True, kw_only=True)
class Underlay:
    """What the internet is made of: names, sockets and whom to believe. None is that of this machine."""

    resolve: Resolve = system_resolve
    network: httpcore.AsyncNetworkBackend | None = None
    trusted: ssl.SSLContext | None = None


@dataclass(frozen=True)
class Web:
    """Reading and sending, under one guard."""

    options: WebOptions
    underlay: Underlay = Underlay()

    def fetching(self, scope: Scope) -> Fetch:
        """Reading, for one call."""
        return self._sources.fetching(scope)

    def sending(self, scope: Scope) -> Send:
        """Sending, for one call."""
        return self._sources.sending(scope)

    @cached_property
    def guard(self) -> Guard:
        """The one guard, for what speaks to the web in another way."""
        return Guard(hosts=self.options.hosts, private=self.options.private, resolve=self.underlay.resolve)

    @cached_property
    def _sources(self) -> Sources:
        from mcp_toolserver.runtime.web.calls import Sources

        options, underlay = self.options, self.underlay
        return Sources.of(options, self.guard, network=underlay.network, trusted=underlay.trusted)
