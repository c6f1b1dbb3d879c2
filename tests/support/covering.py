"""Where coverage is taken, which costs more than all else that tests do.

Of the processes that tests start, only those of a test marked `measured` are measured: a start takes twice as
long so, and every command ten times as long. One such test for each line that no other runs is enough.

In the tests' own process it is the other way round: what is marked `uncounted`, such as a long table of
attacks, is not measured. It runs what others run too, and would take twice as long.

A server may write to its state folder only, so it keeps its data there until the end.
"""

import os
import shutil
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from coverage.config import CoverageConfig

from tests import ROOT

VARIABLE = "COVERAGE_PROCESS_CONFIG"
"""How coverage tells the processes that tests start what to measure, and where to put it."""

DATA = ".coverage-of-a-server"

_GIVEN = os.environ.get(VARIABLE)

_TRACER = sys.gettrace()


def count(wanted: bool) -> None:
    """Whether this thread is measured from now on, if anything is. Others that begin meanwhile are."""
    sys.settrace(_TRACER if wanted else None)


@contextmanager
def measuring(wanted: bool) -> Generator[None]:
    """Whether what is started meanwhile is measured, if anything is."""
    if _GIVEN is None:
        yield
        return
    if not wanted:
        del os.environ[VARIABLE]
    try:
        yield
    finally:
        os.environ[VARIABLE] = _GIVEN


def covered(environ: Mapping[str, str], state: Path) -> dict[str, str]:
    """`environ`, with the data of what is started put into the folder `state`, and without its forks."""
    if VARIABLE not in environ:
        return dict(environ)
    config = CoverageConfig.deserialize(environ[VARIABLE])
    config.plugins = ["tests.support.forks"]
    config.data_file = str(state / DATA)
    # Where coverage starts, the working folder is not imported from yet.
    places = filter(None, (str(ROOT), environ.get("PYTHONPATH")))
    return {**environ, VARIABLE: config.serialize(), "PYTHONPATH": os.pathsep.join(places)}


def collect(folder: Path) -> None:
    """Bring all such data below `folder` to where the rest is."""
    if _GIVEN is None:
        return
    target = CoverageConfig.deserialize(_GIVEN).data_file
    for found in folder.rglob(f"{DATA}.*"):
        shutil.move(found, target + found.name.removeprefix(DATA))
