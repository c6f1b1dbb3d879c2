"""Provides `Languages` by language servers; where no command may run, by a search."""

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.runtime.lsp.service import LanguageServers
from mcp_toolserver.runtime.providers import Provider, ProviderContext
from mcp_toolserver.runtime.search.provider import search_in


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    runs_commands = Capability.PROCESS.unavailable(context.facts) is None
    servers = LanguageServers(
        context.broker if runs_commands else None,
        context.programs.path,
        context.roots,
        search_in(context),
        may_hide=context.may_hide,
    )
    return Provider(
        provide=lambda request: servers.for_call(request.workspace, request.scope),
        forget=servers.forget,
        aclose=servers.aclose,
    )
