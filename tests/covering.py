"""Coverage of servers that may write to their state folder only: they keep their data there until the end."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from coverage.config import CoverageConfig

VARIABLE = "COVERAGE_PROCESS_CONFIG"
"""How coverage tells the processes that tests start what to measure, and where to put it."""

DATA = ".coverage-of-a-server"


def covered(environ: Mapping[str, str], state: Path) -> dict[str, str]:
    """`environ`, with the data of what is started put into the folder `state`."""
    if VARIABLE not in environ:
        return dict(environ)
    config = CoverageConfig.deserialize(environ[VARIABLE])
    config.data_file = str(state / DATA)
    return {**environ, VARIABLE: config.serialize()}


def collect(folder: Path) -> None:
    """Bring all such data beneath `folder` to where the rest is."""
    if VARIABLE not in os.environ:
        return
    target = CoverageConfig.deserialize(os.environ[VARIABLE]).data_file
    for found in folder.rglob(f"{DATA}.*"):
        shutil.move(found, target + found.name.removeprefix(DATA))
