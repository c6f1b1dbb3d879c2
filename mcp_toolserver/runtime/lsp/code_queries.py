"""Answers queries about code with language servers, or with a text search when none is available."""

import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.code import CodeAnswer, CodeQuery
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.search import FileQuery, Search
from mcp_toolserver.errors import InvalidInput, NotFound, TimedOut, Unavailable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.connection import ConnectionClosed, ResponseError
from mcp_toolserver.runtime.lsp.framing import ProtocolError
from mcp_toolserver.runtime.lsp.pool import Pool, Project, ServerUnavailable
from mcp_toolserver.runtime.lsp.search_fallback import SearchFallback
from mcp_toolserver.runtime.lsp.session import Session
from mcp_toolserver.runtime.lsp.visible_locations import LocationView
from mcp_toolserver.text.code.languages import Language, code_language

if TYPE_CHECKING:
    from mcp_toolserver.runtime.lsp.requests import RequestHandler

_REQUESTS_MODULE = "mcp_toolserver.runtime.lsp.requests"

_MAX_ATTEMPTS = 2
"""How often a query is tried; a server that ends is restarted."""

_NEWEST = 500
"""Newest files that determine the language of a folder."""

_UNCONFINED = (
    "In this mode language servers run only in a sandbox, and no sandbox works on this machine; "
    "`mcp-toolserver doctor` shows what is missing."
)
_NO_EXTRA = "Language servers need the extra `lsp`; the operator can install mcp-toolserver[lsp]."


@dataclass(frozen=True, kw_only=True)
class CodeQueries:
    """Implements `capabilities.Languages`."""

    pool: Pool | None
    """None if language servers cannot be sandboxed."""
    workspace: Workspace
    owner: str = LOCAL
    search: Search | None
    may_hide: bool = True
    """Whether a rule of the operator hides anything."""

    async def ask(self, query: CodeQuery) -> CodeAnswer:
        """See `Languages.ask`."""
        self._check_file(query)
        try:
            return await self._ask_server(query)
        except ServerUnavailable as why:
            searching = SearchFallback(workspace=self.workspace, search=self.search, why=str(why))
        return await searching.answer(query)

    def _check_file(self, query: CodeQuery) -> None:
        kind = self.workspace.kind(query.path)
        if kind == "missing":
            raise NotFound(f"'{query.path}' does not exist. glob_search finds files by name.")
        if kind != "file" and not (kind == "folder" and query.operation == "workspaceSymbol"):
            raise InvalidInput(f"'{query.path}' is not a file. {query.operation} needs a file as `path`.")

    async def _ask_server(self, query: CodeQuery) -> CodeAnswer:
        """Query a language server. Raises: ServerUnavailable: none can be used."""
        if self.pool is None:
            raise ServerUnavailable(_UNCONFINED)
        path = await self._file(query, self.pool)
        language = _language_of(path)
        folder, roots = self._project(path, language), self.workspace.roots
        project = Project(folder=folder, language=language, roots=roots, owner=self.owner)
        if not self.pool.has(project):
            self.pool.installed(language)
        handler_type = await _import_handler()
        for _ in range(_MAX_ATTEMPTS):
            async with self.pool.using(project, lambda: self._folder(project)) as session:
                try:
                    return await self._query(session, query, path, handler_type)
                except ConnectionClosed:
                    continue
                except ProtocolError as error:
                    await session.connection.close(str(error))
        raise ServerUnavailable(f"The language server for {language.name} ended during the query.")

    async def _query(
        self, session: Session, query: CodeQuery, path: CanonicalPath, handler_type: "type[RequestHandler]"
    ) -> CodeAnswer:
        document = await session.document(path, self.workspace.open_file)
        view = LocationView(workspace=self.workspace, encoding=session.encoding, pages=session.pages)
        question = handler_type(
            session=session, document=document, view=view, query=query, may_hide=self.may_hide
        )
        try:
            return await question.answer()
        except ResponseError as error:
            raise Unavailable(
                f"{session.name} could not answer this (error {error.code}). Check the position, or use "
                "grep_search."
            ) from None
        except TimeoutError:
            raise await _timeout_error(session, query) from None

    async def _file(self, query: CodeQuery, pool: Pool) -> CanonicalPath:
        """Return the absolute path of the file to query; for a folder, the newest of its main language."""
        if self.workspace.kind(query.path) == "file":
            return self._absolute(query.path)
        if self.search is None:
            raise ServerUnavailable(_UNCONFINED)
        listed = await self.search.files(FileQuery(pattern="**", path=query.path, limit=_NEWEST))
        known = [(path, language) for path in listed.files if (language := code_language(path))]
        for language, _ in Counter(language for _, language in known).most_common():
            try:
                pool.installed(language)
            except ServerUnavailable:
                continue
            newest = next(path for path, its_language in known if its_language is language)
            return self._absolute(self.workspace.canonical(newest))
        raise ServerUnavailable(f"No language server is installed for the files in '{query.path}'.")

    def _absolute(self, path: CanonicalPath) -> CanonicalPath:
        """Return the absolute path, which is the same for callers with other roots."""
        return CanonicalPath(self.workspace.spellings(path)[-1])

    def _project(self, path: CanonicalPath, language: Language) -> str:
        """Return the nearest parent folder with a project marker, or the root."""
        root = self.workspace.root_of(path)
        if root not in self.workspace.roots:
            return root
        folder = os.path.dirname(path)
        while folder != root:
            if any(os.path.isfile(os.path.join(folder, marker)) for marker in language.markers):
                return folder
            folder = os.path.dirname(folder)
        return root

    def _folder(self, project: Project) -> int:
        return self.workspace.open_dir(CanonicalPath(project.folder))


def _language_of(path: str) -> Language:
    if (language := code_language(path)) is None:
        raise ServerUnavailable(f"No language server is known for files like '{os.path.basename(path)}'.")
    return language


async def _import_handler() -> "type[RequestHandler]":
    try:
        return (
            _import_requests()
            if _REQUESTS_MODULE in sys.modules
            else await to_thread.run_sync(_import_requests)
        )
    except ImportError:
        raise ServerUnavailable(_NO_EXTRA) from None


def _import_requests() -> "type[RequestHandler]":
    # Takes half a second to import.
    from mcp_toolserver.runtime.lsp.requests import RequestHandler

    return RequestHandler


async def _timeout_error(session: Session, query: CodeQuery) -> TimedOut:
    if session.is_busy:
        return TimedOut(f"{session.name} is still indexing the project. Try again in a while.")
    await session.connection.close("did not answer in time")
    return TimedOut(
        f"{session.name} did not answer {query.operation} in time and was ended. The next call "
        "restarts it; grep_search works without it."
    )
