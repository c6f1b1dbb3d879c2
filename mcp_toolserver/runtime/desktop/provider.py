"""Provides `Desktop`."""

from mcp_toolserver.runtime.desktop.desktop import desktop_for_call
from mcp_toolserver.runtime.desktop.helper_process import DesktopHelpers
from mcp_toolserver.runtime.providers import Provider, ProviderContext


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    helpers = DesktopHelpers(context.broker, context.programs.desktop)
    desktop = desktop_for_call(helpers)
    return Provider(provide=lambda request: desktop(request.workspace, request.needs), aclose=helpers.aclose)
