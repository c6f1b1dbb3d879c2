"""Provides `Git`."""

import os

from mcp_toolserver.runtime.git.git import GitReader
from mcp_toolserver.runtime.git.repository import RepositoryAccess
from mcp_toolserver.runtime.git.runner import Git
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.providers import Provider, ProviderContext


def git(context: ProviderContext) -> Git:
    """Build git for this host."""
    assert context.programs.git is not None
    return Git(Programs(context.broker), context.programs.git, os.path.expanduser("~"))


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    program = git(context)
    return Provider(
        provide=lambda request: GitReader(
            access=RepositoryAccess(git=program, workspace=request.workspace, may_hide=context.may_hide)
        )
    )
