"""Provides `Clones`."""

from mcp_toolserver.runtime.git.clone import GitCloner
from mcp_toolserver.runtime.git.provider import git
from mcp_toolserver.runtime.git.repository import RepositoryAccess
from mcp_toolserver.runtime.providers import Provider, ProviderContext
from mcp_toolserver.runtime.web.guard import Guard


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    assert context.programs.git is not None
    program, path = git(context), context.programs.git
    web = context.web
    guard = Guard(hosts=web.hosts, private=web.private) if context.facts.is_networked else None
    return Provider(
        provide=lambda request: GitCloner(
            broker=context.broker,
            program=path,
            access=RepositoryAccess(git=program, workspace=request.workspace, may_hide=context.may_hide),
            guard=guard,
        )
    )
