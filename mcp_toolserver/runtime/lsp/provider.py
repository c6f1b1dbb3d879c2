"""Answers queries about code by language servers; where no command may run, by a search."""

import os
from collections.abc import Sequence

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.runtime.lsp.code_queries import CodeQueries
from mcp_toolserver.runtime.lsp.pool import Pool, Project, search_folders
from mcp_toolserver.runtime.processes.interactive import Access, InteractiveProcess, start_interactive
from mcp_toolserver.runtime.providers import Provider, ProviderContext


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    search = context.search()
    pool = _pool(context) if Capability.PROCESS.unavailable(context.facts) is None else None

    def provide(request: ServiceRequest) -> CodeQueries:
        return CodeQueries(
            pool=pool,
            workspace=request.workspace,
            owner=request.scope.owner,
            search=None if search is None else search(request.workspace),
            may_hide=context.may_hide,
            refuses=request.scope.refuses,
        )

    return (
        Provider(provide=provide)
        if pool is None
        else Provider(provide=provide, forget=pool.forget, forgotten=pool.forgotten, aclose=pool.aclose)
    )


def _pool(context: ProviderContext) -> Pool:
    async def start(argv: Sequence[str], cwd: int, project: Project) -> InteractiveProcess:
        caches = () if context.facts.is_unconfined else project.language.caches
        name = f"the language server {os.path.basename(argv[0])}"
        access = Access(roots=project.roots, read_only=project.is_read_only, owner=project.owner, name=name)
        return await start_interactive(context.broker, _with_caches(argv, caches), cwd=cwd, access=access)

    return Pool(start, search_folders(context.programs.path), context.roots)


def _with_caches(argv: Sequence[str], variables: Sequence[str]) -> Sequence[str]:
    """Return a command that sets each variable to a folder in the temporary folder of the session: commands
    cannot write to the user's cache folders."""
    if not variables:
        return argv
    assignments = " ".join(f'{name}="$TMPDIR/{name}"' for name in variables)
    return ("sh", "-c", f'{assignments} exec "$@"', "sh", *argv)
