"""Provides `Sessions`: interpreters that keep their state from call to call."""

from mcp_toolserver.runtime.providers import Provider, ProviderContext
from mcp_toolserver.runtime.repl.sessions import Interpreters


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    sessions = Interpreters(context.broker, context.outputs, explain=context.explain)
    return Provider(
        provide=lambda request: sessions.for_call(request.workspace, request.scope),
        forget=sessions.forget,
        forgotten=sessions.forgotten,
        aclose=sessions.aclose,
    )
