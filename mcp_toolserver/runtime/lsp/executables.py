"""Finds the executables of language servers without running any."""

import os
import sys
import sysconfig
from collections.abc import Sequence

from mcp_toolserver.runtime.which import is_usable


def search_folders(path_entries: Sequence[str]) -> tuple[str, ...]:
    """Return the folders to search: that of our Python, then the PATH."""
    own = (os.path.dirname(sys.executable), sysconfig.get_path("scripts"))
    return tuple(dict.fromkeys((*own, *filter(os.path.isabs, path_entries))))


def find_executables(name: str, where: Sequence[str], roots: Sequence[str]) -> list[str]:
    """Return the absolute paths of executables called `name` outside `roots`, each once."""
    files = (os.path.join(place, name) for place in where)
    found = (file for file in files if is_usable(file, roots))
    return list({os.path.realpath(file): file for file in reversed(list(found))}.values())[::-1]
