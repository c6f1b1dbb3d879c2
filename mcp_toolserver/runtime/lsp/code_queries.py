"""Questions about code, answered by language servers and, where there is none, by a search that says so."""

import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.languages import CodeAnswer, CodeQuery
from mcp_toolserver.capabilities.search import FileQuery, Search
from mcp_toolserver.errors import InvalidInput, NotFound, TimedOut, Unavailable
from mcp_toolserver.runtime.beneath import below
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.runtime.lsp.fallback import Fallback
from mcp_toolserver.runtime.lsp.pool import NoServer, Pool, Project
from mcp_toolserver.runtime.lsp.session import Session
from mcp_toolserver.runtime.lsp.talk import Ended, Refused
from mcp_toolserver.runtime.lsp.view import View
from mcp_toolserver.runtime.lsp.wire import Unintelligible
from mcp_toolserver.text.code_languages import Language, code_language

if TYPE_CHECKING:
    from mcp_toolserver.runtime.lsp.questions import Asking

_QUESTIONS = "mcp_toolserver.runtime.lsp.questions"

_STARTS = 2
"""A server that ends while it is asked is started anew and asked once more."""

_NEWEST = 500
"""Files that tell which language a folder is in."""

_UNCONFINED = (
    "Language servers run only behind walls in this mode, and this machine has none that were proven; "
    "`mcp-toolserver doctor` says what is missing."
)
_NO_EXTRA = (
    "Language servers need the extra `lsp`, which this server does not have; its operator can install "
    "mcp-toolserver[lsp]."
)


@dataclass(frozen=True, kw_only=True)
class CodeAnswers:
    """Implements `capabilities.Languages`."""

    pool: Pool | None
    """None where no language server can be confined."""
    workspace: Workspace
    search: Search | None
    hiding: bool = True
    """Whether the operator hides anything."""

    async def ask(self, query: CodeQuery) -> CodeAnswer:
        """See `Languages.ask`."""
        self._refuse_no_file(query)
        try:
            return await self._served(query)
        except NoServer as why:
            searching = Fallback(workspace=self.workspace, search=self.search, why=str(why))
        return await searching.answer(query)

    def _refuse_no_file(self, query: CodeQuery) -> None:
        kind = self.workspace.kind(query.path)
        if kind == "missing":
            raise NotFound(f"'{query.path}' does not exist. glob_search finds files by name.")
        if kind != "file" and not (kind == "folder" and query.operation == "workspaceSymbol"):
            raise InvalidInput(f"'{query.path}' is no file. {query.operation} needs one as `path`.")

    async def _served(self, query: CodeQuery) -> CodeAnswer:
        """Raises: NoServer: no language server answers."""
        if self.pool is None:
            raise NoServer(_UNCONFINED)
        path = await self._file(query, self.pool)
        language = _known(path)
        project = Project(folder=self._project(path, language), language=language)
        if not self.pool.has(project):
            self.pool.installed(language)
        asking = await _loaded()
        for _ in range(_STARTS):
            async with self.pool.using(project, lambda: self._folder(project)) as session:
                try:
                    return await self._asked(session, query, path, asking)
                except Ended:
                    continue
                except Unintelligible as error:
                    await session.talk.close(str(error))
        raise NoServer(f"The language server for {language.name} ended while it was asked.")

    async def _asked(
        self, session: Session, query: CodeQuery, path: CanonicalPath, asking: "type[Asking]"
    ) -> CodeAnswer:
        document = await session.document(path, self.workspace.regular)
        view = View(workspace=self.workspace, encoding=session.encoding, pages=session.pages)
        question = asking(session=session, document=document, view=view, query=query, hiding=self.hiding)
        try:
            return await question.answer()
        except Refused as error:
            raise Unavailable(
                f"{session.name} could not answer this (error {error.code}). Check the place, or use "
                "grep_search."
            ) from None
        except TimeoutError:
            raise await _late(session, query) from None

    async def _file(self, query: CodeQuery, pool: Pool) -> CanonicalPath:
        """The file that is asked about, absolute; for a folder the newest of its main language."""
        if self.workspace.kind(query.path) == "file":
            return self._absolute(query.path)
        if self.search is None:
            raise NoServer(_UNCONFINED)
        listed = await self.search.files(FileQuery(pattern="**", path=query.path, limit=_NEWEST))
        known = [(path, language) for path in listed.files if (language := code_language(path))]
        for language, _ in Counter(language for _, language in known).most_common():
            try:
                pool.installed(language)
            except NoServer:
                continue
            newest = next(path for path, its_language in known if its_language is language)
            return self._absolute(self.workspace.canonical(newest))
        raise NoServer(f"No language server is installed for what '{query.path}' holds.")

    def _absolute(self, path: CanonicalPath) -> CanonicalPath:
        """The spelling that means the same to callers who work in other folders."""
        return CanonicalPath(self.workspace.spellings(path)[-1])

    def _project(self, path: CanonicalPath, language: Language) -> str:
        """The nearest folder above a file that looks like the beginning of a project; else its root."""
        root = next(root for root in self.workspace.roots if below(root, path) is not None)
        folder = os.path.dirname(path)
        while folder != root:
            if any(os.path.isfile(os.path.join(folder, marker)) for marker in language.markers):
                return folder
            folder = os.path.dirname(folder)
        return root

    def _folder(self, project: Project) -> int:
        return self.workspace.folder(CanonicalPath(project.folder))


def _known(path: str) -> Language:
    if (language := code_language(path)) is None:
        raise NoServer(f"No language server is known for files like '{os.path.basename(path)}'.")
    return language


async def _loaded() -> "type[Asking]":
    try:
        return _load() if _QUESTIONS in sys.modules else await to_thread.run_sync(_load)
    except ImportError:
        raise NoServer(_NO_EXTRA) from None


def _load() -> "type[Asking]":
    # Half a second, and only needed when a language server is asked.
    from mcp_toolserver.runtime.lsp.questions import Asking

    return Asking


async def _late(session: Session, query: CodeQuery) -> TimedOut:
    if session.is_busy:
        return TimedOut(
            f"{session.name} is still reading the project, and did not answer yet. Ask again in a while."
        )
    await session.talk.close("did not answer in time")
    return TimedOut(
        f"{session.name} did not answer {query.operation} in time and was ended. The next call starts it "
        "anew; grep_search does without it."
    )
