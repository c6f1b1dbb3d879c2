"""Provides the skills of a call."""

from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.runtime.providers import Provider, ProviderContext
from mcp_toolserver.runtime.skills.activation import Activation
from mcp_toolserver.runtime.skills.discovery import Discovery
from mcp_toolserver.runtime.skills.skills import CallSkills
from mcp_toolserver.stores.skills import StoredSkills


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    discovery, stored = Discovery(), StoredSkills(context.database)

    def provide(request: ServiceRequest) -> CallSkills:
        dispatcher = request.calls.dispatcher
        return CallSkills(
            discovery=discovery,
            stored=stored,
            view=request.workspace,
            whole=context.workspace,
            others=context.skill_folders,
            scope=request.scope,
            user=dispatcher.user,
            activation=Activation(
                narrowings=request.calls.narrowings, rules=dispatcher.rules, owner=request.scope.owner
            ),
        )

    return Provider(provide=provide)
