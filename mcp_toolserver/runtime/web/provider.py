"""Provides requests to the web."""

import ssl

import httpcore

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.runtime.providers import Provider
from mcp_toolserver.runtime.web.calls import WebFetcher, WebSender, WebServices
from mcp_toolserver.runtime.web.client import HttpClient
from mcp_toolserver.runtime.web.guard import Guard, Resolve, system_resolve
from mcp_toolserver.runtime.web.options import WebOptions
from mcp_toolserver.runtime.web.search_client import SearchClient


def web_provider(
    options: WebOptions,
    *,
    resolve: Resolve = system_resolve,
    network: httpcore.AsyncNetworkBackend | None = None,
    trusted: ssl.SSLContext | None = None,
) -> Provider:
    """Build the provider. `network` opens sockets and `trusted` verifies servers; None means the system's."""
    guard = Guard(hosts=options.hosts, private=options.private, resolve=resolve)
    http = HttpClient(guard, network, trusted)
    search = SearchClient(http=http, guard=guard, providers=options.providers)
    services = WebServices(guard=guard, http=http, search_client=search, obeys_robots=options.robots)

    def provide(request: ServiceRequest) -> WebFetcher | WebSender:
        call = WebFetcher if request.capability is Capability.FETCH else WebSender
        return call(services, request.scope)

    return Provider(provide=provide)
