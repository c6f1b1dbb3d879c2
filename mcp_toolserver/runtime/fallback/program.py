"""The program: `main` with the options that ripgrep would get."""

import os
import re
import sys
import warnings
from collections.abc import Sequence

from mcp_toolserver.runtime.fallback.ignoring import ignoring
from mcp_toolserver.runtime.fallback.options import Options, Refused, options
from mcp_toolserver.runtime.fallback.patterns import compiled
from mcp_toolserver.runtime.fallback.reading import MAX_FILE, content, too_large
from mcp_toolserver.runtime.fallback.searching import Search
from mcp_toolserver.runtime.fallback.types import wanted_names
from mcp_toolserver.runtime.fallback.walk import Walk, say


def _list_files(walk: Walk, names: re.Pattern[str] | None) -> bool:
    found = False
    for file in walk.files():
        if names is None or names.match(file.name):
            found = True
            sys.stdout.buffer.write(os.fsencode(f"./{file.path}\0"))
    return found


def _search_files(walk: Walk, names: re.Pattern[str] | None, search: Search) -> bool:
    found, searched = False, False
    for file in walk.files():
        if names is not None and not names.match(file.name):
            continue
        searched = True
        try:
            printed = search.report(f"./{file.path}", content(file.folder, file.name))
        except OSError as error:
            walk.complain(file.path, error)
            continue
        sys.stdout.buffer.write(printed)
        found = found or bool(printed)
    if not searched:
        say("No files were searched")
    return found


def _search_stdin(walk: Walk, search: Search) -> bool:
    data = sys.stdin.buffer.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        walk.complain("<stdin>", too_large())
        return False
    printed = search.report_named("<stdin>", data)
    sys.stdout.buffer.write(printed)
    return bool(printed)


def _run(given: Options) -> int:
    names = wanted_names(given)
    walk = Walk(ignoring(given))
    if "files" in given.flags:
        found = _list_files(walk, names)
    elif given.place == "-":
        found = _search_stdin(walk, Search(given=given, pattern=compiled(given)))
    else:
        found = _search_files(walk, names, Search(given=given, pattern=compiled(given)))
    return 2 if walk.failed else 0 if found else 1


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 when something was found, 1 when not, 2 when something could not be searched."""
    # Python warns about patterns that mean something else in other languages; nobody reads that here.
    warnings.simplefilter("ignore")
    try:
        return _run(options(arguments))
    except Refused as why:
        say(str(why))
        return 2
