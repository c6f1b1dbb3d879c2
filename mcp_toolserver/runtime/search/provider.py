"""Provides `Search` by ripgrep."""

from collections.abc import Callable

from mcp_toolserver.capabilities.search import Search
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.providers import Provider, ProviderContext
from mcp_toolserver.runtime.search.search import Ripgrep


def search_in(context: ProviderContext) -> Callable[[Workspace], Search] | None:
    """A function that returns the search of a workspace; None without ripgrep."""
    ripgrep = context.programs.ripgrep
    if ripgrep is None:
        return None
    programs = Programs(context.broker)
    landlocked = context.broker.proof.helpers == "landlock"
    return lambda workspace: Ripgrep(
        launcher=programs,
        workspace=workspace,
        program=ripgrep,
        may_hide=context.may_hide,
        landlocked=landlocked,
    )


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    search = search_in(context)
    assert search is not None, "the capability is not available without ripgrep"
    return Provider(provide=lambda request: search(request.workspace))
