"""Where the programs of language servers are, found without running any."""

import os
import sys
import sysconfig
from collections.abc import Sequence

from mcp_toolserver.runtime.host_programs import is_program, lies_in


def places(path_entries: Sequence[str]) -> tuple[str, ...]:
    """Where to look: beside our own program, then on the path."""
    own = (os.path.dirname(sys.executable), sysconfig.get_path("scripts"))
    return tuple(dict.fromkeys((*own, *filter(os.path.isabs, path_entries))))


def find_programs(name: str, where: Sequence[str], roots: Sequence[str]) -> list[str]:
    """The absolute paths of the programs called `name` that lie in no folder of `roots`, each once."""
    files = (os.path.join(place, name) for place in where)
    found = (file for file in files if is_program(file) and not lies_in(file, roots))
    return list({os.path.realpath(file): file for file in reversed(list(found))}.values())[::-1]
