"""The web capability; the HTTP client is imported on first use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.web import Fetch, Send
from mcp_toolserver.runtime.web.guard import Guard, Resolve, system_resolve
from mcp_toolserver.runtime.web.options import WebOptions

if TYPE_CHECKING:
    import ssl

    import httpcore

    from mcp_toolserver.runtime.web.calls import WebServices


@dataclass(frozen=True, kw_only=True)
class Transport:
    """How to reach the internet: name resolution, sockets and TLS. None means the system's."""

    resolve: Resolve = system_resolve
    network: httpcore.AsyncNetworkBackend | None = None
    trusted: ssl.SSLContext | None = None


@dataclass(frozen=True)
class Web:
    """Fetching and sending under one guard."""

    options: WebOptions
    transport: Transport = Transport()

    def fetching(self, scope: Scope) -> Fetch:
        """Return the fetch capability of one call."""
        return self._services.fetching(scope)

    def sending(self, scope: Scope) -> Send:
        """Return the send capability of one call."""
        return self._services.sending(scope)

    @cached_property
    def guard(self) -> Guard:
        """The guard, also used by git clone."""
        return Guard(hosts=self.options.hosts, private=self.options.private, resolve=self.transport.resolve)

    @cached_property
    def _services(self) -> WebServices:
        from mcp_toolserver.runtime.web.calls import WebServices

        options, transport = self.options, self.transport
        return WebServices.build(options, self.guard, network=transport.network, trusted=transport.trusted)
