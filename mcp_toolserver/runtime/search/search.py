"""Searches inside the roots: the broker starts ripgrep in a folder that is already open.

ripgrep gets no path but the folder that it is already in, so nobody can redirect it. A folder that is
replaced by a link during the search could still lead it out. Landlock prevents that; where there is no
Landlock, or where rules hide a part of the folder, the server looks every found line up again in the
workspace.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial

from anyio import sleep, to_thread

from mcp_toolserver.capabilities.search import FileQuery, FoundFiles, FoundLines, LineQuery
from mcp_toolserver.errors import InvalidInput, SandboxUnavailable, TimedOut, Unavailable
from mcp_toolserver.runtime.files.path_resolver import inside, showable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.processes.child import Exit
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.search import ripgrep_args
from mcp_toolserver.runtime.search.executable import start
from mcp_toolserver.runtime.search.results import NewestFiles, Results, checked, format_result
from mcp_toolserver.runtime.search.target import Filter, SearchTarget, Wanted, include, open_target

DEADLINE = 50.0
"""Seconds. Many clients give up after 60."""

MAX_ERRORS = 20

BATCH = 64 << 10
"""Bytes of output that are parsed at once, while the program continues."""

DRIBBLE = 8 << 10
PAUSE = 0.002
"""Seconds to wait for more output after less than `DRIBBLE` bytes: ripgrep writes file by file, and waking up
for each is expensive."""


async def _batches(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Larger pieces: ripgrep writes file by file, and a worker thread for each is too expensive."""
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
    """Searches inside the roots; links are not followed."""

    launcher: Programs
    workspace: Workspace
    program: str
    """The absolute path of ripgrep."""
    may_hide: bool = True
    """Whether the operator hides any files; if not, found files need no check."""
    landlocked: bool = False
    """Whether Landlock restricts ripgrep to the searched folder."""
    deadline: float = DEADLINE

    async def files(self, query: FileQuery) -> FoundFiles:
        """Raises: InvalidInput: a pattern that leaves the folder or explodes."""
        including = include(query.pattern)
        query = replace(query, hidden=query.hidden or including.names_hidden)
        async with open_target(self.workspace, query.path, ignored=query.ignored) as place:
            if place.file is not None:
                raise InvalidInput(f"'{query.path}' is a file. Give a folder as `path`.")
            matches = None if including.names_suffice else including.matches
            wanted = self._wanted(matches, place, query.hidden)
            listing = NewestFiles(place.folder, wanted, query.offset + query.limit)
            arguments = ripgrep_args.list_files(query, names=including.names, rules=place.has_rules)
            errors = await self._run(arguments, place, listing, query)
        names = (inside(place.path, name) for name in listing.newest()[query.offset :])
        return FoundFiles(files=tuple(map(showable, names)), total=listing.total, errors=errors)

    async def lines(self, query: LineQuery) -> FoundLines:
        """Raises: InvalidInput: a pattern that does not compile; the text says where."""
        if len(query.pattern) > ripgrep_args.MAX_PATTERN:
            raise InvalidInput(
                f"The pattern is longer than {ripgrep_args.MAX_PATTERN:,} characters. Search for less."
            )
        including = include(query.glob)
        query = replace(query, hidden=query.hidden or including.names_hidden)
        async with open_target(self.workspace, query.path, ignored=query.ignored) as place:
            # The program takes a type or names, not both.
            matches = None if including.names_suffice and query.type is None else including.matches
            is_wanted = self._wanted(matches, place, query.hidden)
            ask = partial(
                ripgrep_args.find_lines,
                query,
                names=including.names,
                rules=place.has_rules,
                single=bool(place.file),
            )
            found = Results(query, is_wanted, ordered=False)
            errors = await self._run(ask(ordered=False), place, found, query)
            if found.is_full:
                found = Results(query, is_wanted, ordered=True)
                errors = await self._run(ask(ordered=True), place, found, query)
            # A single file was searched through its own descriptor.
            recheck = (self.may_hide or not self.landlocked) and place.file is None
            check = partial(checked, self.workspace, recheck=recheck)
            return await self.workspace.read(
                place.path, partial(format_result, check, place, query, found, errors)
            )

    async def _run(
        self,
        arguments: list[str],
        place: SearchTarget,
        sink: Results | NewestFiles,
        query: FileQuery | LineQuery,
    ) -> tuple[str, ...]:
        """Run ripgrep; return the paths that could not be read, with reasons."""
        place.rewind()
        argv = (*start(self.program), *arguments)
        opening = self.launcher.open(argv, cwd=place.folder, stdin=place.stdin, timeout=self.deadline)
        async with opening as running:
            async for batch in _batches(running.chunks()):
                if await to_thread.run_sync(sink.add, batch):
                    return ()
            exit_ = await running.wait()
            complaints = running.stderr()
        await to_thread.run_sync(sink.finish)
        errors = ripgrep_args.file_errors(complaints)
        self._refuse_failure(exit_, complaints, query, searched=sink.has_output or bool(errors))
        return tuple(
            f"{showable(place.file or inside(place.path, name))}: {reason}"
            for name, reason in errors[:MAX_ERRORS]
            if not self._is_hidden(place, name)
        )

    def _refuse_failure(
        self, exit_: Exit, complaints: bytes, query: FileQuery | LineQuery, *, searched: bool
    ) -> None:
        narrower = "Search a smaller folder, or restrict it with `glob` or `type`."
        match exit_.reason:
            case "timed out":
                raise TimedOut(f"The search took longer than {self.deadline:g} s. {narrower}")
            case "over a limit":
                raise Unavailable(f"The search used {exit_.detail}. {narrower}")
            case "sandbox_failed":
                raise SandboxUnavailable(exit_.detail)
            case "exited":
                pass
            case _:
                raise Unavailable("ripgrep was stopped. Try again.")
        if exit_.status == ripgrep_args.FAILED:
            if not searched and b"No files were searched" not in complaints:
                raise ripgrep_args.refusal(complaints, query)
        elif exit_.status not in (0, 1):
            raise Unavailable("ripgrep failed. Try a simpler search, or a smaller folder.")

    def _wanted(self, matches: Wanted | None, place: SearchTarget, hidden: bool) -> Filter:
        if place.file is not None:
            return Filter(dots=True)
        is_hidden = partial(self._is_hidden, place) if self.may_hide else None
        return Filter(matches=matches, dots=hidden, is_hidden=is_hidden)

    def _is_hidden(self, place: SearchTarget, name: str) -> bool:
        return self.workspace.is_hidden(inside(place.path, name))
