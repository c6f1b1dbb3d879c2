"""Collects the most recently changed of the files that ripgrep lists."""

import os
from collections.abc import Iterator

from mcp_toolserver.runtime.search.filter import Filter

_CUT_AT = 8
"""Candidates before the older ones are dropped, in multiples of the limit."""


class NewestFiles:
    """The newest of the wanted files that ripgrep lists, and their total number.

    The server looks up the times while ripgrep still walks with all its threads. ripgrep could sort by time
    itself, but then it walks with one thread, which is slower unless thousands of files match.
    """

    def __init__(self, folder: int, wanted: Filter, limit: int) -> None:
        self._folder = folder
        self._wanted = wanted
        self._limit = limit
        self._rest = b""
        self._candidates: list[tuple[int, str]] = []
        self.total = 0
        self.has_output = False
        """Whether ripgrep listed any file, wanted or not."""

    def add(self, data: bytes) -> bool:
        """Parse NUL-terminated names; always return False, because all files are counted."""
        whole, end, self._rest = (self._rest + data).rpartition(b"\0")
        if end:
            self.has_output = True
            found = list(self._dated(self._chosen(whole)))
            self.total += len(found)
            self._candidates += found
        if len(self._candidates) > _CUT_AT * self._limit:
            self._cut()
        return False

    def finish(self) -> None:
        """Drop all but the newest, and sort them."""
        self._cut()
        self._candidates.sort()
        del self._candidates[self._limit :]

    def newest(self) -> list[str]:
        """Newest first; of one age, by path."""
        return [name for _, name in self._candidates]

    def _chosen(self, names: bytes) -> Iterator[tuple[bytes, str]]:
        """Wanted names, also as bytes, which saves encoding them for the system call."""
        whole = ("\0" + names.decode("utf-8", "surrogateescape")).replace("\0./", "\0")
        pairs = zip(names.split(b"\0"), whole[1:].split("\0"), strict=True)
        # Thousands of names are checked as one string where that is enough.
        if self._wanted.is_open and (self._wanted.dots or ("\0." not in whole and "/." not in whole)):
            return pairs
        return (pair for pair in pairs if self._wanted(pair[1]))

    def _dated(self, names: Iterator[tuple[bytes, str]]) -> Iterator[tuple[int, str]]:
        for path, name in names:
            try:
                yield -os.lstat(path, dir_fd=self._folder).st_mtime_ns, name
            except OSError:
                continue

    def _cut(self) -> None:
        if len(self._candidates) > self._limit:
            oldest = sorted(age for age, _ in self._candidates)[self._limit - 1]
            self._candidates = [candidate for candidate in self._candidates if candidate[0] <= oldest]
