"""Provides `Worktrees`."""

from mcp_toolserver.runtime.git.provider import git
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.runtime.providers import Provider, ProviderContext
from mcp_toolserver.runtime.worktrees.worktrees import CallWorktrees, WorktreeServices
from mcp_toolserver.stores.worktrees import StoredWorktrees


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    services = WorktreeServices(
        git=git(context),
        workspace=context.workspace,
        may_hide=context.may_hide,
        stored=StoredWorktrees(context.database),
        entered=context.worktrees,
    )

    def provide(request: ServiceRequest) -> CallWorktrees:
        return CallWorktrees(services=services, workspace=request.workspace, scope=request.scope)

    return Provider(provide=provide)
