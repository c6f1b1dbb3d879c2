"""Answers queries about code with language servers, or with a text search when there is none or it fails: for
lines that look like definitions, and lines that contain the name."""

import os
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TypeVar

from anyio import to_thread

from mcp_toolserver.capabilities.call_scope import LOCAL, Refusal
from mcp_toolserver.capabilities.code import CodeAnswer, CodeEdit, CodeEditQuery, CodePlace, CodeQuery
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.search import FileQuery, LineQuery
from mcp_toolserver.errors import InvalidInput, NotFound, ToolError, Unavailable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.connection import ConnectionClosed, ProtocolError, ResponseError
from mcp_toolserver.runtime.lsp.documents import MOST_TEXT, Document, read_text
from mcp_toolserver.runtime.lsp.pool import Pool, Project, ServerUnavailable
from mcp_toolserver.runtime.lsp.session import Session
from mcp_toolserver.runtime.search.results import CUT
from mcp_toolserver.runtime.search.search import Ripgrep as Search
from mcp_toolserver.text.code.languages import CODE_GLOB, Language, code_glob, code_language
from mcp_toolserver.text.code.positions import (
    asked_place,
    code_lines,
    definition_pattern,
    definitions,
    implementation_pattern,
    symbol_at,
    symbol_starts,
)

T = TypeVar("T")

_HANDLERS = tuple(f"mcp_toolserver.runtime.lsp.{name}" for name in ("requests", "edit_requests"))
"""What needs the protocol's types, which take half a second to import."""

_MAX_ATTEMPTS = 2
"""How often a query is tried; a server that ends is restarted."""

_MOST_USES = 1_000
"""References of a renamed symbol, and places with its old name, that are looked at."""

_NAMED_UNCHANGED = 5
"""Those of them that are named."""

_NEWEST = 500
"""Newest files that determine the language of a folder."""

_FOUND = re.compile(r"(?P<path>.+?):(?P<line>[0-9]+):(?P<text>.*)", re.DOTALL)

_SHOWN_OF_DEFINITION = 6
"""Lines of a definition shown as hover text."""

_MOST_LINES = 500
"""Found lines that are looked at."""

_UNCONFINED = (
    "In this mode language servers run only in a sandbox, and no sandbox works on this machine; "
    "`mcp-toolserver doctor` shows what is missing."
)
_NO_EXTRA = "Language servers need the extra `lsp`; the operator can install mcp-toolserver[lsp]."


@dataclass(frozen=True, kw_only=True)
class CodeQueries:
    """Queries language servers about code inside the roots; searches for symbols where none is installed."""

    pool: Pool | None
    """None if language servers cannot be sandboxed."""
    workspace: Workspace
    owner: str = LOCAL
    search: Search | None
    may_hide: bool = True
    """Whether a rule of the operator hides anything."""
    refuses: Refusal
    """Why the call may not touch a path too."""

    async def ask(self, query: CodeQuery) -> CodeAnswer:
        """Answer a query; starts the language server on first use.

        Raises:
            InvalidInput: the position is not in the file, or something is missing in the question.
            NotFound, Denied: the file is not there, or not for reading.
            Unavailable: only a language server could answer, and none does.
            TimedOut: it did not answer in time.
        """
        self._check_file(query)
        try:
            return await self._with_server(query.path, query.operation, partial(self._query, query))
        except ServerUnavailable as why:
            searching = _TextSearch(workspace=self.workspace, search=self.search, why=str(why))
        return await searching.answer(query)

    async def propose(self, query: CodeEditQuery) -> CodeEdit:
        """Return the change that a language server proposes, without making it.

        Every file of it lies inside the roots, is not hidden, and may be touched by this call.

        Raises:
            InvalidInput: the position is not in the file, or there is no such action.
            NotFound: the file is not there.
            Denied: the change touches a file that this call may not.
            Conflict: the files changed while the server answered.
            Unavailable: no language server proposes it, or the proposal cannot be used.
        """
        self._check_file(query)
        try:
            edit = await self._with_server(query.path, query.operation, partial(self._propose, query))
        except ServerUnavailable as why:
            raise Unavailable(
                f"{why} {query.operation} needs one; edit_file and apply_patch change files without."
            ) from None
        return replace(edit, notes=(*edit.notes, *await self._unchanged(query.path, edit)))

    async def _unchanged(self, path: CanonicalPath, edit: CodeEdit) -> tuple[str, ...]:
        """Return a sentence on files that have the old name of a renamed symbol and are not changed.

        A server that has not read them misses them, such as clangd without compile_commands.json.
        """
        if not edit.symbol:
            return ()
        searching = _TextSearch(workspace=self.workspace, search=self.search, why="")
        query = CodeQuery(operation="findReferences", path=path, symbol=edit.symbol, limit=_MOST_USES)
        found: Sequence[CodePlace] = ()
        with suppress(ToolError):
            found = (await searching.answer(query)).places
        changed = {file.path for file in edit.files}
        missed, others = (
            list(dict.fromkeys(f"{one.path}:{one.line}" for one in places if one.path not in changed))
            for places in (edit.references, found)
        )
        others = [place for place in others if place not in missed]
        unknown = "it is another symbol, a comment or a string, or it has not read these files."
        notes: list[str] = []
        for places, why in (
            (missed, f"{edit.source} finds these uses but does not change them; edit_file can."),
            (others, f"For {edit.source} {unknown}"),
        ):
            named = ", ".join(places[:_NAMED_UNCHANGED])
            more = f" and {len(places) - _NAMED_UNCHANGED} more" * (len(places) > _NAMED_UNCHANGED)
            note = f"Text in other files has the name {edit.symbol} too and is not changed: {named}{more}."
            notes += [f"{note} {why}"] * bool(places)
        return tuple(notes)

    def _check_file(self, query: CodeQuery | CodeEditQuery) -> None:
        kind = self.workspace.kind(query.path)
        if kind == "missing":
            raise NotFound(f"'{query.path}' does not exist. glob_search finds files by name.")
        if kind != "file" and not (kind == "folder" and query.operation == "workspaceSymbol"):
            raise InvalidInput(f"'{query.path}' is not a file. {query.operation} needs a file as `path`.")

    async def _with_server(
        self,
        asked: CanonicalPath,
        operation: str,
        work: Callable[[Session, Document], Awaitable[T]],
    ) -> T:
        """Return the result of `work` with the language server of a file. Raises: ServerUnavailable."""
        if self.pool is None:
            raise ServerUnavailable(_UNCONFINED)
        path, language = await self._file(asked, self.pool)
        project = Project(
            folder=self._project(path, language),
            language=language,
            roots=self.workspace.roots,
            owner=self.owner,
            is_read_only=self.workspace.is_read_only,
            keeps_git=self.workspace.keeps_git,
        )
        if not self.pool.has(project):
            self.pool.installed(language)
        await _import_handlers()
        folder = partial(self.workspace.hold_dir, CanonicalPath(project.folder))
        for _ in range(_MAX_ATTEMPTS):
            async with self.pool.using(project, folder) as session:
                try:
                    document = await session.document(path, self.workspace)
                    return await work(session, document)
                except ConnectionClosed:
                    continue
                except ProtocolError as error:
                    await session.connection.close(str(error))
                except ResponseError as error:
                    raise Unavailable(
                        f"{session.name} could not answer this (error {error.code}). Check the position, or "
                        "use grep_search."
                    ) from None
                except TimeoutError:
                    raise await _timeout_error(session, operation) from None
        raise ServerUnavailable(f"The language server for {language.name} ended during the query.")

    async def _query(self, query: CodeQuery, session: Session, document: Document) -> CodeAnswer:
        from mcp_toolserver.runtime.lsp.requests import RequestHandler

        return await RequestHandler(session, document, query, self.workspace, self.may_hide).answer()

    async def _propose(self, query: CodeEditQuery, session: Session, document: Document) -> CodeEdit:
        from mcp_toolserver.runtime.lsp.edit_requests import EditRequest

        edit = await EditRequest(session, document, query, self.workspace, self.refuses).proposal()
        if not edit.symbol:
            return edit
        asked = CodeQuery(
            operation="findReferences",
            path=query.path,
            line=query.line,
            character=query.character,
            symbol=query.symbol,
            limit=_MOST_USES,
        )
        with suppress(Unavailable, ProtocolError, ResponseError, TimeoutError):
            edit = replace(edit, references=(await self._query(asked, session, document)).places)
        return edit

    async def _file(self, asked: CanonicalPath, pool: Pool) -> tuple[CanonicalPath, Language]:
        """Return the absolute path of the file to query, and its language; for a folder, the newest of its
        main language."""
        if self.workspace.kind(asked) == "file":
            if (language := code_language(asked)) is None:
                name = os.path.basename(asked)
                raise ServerUnavailable(f"No language server is known for files like '{name}'.")
            return self._absolute(asked), language
        if self.search is None:
            raise ServerUnavailable(_UNCONFINED)
        listed = await self.search.files(FileQuery(pattern="**", path=asked, limit=_NEWEST))
        known = [(path, language) for path in listed.files if (language := code_language(path))]
        for language, _ in Counter(language for _, language in known).most_common():
            try:
                pool.installed(language)
            except ServerUnavailable:
                continue
            newest = next(path for path, its_language in known if its_language is language)
            return self._absolute(self.workspace.canonical(newest)), language
        raise ServerUnavailable(f"No language server is installed for the files in '{asked}'.")

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


async def _import_handlers() -> None:
    try:
        for name in _HANDLERS:
            if name not in sys.modules:
                await to_thread.run_sync(import_module, name)
    except ImportError:
        raise ServerUnavailable(_NO_EXTRA) from None


async def _timeout_error(session: Session, operation: str) -> ServerUnavailable:
    if session.is_busy:
        return ServerUnavailable(f"{session.name} is still indexing the project; asked later, it answers.")
    await session.connection.close("did not answer in time")
    return ServerUnavailable(
        f"{session.name} did not answer {operation} in time and was ended; the next call restarts it."
    )


# --- without a language server ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _TextSearch:
    """Answers queries from the text alone. `why` says why no language server is available."""

    workspace: Workspace
    search: Search | None
    why: str

    async def answer(self, query: CodeQuery) -> CodeAnswer:
        """Answer a query. Raises: as `CodeQueries.ask`."""
        match query.operation:
            case "documentSymbol":
                lines = await self._lines(query.path)
                places = [
                    _place(query.path, one.line, one.index, lines[one.line]) for one in definitions(lines)
                ]
                return self._answer(places[: query.limit], len(places))
            case "workspaceSymbol":
                if not query.symbol:
                    raise InvalidInput(
                        f"{self.why} To search for symbols without one, give `query`: a part of a name."
                    )
                return await self._definitions(query, rf"(?i:\w*{re.escape(query.symbol)}\w*)")
            case "goToDefinition":
                return await self._definitions(query, re.escape(await self._symbol(query)))
            case "findReferences" | "goToImplementation":
                symbol = await self._symbol(query)
                name, is_base = re.escape(symbol), query.operation == "goToImplementation"
                pattern = implementation_pattern(name) if is_base else rf"\b{name}\b"
                found = await self._search(query, pattern, lambda line: [*symbol_starts(line, symbol), 0][0])
                # Of a method, the definitions with its name.
                return found if found.places or not is_base else await self._definitions(query, name)
            case "hover":
                return await self._hover(query)
            case _:
                raise Unavailable(
                    f"{self.why} {query.operation} needs one; the operations about definitions, "
                    "implementations, references, hover and symbols work without."
                )

    async def _definitions(self, query: CodeQuery, name: str) -> CodeAnswer:
        def index(line: str) -> int | None:
            return next((one.index for one in definitions([line], name)), None)

        return await self._search(query, definition_pattern(name), index)

    async def _hover(self, query: CodeQuery) -> CodeAnswer:
        found = await self._definitions(query, re.escape(await self._symbol(query)))
        if not found.places:
            return found
        first = found.places[0]
        lines = await self._lines(self.workspace.canonical(first.path))
        visible = lines[first.line - 1 : first.line - 1 + _SHOWN_OF_DEFINITION]
        text = "\n".join((f"{first.path}:{first.line}", *(line[:MOST_TEXT] for line in visible)))
        return self._answer((), 0, text)

    async def _symbol(self, query: CodeQuery) -> str:
        if query.symbol and query.line is None:
            return query.symbol
        lines = await self._lines(query.path)
        place = asked_place(query, lines)
        if not (symbol := query.symbol or symbol_at(lines[place.line], place.index)):
            raise InvalidInput(
                f"There is no name at line {place.line + 1}, character {place.index + 1} of '{query.path}'. "
                "Both count from 1."
            )
        return symbol

    async def _lines(self, path: CanonicalPath) -> list[str]:
        return code_lines((await read_text(path, self.workspace)).text)

    async def _search(self, query: CodeQuery, pattern: str, index: Callable[[str], int | None]) -> CodeAnswer:
        """Search a folder, or, for a file, its whole root for files in its language. `index` says where in a
        line the name is, and None for a line that does not count."""
        if self.search is None:
            raise Unavailable(f"{self.why} Search, the fallback, is unavailable too.")
        folder, glob = query.path, CODE_GLOB
        if self.workspace.kind(query.path) == "file":
            folder = self.workspace.canonical(self.workspace.root_of(query.path))
            glob = code_glob(query.path)
        wanted = LineQuery(pattern=pattern, path=folder, mode="content", glob=glob, limit=_MOST_LINES)
        found = await self.search.lines(wanted)
        hits = [hit for hit in map(_FOUND.fullmatch, found.text.split("\n")) if hit is not None]
        places = [
            # Where a part of the line is left out, nobody knows how far into it the name is.
            _place(
                hit["path"], int(hit["line"]) - 1, 0 if hit["text"].startswith(CUT) else start, hit["text"]
            )
            for hit in hits
            if (start := index(hit["text"])) is not None
        ]
        places.sort(key=lambda place: place.path != query.path)
        return self._answer(places[: query.limit], found.total - len(hits) + len(places))

    def _answer(self, places: Sequence[CodePlace], total: int, text: str = "") -> CodeAnswer:
        return CodeAnswer(
            places=tuple(places), total=total, text=text, source="a text search", fallback=self.why
        )


def _place(path: str, line: int, index: int, text: str) -> CodePlace:
    return CodePlace(path=path, line=line + 1, character=index + 1, text=text.strip()[:MOST_TEXT])
