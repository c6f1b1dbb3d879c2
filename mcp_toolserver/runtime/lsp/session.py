"""Manages one running language server: initialization, documents, progress and diagnostics."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import TypeVar

import anyio
from anyio import to_thread

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.client_capabilities import (
    answer_request,
    encoding,
    initialize_params,
    registered_methods,
)
from mcp_toolserver.runtime.lsp.connection import Connection, ConnectionClosed, ResponseError
from mcp_toolserver.runtime.lsp.documents import (
    DELETED,
    MOST_OPEN,
    Document,
    Documents,
    FileWatcher,
    to_uri,
)
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess
from mcp_toolserver.text.code.languages import Language, ending
from mcp_toolserver.text.code.positions import Encoding
from mcp_toolserver.text.json_values import is_list, is_object

T = TypeVar("T")

_FEW_FILES = 1_000
"""Projects up to this size are polled on the event loop."""

_MOST_REMEMBERED = 1_000
"""Largest number of stored diagnostics and of tracked progress tokens."""

_RETRY_CODES = (-32801, -32802)
"""ContentModified and ServerCancelled: the server wants the request again."""

_MAX_RETRIES = 4
_PAUSE = 0.1

_STABLE_ANSWERS = 2
"""Equal responses in a row after which a server counts as indexed."""

_PULL = "textDocument/diagnostic"
_PROVIDERS = {
    "textDocument/prepareCallHierarchy": "callHierarchyProvider",
    "workspace/symbol": "workspaceSymbolProvider",
    "textDocument/formatting": "documentFormattingProvider",
}
"""The capability by which a server announces a method, where its name is not that of the method."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedDiagnostics:
    items: object
    version: int | None
    received_at: float

    def is_of(self, document: Document) -> bool:
        """Whether the diagnostics are for the current text of the document."""
        return (
            self.received_at >= document.sent_at if self.version is None else self.version == document.version
        )


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """Limits for language servers; times in seconds."""

    running: int = 4
    """Servers of all projects."""
    idle: float = 600.0
    """Time until an unused server is ended."""
    failures: int = 3
    """After this many failures of one server ..."""
    failure_window: float = 600.0
    """... within this time, it is not started again until some of them are older."""
    start: float = 20.0
    answer: float = 25.0
    indexing: float = 10.0
    """Time for a new server to index the project; later answers are accepted as they are."""
    min_age: float = 2.0
    """A younger server may not have started to index."""
    poll_interval: float = 0.5
    """Interval between repeated queries to a new server."""
    progress_timeout: float = 5.0
    """Progress without updates for this long is ignored."""
    diagnostics: float = 10.0
    """Time for a server to publish diagnostics of a document ..."""
    action_diagnostics: float = 2.0
    """... for code actions, which the last ones that it published serve as well ..."""
    recheck: float = 1.0
    """... and to publish them again after another file changed."""
    quiet_period: float = 0.25
    """Time without new diagnostics after which they are complete."""


class Session:
    """One server. `name` is the name of its program.

    What sends something raises ConnectionClosed if the server is gone, ResponseError if it refuses, and
    TimeoutError if it does not answer in time.
    """

    def __init__(
        self, process: InteractiveProcess, name: str, folder: str, language: Language, limits: ServerLimits
    ) -> None:
        self.name = name
        self.limits = limits
        self.encoding: Encoding = "utf-16"
        self.is_indexed = False
        """Whether the server has indexed the project."""
        self._folder = folder
        self._language = language
        self._published: dict[str, PublishedDiagnostics] = {}
        """Latest diagnostics by URI."""
        self._server_capabilities: Mapping[str, object] = {}
        self._registered: set[str] = set()
        self._progress_tokens: dict[str, float] = {}
        """Time of the last update by progress token."""
        self._changed = 0.0
        """When changes were sent last."""
        self._began = monotonic()
        self._activity = asyncio.Event()
        self._lock = anyio.Lock()
        self._commands = anyio.Lock()
        """Held while a command runs, so that its edit is known to be its own."""
        self._requested_edits: list[object] | None = None
        """The edits that a running command asked for; None while none runs."""
        endings = tuple(f".{end}" for end in language.ids)
        self._watch = FileWatcher(folder, endings, language.markers)
        self.connection = Connection(process, self._answer, self._on_notification, self._wake_waiters)
        self.documents = Documents(self.connection.notify)

    async def initialize(self) -> None:
        await to_thread.run_sync(self._watch.poll)
        with anyio.fail_after(self.limits.start):
            result = await self.connection.request("initialize", initialize_params(self._folder))
        offered = result.get("capabilities") if is_object(result) else None
        self._server_capabilities = offered if is_object(offered) else {}
        self.encoding = encoding(self._server_capabilities.get("positionEncoding"))
        self.connection.notify("initialized", {})

    async def edit_of_command(self, command: str, arguments: object) -> object | None:
        """Run a command on the server and return the workspace edit that it asks the client to apply; None
        if it asks for none. The edit is not applied, and the server learns that."""
        async with self._commands:
            self._requested_edits = []
            try:
                await self.request("workspace/executeCommand", {"command": command, "arguments": arguments})
            except ResponseError:
                # Some report that their edit was not applied.
                if not self._requested_edits:
                    raise
            edits, self._requested_edits = self._requested_edits, None
        return edits[0] if len(edits) == 1 else None

    def supports(self, method: str) -> bool:
        provider = _PROVIDERS.get(method, f"{method.rpartition('/')[2]}Provider")
        offered = self._server_capabilities.get(provider)
        return method in self._registered or offered not in (None, False)

    def resolves_actions(self) -> bool:
        """Whether the server computes the edit of a code action on request."""
        provider = self._server_capabilities.get("codeActionProvider")
        return is_object(provider) and provider.get("resolveProvider") is True

    @property
    def is_busy(self) -> bool:
        """Whether it reports work in progress."""
        since = monotonic() - self.limits.progress_timeout
        return any(updated > since for updated in self._progress_tokens.values())

    async def document(self, path: CanonicalPath, files: Workspace) -> Document:
        """Open the document of an absolute path, after sending all changes of open documents.

        Raises:
            NotFound, Denied, InvalidInput: see `documents.read_text`.
        """
        async with self._lock:
            if await self.documents.refresh(files):
                self._changed = monotonic()
                await self._send_changes(files)
            return await self.documents.open(path, self._language.ids[ending(path)], files)

    async def sync_files(self, files: Workspace) -> None:
        async with self._lock:
            await self._send_changes(files)

    async def query_current(self, ask: Callable[[], Awaitable[T]], files: Workspace) -> T:
        """Return the answer to `ask` from a server that knows all changes on disk.

        Files are polled while the server answers. If any changed, the changes are sent and the query is
        repeated.
        """
        before = self._changed
        asked = asyncio.ensure_future(ask())
        try:
            # Let the task send the request first.
            await asyncio.sleep(0)
            await self.sync_files(files)
            if before == self._changed:
                return await asked
            # Some servers fail at the next request if this one is cancelled.
            await asyncio.wait((asked,))
        finally:
            asked.cancel()
            with anyio.CancelScope(shield=True):
                # Retrieves an exception, too, which would be logged otherwise.
                await asyncio.gather(asked, return_exceptions=True)
        return await ask()

    async def request(self, method: str, params: object) -> object:
        """Send a request; repeat it if the server asks for that."""
        with anyio.fail_after(self.limits.answer):
            for _ in range(_MAX_RETRIES):
                try:
                    return await self.connection.request(method, params)
                except ResponseError as error:
                    if error.code not in _RETRY_CODES:
                        raise
                await anyio.sleep(_PAUSE)
            return await self.connection.request(method, params)

    async def request_for(self, document: Document, method: str, **params: object) -> object:
        return await self.request(method, {"textDocument": {"uri": document.uri}, **params})

    async def query_until_stable(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to `ask` from a server that has indexed the project, or has had enough time to.

        Few servers report when indexing is done. A new server is queried until the answer repeats and no work
        is in progress; `is_indexed` records that.
        """
        found = await ask()
        same = 0
        with anyio.move_on_after(self.limits.indexing):
            while not self.is_indexed:
                await anyio.sleep(self.limits.poll_interval)
                again = await ask()
                same = same + 1 if again == found else 0
                found = again
                is_young = monotonic() - self._began < self.limits.min_age
                self.is_indexed = same >= _STABLE_ANSWERS and not is_young and not self.is_busy
        return found

    async def diagnostics(
        self, document: Document, patience: float | None = None
    ) -> PublishedDiagnostics | None:
        """Return the diagnostics that the server publishes, or sends if it wants to be asked.

        If it publishes none in time, or within `patience` seconds, return the last ones, which may be older
        than the document; None for none.
        """
        # A server may want to be asked only after its start.
        if not self.supports(_PULL):
            with anyio.move_on_after(patience):
                await self._until_published(document)
        if self.supports(_PULL):
            report = await self.request_for(document, _PULL)
            items = report.get("items") if is_object(report) else None
            return PublishedDiagnostics(items=items, version=document.version, received_at=monotonic())
        return self._published.get(document.uri)

    async def _until_published(self, document: Document) -> None:
        def is_known() -> bool:
            found = self._published.get(document.uri)
            return found is not None and found.is_of(document)

        def is_current() -> bool:
            return is_known() and self._published[document.uri].received_at >= self._changed

        await self._until(lambda: is_known() or self.supports(_PULL), self.limits.diagnostics)
        if self.supports(_PULL) or not is_known():
            if self.connection.close_reason:
                raise ConnectionClosed(self.connection.close_reason)
            return
        # The other change may not affect this document, and then nothing more is published.
        await self._until(is_current, self.limits.recheck)
        with anyio.move_on_after(self.limits.diagnostics):
            quiet = self.limits.quiet_period
            while (left := self._published[document.uri].received_at + quiet - monotonic()) > 0:
                with anyio.move_on_after(left):
                    await self._activity.wait()

    async def _send_changes(self, files: Workspace) -> None:
        """Send changed files to the server and open them."""
        is_small = len(self._watch) <= _FEW_FILES
        news = self._watch.poll() if is_small else await to_thread.run_sync(self._watch.poll)
        if not news:
            return
        changes = [{"uri": to_uri(path), "type": kind} for path, kind in news]
        self.connection.notify("workspace/didChangeWatchedFiles", {"changes": changes})
        how = self._server_capabilities.get("textDocumentSync")
        if is_object(how) and how.get("save") not in (None, False):
            self.documents.save_all()
        self._changed = monotonic()
        # Servers may read files late, but know open documents at once.
        ids = self._language.ids
        there = (path for path, kind in news if kind != DELETED and ending(path) in ids)
        for path in islice(there, MOST_OPEN - 1):
            with suppress(ToolError):
                await self.documents.open(CanonicalPath(path), ids[ending(path)], files)

    async def _until(self, holds: Callable[[], bool], seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while not holds() and not self.connection.close_reason:
                await self._activity.wait()

    def _answer(self, method: str, params: object) -> dict[str, object]:
        if method == "client/registerCapability":
            self._registered.update(registered_methods(params)[: _MOST_REMEMBERED - len(self._registered)])
            self._wake_waiters()
        if method == "workspace/applyEdit" and self._requested_edits is not None and is_object(params):
            self._requested_edits.append(params.get("edit"))
        return answer_request(self._folder, method, params)

    def _on_notification(self, method: str, params: object) -> None:
        if not is_object(params):
            return
        if method == "textDocument/publishDiagnostics":
            self._publish(params)
        elif method == "$/progress":
            self._track_progress(params)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        self._activity.set()
        self._activity = asyncio.Event()

    def _publish(self, params: dict[str, object]) -> None:
        uri, version = params.get("uri"), params.get("version")
        if not isinstance(uri, str) or not is_list(params.get("diagnostics")):
            return
        self._published.pop(uri, None)
        while len(self._published) >= _MOST_REMEMBERED:
            del self._published[next(iter(self._published))]
        self._published[uri] = PublishedDiagnostics(
            items=params["diagnostics"],
            version=version if isinstance(version, int) else None,
            received_at=monotonic(),
        )

    def _track_progress(self, params: dict[str, object]) -> None:
        value = params.get("value")
        kind = value.get("kind") if is_object(value) else None
        token = str(params.get("token"))
        if kind == "end":
            self._progress_tokens.pop(token, None)
        elif token in self._progress_tokens or len(self._progress_tokens) < _MOST_REMEMBERED:
            self._progress_tokens[token] = monotonic()
