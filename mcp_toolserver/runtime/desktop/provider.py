"""Provides `Desktop`."""

from mcp_toolserver.runtime.desktop.desktop import CallDesktop
from mcp_toolserver.runtime.desktop.helper_process import DesktopHelpers
from mcp_toolserver.runtime.providers import Provider, ProviderContext


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    helpers = DesktopHelpers(context.broker, context.programs.desktop)
    return Provider(
        provide=lambda request: CallDesktop(
            helpers=helpers, workspace=request.workspace, needs=request.needs
        ),
        aclose=helpers.aclose,
    )
