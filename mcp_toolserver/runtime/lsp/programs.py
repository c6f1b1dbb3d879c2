"""Where the programs of language servers are, found without running any."""

import os
import sys
import sysconfig
from collections.abc import Sequence

from mcp_toolserver.runtime.beneath import below


def places(path_entries: Sequence[str]) -> tuple[str, ...]:
    """Where to look: beside our own program, then on the path."""
    own = (os.path.dirname(sys.executable), sysconfig.get_path("scripts"))
    return tuple(dict.fromkeys((*own, *filter(os.path.isabs, path_entries))))


def find_programs(name: str, where: Sequence[str], roots: Sequence[str]) -> list[str]:
    """The absolute paths of the programs called `name` that lie in no folder of `roots`, each once."""
    files = (os.path.join(place, name) for place in where)
    found = (file for file in files if _runs(file) and not _lies_in(file, roots))
    return list({os.path.realpath(file): file for file in reversed(list(found))}.values())[::-1]


def _runs(file: str) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)


def _lies_in(file: str, roots: Sequence[str]) -> bool:
    spelt = (os.path.abspath(file), os.path.realpath(file))
    return any(below(root, path) is not None for path in spelt for root in roots)
