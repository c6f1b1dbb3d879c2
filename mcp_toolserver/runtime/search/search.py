"""Searching inside the roots: ripgrep, or its stand-in, started in an opened folder through the broker.

The program is told nothing but a folder that it is already in, so there is no path for anybody to redirect.
It could still be led out by a folder that is swapped for a link while it walks. Where Landlock holds it to
that folder, it cannot; elsewhere, and where rules hide a part of it, what it found is looked up again beneath
the root before it is shown, each line at its place.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from anyio import sleep, to_thread

from mcp_toolserver.capabilities.search import FileQuery, FoundFiles, FoundLines, LineQuery
from mcp_toolserver.errors import InvalidInput, SandboxUnavailable, TimedOut, Unavailable
from mcp_toolserver.runtime import ripgrep
from mcp_toolserver.runtime.launch import Exit, Launcher
from mcp_toolserver.runtime.search_answer import answer
from mcp_toolserver.runtime.search_filter import Filter, Wanted, include
from mcp_toolserver.runtime.search_listing import Listing
from mcp_toolserver.runtime.search_names import inside, showable
from mcp_toolserver.runtime.search_place import Place, Searched, opened
from mcp_toolserver.runtime.search_programs import start
from mcp_toolserver.runtime.search_results import Collection

DEADLINE = 50.0
"""Seconds. Many clients give up after 60."""

MAX_ERRORS = 20

BATCH = 64 << 10
"""Bytes of output that are looked at in one go, while the program goes on."""

DRIBBLE = 8 << 10
PAUSE = 0.002
"""Seconds in which the pipe may fill when it gave less than `DRIBBLE` bytes: ripgrep writes file by file, and
to wake up for each is dear."""


class Sink(Protocol):
    """Takes in what a program prints."""

    @property
    def has_output(self) -> bool: ...
    def add(self, data: bytes) -> bool:
        """Whether that is enough."""
        ...

    def finish(self) -> None: ...


async def _batches(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Larger pieces: ripgrep writes file by file, and a worker thread is too dear for each."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size >= BATCH:
            yield b"".join(pieces)
            pieces, size = [], 0
        elif len(chunk) < DRIBBLE:
            await sleep(PAUSE)
    yield b"".join(pieces)


@dataclass(frozen=True, kw_only=True)
class Ripgrep:
    """Implements `capabilities.Search`."""

    launcher: Launcher
    workspace: Searched
    program: str | None
    """The absolute path of ripgrep; without it the stand-in searches."""
    hiding: bool = True
    """Whether the operator hides anything: if not, nobody has to be asked about every single file."""
    held: bool = False
    """Whether the kernel lets the program read the searched folder only."""
    deadline: float = DEADLINE

    async def files(self, query: FileQuery) -> FoundFiles:
        """See `Search.files`."""
        including = include(query.pattern)
        query = replace(query, hidden=query.hidden or including.names_hidden)
        with opened(self.workspace, query.path, ignored=query.ignored) as place:
            if place.file is not None:
                raise InvalidInput(f"'{query.path}' is a file. Give a folder as `path`.")
            matches = None if including.names_suffice else including.matches
            listing = Listing(place.folder, self._wanted(matches, place, query.hidden), query.limit)
            arguments = ripgrep.list_files(query, names=including.names, rules=place.has_rules)
            errors = await self._run(arguments, place, listing, query)
        names = (inside(place.path, name) for name in listing.newest())
        return FoundFiles(files=tuple(map(showable, names)), total=listing.total, errors=errors)

    async def lines(self, query: LineQuery) -> FoundLines:
        """See `Search.lines`."""
        if len(query.pattern) > ripgrep.MAX_PATTERN:
            raise InvalidInput(
                f"The pattern is longer than {ripgrep.MAX_PATTERN:,} characters. Search for less."
            )
        including = include(query.glob)
        query = replace(query, hidden=query.hidden or including.names_hidden)
        with opened(self.workspace, query.path, ignored=query.ignored) as place:
            # The program takes a type or names, not both.
            matches = None if including.names_suffice and query.type is None else including.matches
            is_wanted = self._wanted(matches, place, query.hidden)
            ask = partial(
                ripgrep.find_lines,
                query,
                names=including.names,
                rules=place.has_rules,
                single=bool(place.file),
            )
            found = Collection(query, is_wanted, ordered=False)
            errors = await self._run(ask(ordered=False), place, found, query)
            if found.is_full:
                found = Collection(query, is_wanted, ordered=True)
                errors = await self._run(ask(ordered=True), place, found, query)
            doubted = None if self.held and not self.hiding else self.workspace
            return await to_thread.run_sync(answer, doubted, place, query, found, errors)

    async def _run(
        self, arguments: list[str], place: Place, sink: Sink, query: FileQuery | LineQuery
    ) -> tuple[str, ...]:
        """Search, and give back what could not be read."""
        place.rewind()
        argv = (*start(self.program), *arguments)
        opening = self.launcher.open(argv, cwd=place.folder, stdin=place.stdin, timeout=self.deadline)
        async with opening as running:
            async for batch in _batches(running.chunks()):
                if await to_thread.run_sync(sink.add, batch):
                    return ()
            exit_ = await running.wait()
            complaints = running.complaints()
        await to_thread.run_sync(sink.finish)
        errors = ripgrep.file_errors(complaints)
        self._refuse_failure(exit_, complaints, query, searched=sink.has_output or bool(errors))
        return tuple(
            f"{showable(place.file or inside(place.path, name))}: {reason}"
            for name, reason in errors[:MAX_ERRORS]
            if not self._is_hidden(place, name)
        )

    def _refuse_failure(
        self, exit_: Exit, complaints: bytes, query: FileQuery | LineQuery, *, searched: bool
    ) -> None:
        if exit_.reason == "timed out":
            raise TimedOut(
                f"The search took longer than {self.deadline:g} s. Search a smaller folder, or restrict it "
                "with `glob` or `type`."
            )
        if exit_.reason == "over a limit":
            raise Unavailable(
                f"The search used {exit_.detail}. Search a smaller folder, or restrict it with `glob` or "
                "`type`."
            )
        if exit_.reason == "unwalled":
            raise SandboxUnavailable(exit_.detail)
        if exit_.reason != "exited":
            raise Unavailable("The search program was stopped. Try again.")
        if exit_.status == ripgrep.FAILED and not searched and not ripgrep.found_no_file(complaints):
            raise ripgrep.refusal(complaints, query)
        if exit_.status not in (0, 1, ripgrep.FAILED):
            raise Unavailable("The search program failed. Try a simpler search, or a smaller folder.")

    def _wanted(self, matches: Wanted | None, place: Place, hidden: bool) -> Filter:
        if place.file is not None:
            return Filter(dots=True)
        is_hidden = partial(self._is_hidden, place) if self.hiding else None
        return Filter(matches=matches, dots=hidden, is_hidden=is_hidden)

    def _is_hidden(self, place: Place, name: str) -> bool:
        return self.workspace.is_hidden(inside(place.path, name))
