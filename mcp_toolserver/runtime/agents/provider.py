"""Provides `Agents`, `Teams`, and the background jobs of agents."""

from mcp_toolserver.runtime.agents.agents import CallAgents, ServerAgents
from mcp_toolserver.runtime.providers import Provider, ProviderContext


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    agents = ServerAgents(context)
    return Provider(
        provide=lambda request: CallAgents(agents, request), forget=agents.forget, aclose=agents.aclose
    )
