"""The existing paths that the operator's patterns hide from commands, found when a command starts.

A pattern that starts from a named folder is looked for there and nowhere else. All others take a walk through
every root; a folder whose entries have not changed since the last walk is not read again. Nothing is left out
silently: where there is too much to search or to hide, no command runs.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mcp_toolserver.runtime.files.volume import comparison_within, escapes_mounts
from mcp_toolserver.runtime.sandbox.protected.settled_change import UNSETTLED, settled_change
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable
from mcp_toolserver.text.file_names import NameComparison, lies_in, path_tests, volume_path
from mcp_toolserver.text.search.glob import starts

MOST_HIDDEN = 256
"""Each costs a mount, and one more for every folder between it and its root."""

MOST_FOLDERS = 200_000

_T = TypeVar("_T")


class HiddenPaths:
    """Finds what `patterns` hide: globs as in the operator's rules, relative to a root or absolute.

    With `for_mounts` false, links are found too, and as much as there is.

    Raises:
        ValueError: one is no pattern, or may match anywhere on this machine.
    """

    def __init__(self, patterns: Sequence[str] = (), *, for_mounts: bool = True) -> None:
        self._for_mounts = for_mounts
        self._matchers = tuple(path_tests(pattern)[0] for pattern in patterns)
        self._starts = {start for pattern in patterns for start in starts(pattern)}
        if "/" in self._starts:
            raise ValueError("a pattern starts from the top of the file system")
        self._known: dict[str, _Listing] = {}

    def find(self, roots: Sequence[str], seen: Sequence[str]) -> dict[str, bool]:
        """The hidden paths that exist, without links, each with whether it is a folder.

        Relative patterns start from each of `roots`, and are looked for only in `seen`: folders that are
        roots or lie in one. Absolute patterns are looked for wherever they start.

        Raises:
            Unprotectable: too much is hidden or has to be searched, or a folder cannot be searched.
        """
        if not self._matchers:
            return {}
        search = _Search(
            matchers=self._matchers, roots=tuple(roots), known=self._known, for_mounts=self._for_mounts
        )
        for folder in seen:
            search.look_above(folder)
        places = {place for start in self._starts for place in _places(start, roots, seen)}
        for place in sorted(places, key=len):
            search.walk(place)
        self._known = search.listed
        return search.found


def _places(start: str, roots: Sequence[str], seen: Sequence[str]) -> list[str]:
    """The absolute paths to search for a pattern with this start."""
    if start.startswith("/"):
        return [start]
    found: list[str] = []
    for folder in seen:
        root = next(root for root in roots if lies_in(root, folder))
        place = os.path.join(root, start) if start else root
        if lies_in(folder, place):
            found.append(place)
        elif lies_in(place, folder):
            found.append(folder)
    return found


def _of_folder(path: str, ask: Callable[[int], _T], otherwise: _T) -> _T:
    """What `ask` says of the open folder `path`, or `otherwise` if it cannot be opened."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return otherwise
    try:
        return ask(folder)
    finally:
        os.close(folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Listing:
    """What one folder held."""

    inode: int = 0
    changed: int = UNSETTLED
    """See `settled_change`."""
    folders: tuple[str, ...] = ()
    hidden: tuple[tuple[str, bool], ...] = ()
    """Names, and whether each is a folder."""
    readable: bool = True


@dataclass(kw_only=True)
class _Search:
    """One search. A path has two spellings: as the pattern has it, and `place`, where links lead."""

    matchers: Sequence[Callable[[str], bool]]
    roots: tuple[str, ...]
    known: dict[str, _Listing]
    for_mounts: bool
    listed: dict[str, _Listing] = field(default_factory=dict[str, _Listing])
    found: dict[str, bool] = field(default_factory=dict[str, bool])
    searched: list[str] = field(default_factory=list[str])
    comparisons: dict[str, NameComparison] = field(default_factory=dict[str, NameComparison])
    """By root, or start of a search outside the roots."""

    def look_above(self, folder: str) -> None:
        """Hide `folder` whole, if it is hidden or lies in something hidden."""
        root = next(root for root in self.roots if lies_in(root, folder))
        above = folder
        while not self._is_hidden(above):
            if above == root:
                return
            above = os.path.dirname(above)
        self._hide(folder, is_folder=True)

    def walk(self, start: str) -> None:
        """Find all that is hidden at `start` or below it."""
        if any(lies_in(searched, start) for searched in self.searched):
            return
        self.searched.append(start)
        place = os.path.realpath(start)
        # Within a root a path that leads through a link has another name, by which rules match it.
        if place != start and any(lies_in(root, start) for root in self.roots):
            return
        if not os.path.lexists(place):
            return
        if self._is_hidden(start):
            self._hide(place, is_folder=os.path.isdir(place))
            return
        waiting = [""] if os.path.isdir(place) else []
        while waiting:
            inner = waiting.pop()
            spelt, here = (f"{top.rstrip('/')}{inner}" or "/" for top in (start, place))
            listing = self._listing(spelt, here)
            if not listing.readable:
                # What lies in it may be reached by those who know its name.
                self._hide(here, is_folder=True)
            for name, is_folder in listing.hidden:
                self._hide(os.path.join(here, name), is_folder=is_folder)
            waiting.extend(f"{inner}/{folder}" for folder in listing.folders)

    def _hide(self, place: str, *, is_folder: bool) -> None:
        if self.for_mounts and not is_folder and _of_folder(os.path.dirname(place), escapes_mounts, True):
            raise Unprotectable(
                f"The operator's deny rules on reading hide {place}, which lies on a volume where commands "
                "can reach it by other spellings of its name. Put it in a folder and hide that (`folder/**`)."
            )
        self.found[place] = is_folder
        if self.for_mounts and len(self.found) > MOST_HIDDEN:
            raise Unprotectable(
                f"The operator's deny rules on reading hide more than {MOST_HIDDEN} files and folders, too "
                f"many to keep from commands; {place} is one. Hide a folder as a whole (`folder/**`), or "
                "ask the user to remove files that match outside of this server; commands run again at once."
            )

    def _listing(self, spelt: str, place: str) -> _Listing:
        known = self.known.get(spelt)
        try:
            if known is not None and known.changed != UNSETTLED:
                status = os.stat(place, follow_symlinks=False)
                if (status.st_ino, status.st_ctime_ns) == (known.inode, known.changed):
                    return self._remember(spelt, known)
            return self._remember(spelt, self._read(spelt, place))
        except (FileNotFoundError, NotADirectoryError):
            return _Listing()
        except PermissionError:
            return _Listing(readable=False)
        except OSError as error:
            raise Unprotectable(
                f"{place} cannot be searched for what the operator's deny rules hide: {error.strerror}. Move "
                "or remove it."
            ) from None

    def _remember(self, spelt: str, listing: _Listing) -> _Listing:
        self.listed[spelt] = listing
        if len(self.listed) > MOST_FOLDERS:
            raise Unprotectable(
                f"There are more than {MOST_FOLDERS:,} folders to search for what the operator's deny rules "
                "hide. Start those rules from a folder (`folder/**`), or name a smaller --root."
            )
        return listing

    def _read(self, spelt: str, place: str) -> _Listing:
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(folder)
            changed = settled_change(status)
            folders: list[str] = []
            hidden: list[tuple[str, bool]] = []
            with os.scandir(folder) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    # A link is not hidden: what it leads to is, under its own name.
                    is_found = not (self.for_mounts and entry.is_symlink())
                    if is_found and self._is_hidden(os.path.join(spelt, entry.name)):
                        hidden.append((entry.name, is_folder))
                    elif is_folder:
                        folders.append(entry.name)
        finally:
            os.close(folder)
        return _Listing(inode=status.st_ino, changed=changed, folders=tuple(folders), hidden=tuple(hidden))

    def _is_hidden(self, absolute: str) -> bool:
        root = next((root for root in self.roots if lies_in(root, absolute)), None)
        relative = () if root is None else (absolute[len(root) :].strip("/") or ".",)
        comparison = self._comparison(root or self.searched[-1])
        spellings = [volume_path(one, comparison) for one in (*relative, absolute)]
        return any(matches(spelling) for matches in self.matchers for spelling in spellings)

    def _comparison(self, place: str) -> NameComparison:
        """How names are compared in a root or at the start of a search."""
        if place not in self.comparisons:
            top = place if os.path.isdir(place) else os.path.dirname(place)
            self.comparisons[place] = _of_folder(
                top, lambda folder: comparison_within(folder, top), NameComparison.CASELESS
            )
        return self.comparisons[place]
