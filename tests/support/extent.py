"""What of the tests is done where: which files start programs, and how long a long test is in the gate."""

import os
import re
from functools import cache
from pathlib import Path

from tests import ROOT

VARIABLE = "TESTS_IN_FULL"
"""Set for the long step. A server would refuse a name of its own that it does not know."""


IN_FULL = VARIABLE in os.environ


def rounds(short: int, full: int) -> int:
    """`full` in the long step, else `short`. The test is marked `rounds`, by which that step finds it."""
    return full if IN_FULL else short


STARTS_PROGRAMS = re.compile(r"\bsys\.executable\b|\bBroker\b")
"""What a test module says that starts a server, a broker or another Python."""

IMPORTS = re.compile(r"^from ((?:tests|benchmarks)[\w.]*) import (\w*)", re.MULTILINE)


@cache
def starts_programs(file: Path) -> bool:
    """Whether a test module, or a module that it imports from `tests` or `benchmarks`, starts programs."""
    text = file.read_text(encoding="utf-8")
    named = [ROOT / found[1].replace(".", "/") / found[2] for found in IMPORTS.finditer(text)]
    imported = (place.with_suffix(".py") for path in named for place in (path, path.parent))
    return bool(STARTS_PROGRAMS.search(text)) or any(
        starts_programs(module) for module in imported if module.is_file()
    )
