"""Provides `Fetch` and `Send`."""

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.runtime.providers import Provider, ProviderContext
from mcp_toolserver.runtime.web.web import Web


def provided_by(web: Web) -> Provider:
    """The provider of this web."""

    def provide(request: ServiceRequest) -> object:
        make = web.fetching if request.capability is Capability.FETCH else web.sending
        return make(request.scope)

    return Provider(provide=provide)


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    return provided_by(Web(context.web))
