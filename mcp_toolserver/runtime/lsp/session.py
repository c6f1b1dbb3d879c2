"""One running language server and what it has told so far."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import TypeVar

import anyio
from anyio import to_thread

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.lsp.documents import MOST_OPEN, Document, Documents, Open, Pages
from mcp_toolserver.runtime.lsp.manners import answered, encoding, introduction, registered
from mcp_toolserver.runtime.lsp.talk import Ended, Partner, Refused, Talk
from mcp_toolserver.runtime.lsp.uris import to_uri
from mcp_toolserver.runtime.lsp.watch import DELETED, Kind, Wanted, Watch
from mcp_toolserver.runtime.sandbox.wire import is_list, is_object
from mcp_toolserver.text.code_languages import Language, ending
from mcp_toolserver.text.code_positions import Encoding

T = TypeVar("T")

_FEW_FILES = 1_000
"""Of a project: to look at them all takes less than to have a thread do it, or not much more."""

_MOST_REMEMBERED = 1_000
"""Files whose diagnostics are kept, and pieces of work that are followed."""

_CHANGED_MEANWHILE = (-32801, -32802)
"""The server asks to be asked again: the content was modified, or it cancelled the work itself."""

_ASKED_AGAIN = 4
_PAUSE = 0.1

_STEADY = 2
"""Answers in a row that repeat the one before."""

PULL = "textDocument/diagnostic"
PROVIDERS = {
    "textDocument/definition": "definitionProvider",
    "textDocument/implementation": "implementationProvider",
    "textDocument/references": "referencesProvider",
    "textDocument/hover": "hoverProvider",
    "textDocument/documentSymbol": "documentSymbolProvider",
    PULL: "diagnosticProvider",
    "textDocument/prepareCallHierarchy": "callHierarchyProvider",
    "workspace/symbol": "workspaceSymbolProvider",
}
"""What a server says of itself to offer a method."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Published:
    """What a server has told to be wrong in a file."""

    items: object
    version: int | None
    at: float

    def is_of(self, document: Document) -> bool:
        """Whether it is about the document as it is now."""
        return self.at >= document.told if self.version is None else self.version == document.version


@dataclass(frozen=True, kw_only=True)
class SessionLimits:
    """How long one server is waited for, in seconds."""

    start: float = 20.0
    answer: float = 25.0
    reading: float = 10.0
    """For a new server to read the project; then what it knows has to do."""
    youth: float = 2.0
    """A server that is no older may not even have begun to read."""
    steady: float = 0.5
    """When a new server says the same again after this time, twice, it is believed."""
    silence: float = 5.0
    """Work that was begun and not heard of for so long is not waited for."""
    diagnostics: float = 10.0
    """For a server to tell what is wrong in a document by itself ..."""
    recheck: float = 1.0
    """... and to tell it again after something else has changed."""
    afterthought: float = 0.25
    """A server that tells of problems without being asked may go on to tell of more."""


@dataclass(kw_only=True)
class Session:
    """A server that has been introduced. `name` is its program's."""

    name: str
    folder: str
    language: Language
    limits: SessionLimits
    talk: Talk = field(init=False)
    documents: Documents = field(init=False)
    pages: Pages = field(default_factory=Pages)
    """What its answers have shown."""
    encoding: Encoding = "utf-16"
    published: dict[str, Published] = field(default_factory=dict[str, Published])
    """By address, what came last."""
    _offers: Mapping[str, object] = field(default_factory=dict[str, object])
    _registered: set[str] = field(default_factory=set[str])
    _working: dict[str, float] = field(default_factory=dict[str, float])
    """By token, when it was last heard of."""
    is_settled: bool = False
    """It was seen to have read the project."""
    _changed: float = 0.0
    _began: float = field(default_factory=monotonic)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _news_told: int = 0
    """How often it was told of changes."""
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    @cached_property
    def _watch(self) -> Watch:
        endings = tuple(f".{end}" for end in self.language.ids)
        return Watch(self.folder, Wanted(endings=endings, names=self.language.markers))

    async def begin(self, partner: Partner) -> None:
        """Introduce ourselves to the server at the other end.

        Raises:
            Ended, Refused: it does not want to serve.
            TimeoutError: it says nothing.
        """
        self.talk = Talk(partner, self._answer, self._hear, self._announce)
        self.documents = Documents(self.talk.notify)
        await to_thread.run_sync(self._watch.look)
        with anyio.fail_after(self.limits.start):
            result = await self.talk.request("initialize", introduction(self.folder))
        offers = result.get("capabilities") if is_object(result) else None
        self._offers = offers if is_object(offers) else {}
        self.encoding = encoding(self._offers.get("positionEncoding"))
        self.talk.notify("initialized", {})

    def offers(self, method: str) -> bool:
        """Whether the server answers `method`."""
        return method in self._registered or self._offers.get(PROVIDERS[method]) not in (None, False)

    @property
    def is_busy(self) -> bool:
        """Whether it says that it is at work."""
        since = monotonic() - self.limits.silence
        return any(heard > since for heard in self._working.values())

    async def document(self, path: CanonicalPath, opening: Open) -> Document:
        """The document of an absolute path, which the server has open now; it and all that are open are as
        their files.

        Raises:
            Ended: the server is gone.
            NotFound, Denied, InvalidInput: see `documents.read`.
        """
        async with self._lock:
            if await self.documents.refresh(opening):
                self._has_news()
                await self._look(opening)
            return await self.documents.open(path, self._identifier(path), opening)

    async def know(self, opening: Open) -> None:
        """Tell the server which files have changed on disk.

        Raises:
            Ended: the server is gone.
        """
        async with self._lock:
            await self._look(opening)

    async def current(self, ask: Callable[[], Awaitable[T]], opening: Open) -> T:
        """The answer to `ask` of a server that knows which files have changed on disk.

        They are looked at while it answers. When any has changed, it is told and asked once more.
        """
        before = self._news_told
        asked = asyncio.ensure_future(ask())
        try:
            # It sends the question first.
            await asyncio.sleep(0)
            await self.know(opening)
            if before == self._news_told:
                return await asked
            # Some servers fail at the next question when this one is cancelled.
            await asyncio.wait((asked,))
        finally:
            await _dropped(asked)
        return await ask()

    async def request(self, method: str, params: object) -> object:
        """Ask.

        Raises:
            Ended, Refused: there is no answer.
            TimeoutError: none came in time.
        """
        with anyio.fail_after(self.limits.answer):
            for _ in range(_ASKED_AGAIN):
                try:
                    return await self.talk.request(method, params)
                except Refused as error:
                    if error.code not in _CHANGED_MEANWHILE:
                        raise
                await anyio.sleep(_PAUSE)
            return await self.talk.request(method, params)

    async def settled(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer to `ask` of a server that has read the project, or has had time enough to.

        Few say when they have. So one that was just started is asked until it says the same and has no more
        work to do. `is_settled` then says whether it came to that.
        """
        found = await ask()
        same = 0
        with anyio.move_on_after(self.limits.reading):
            while not self.is_settled:
                await anyio.sleep(self.limits.steady)
                again = await ask()
                same = same + 1 if again == found else 0
                found = again
                is_young = monotonic() - self._began < self.limits.youth
                self.is_settled = same >= _STEADY and not is_young and not self.is_busy
        return found

    async def problems(self, document: Document) -> object | None:
        """What the server tells of a document by itself; None when it tells nothing in time, or wants
        to be asked.

        Raises:
            Ended: the server is gone.
        """

        def told() -> bool:
            found = self.published.get(document.uri)
            return found is not None and found.is_of(document)

        def told_since() -> bool:
            return told() and self.published[document.uri].at >= self._changed

        await self._until(lambda: told() or self.offers(PULL), self.limits.diagnostics)
        if self.offers(PULL) or not told():
            if self.talk.why_over:
                raise Ended(self.talk.why_over)
            return None
        # What else has changed need not concern this document, and then nothing more comes.
        await self._until(told_since, self.limits.recheck)
        with anyio.move_on_after(self.limits.diagnostics):
            while await self._has_more(self.published[document.uri]):
                continue
        return self.published[document.uri].items

    async def _has_more(self, last: Published) -> bool:
        """Whether the server goes on soon after its last word on a document."""
        left = last.at + self.limits.afterthought - monotonic()
        return await self._until(lambda: last not in self.published.values(), left)

    async def _look(self, opening: Open) -> None:
        """Tell the server which files have changed on disk, and open them."""
        is_small = len(self._watch) <= _FEW_FILES
        news = self._watch.look() if is_small else await to_thread.run_sync(self._watch.look)
        if not news:
            return
        told = [{"uri": to_uri(path), "type": kind} for path, kind in news]
        self.talk.notify("workspace/didChangeWatchedFiles", {"changes": told})
        if self._hears_of_saving():
            self.documents.save_all()
        self._has_news()
        await self._open_changed(news, opening)

    def _has_news(self) -> None:
        self._changed = monotonic()
        self._news_told += 1

    async def _open_changed(self, changed: Sequence[tuple[str, Kind]], opening: Open) -> None:
        """Open what has changed: a server may look at files in its own time, but knows documents at once."""
        there = (path for path, kind in changed if kind != DELETED and ending(path) in self.language.ids)
        for path in islice(there, MOST_OPEN - 1):
            with suppress(ToolError):
                await self.documents.open(CanonicalPath(path), self._identifier(path), opening)

    def _identifier(self, path: str) -> str:
        return self.language.ids[ending(path)]

    def _hears_of_saving(self) -> bool:
        how = self._offers.get("textDocumentSync")
        return is_object(how) and how.get("save") not in (None, False)

    async def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            while not holds() and not self.talk.why_over:
                await self._news.wait()
        return holds()

    def _answer(self, method: str, params: object) -> object:
        if method == "client/registerCapability":
            self._registered.update(one for one in registered(params) if one in PROVIDERS)
            self._announce()
        return answered(self.folder, method, params)

    def _hear(self, method: str, params: object) -> None:
        if not is_object(params):
            return
        if method == "textDocument/publishDiagnostics":
            self._publish(params)
        elif method == "$/progress":
            self._follow(params)
        self._announce()

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _publish(self, params: dict[str, object]) -> None:
        uri, version = params.get("uri"), params.get("version")
        if not isinstance(uri, str) or not is_list(params.get("diagnostics")):
            return
        self.published.pop(uri, None)
        while len(self.published) >= _MOST_REMEMBERED:
            del self.published[next(iter(self.published))]
        self.published[uri] = Published(
            items=params["diagnostics"],
            version=version if isinstance(version, int) else None,
            at=monotonic(),
        )

    def _follow(self, params: dict[str, object]) -> None:
        """What the server is busy with, from its own words."""
        value = params.get("value")
        kind = value.get("kind") if is_object(value) else None
        token = str(params.get("token"))
        if kind == "end":
            self._working.pop(token, None)
        elif token in self._working or len(self._working) < _MOST_REMEMBERED:
            self._working[token] = monotonic()


async def _dropped(asked: asyncio.Future[T]) -> None:
    """Have nothing left of a task whose outcome nobody waits for any more."""
    if not asked.done():
        asked.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((asked,))
    if not asked.cancelled():
        # An exception that nobody has seen would be logged.
        asked.exception()
