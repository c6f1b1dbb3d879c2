"""Runs a module such as `mcp_toolserver` on the POSIX process layer: `posix_program.py MODULE ...`."""

import os
import runpy
import sys

from mcp_toolserver import interrupts
from tests import ROOT

# As with `python -m`. The folder of this file has modules with names that others import.
sys.path[0] = os.getcwd()

if __name__ == "__main__":
    # As the program itself does before its large imports, in which SIGINT can be lost.
    interrupts.end_at_once()
    sys.path.append(str(ROOT))
    from tests.support.process_layer import select_posix

    sys.path.pop()
    select_posix()
    sys.argv.pop(0)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
