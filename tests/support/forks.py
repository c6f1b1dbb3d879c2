"""A plugin of coverage that measures a process without its forks.

A server's broker forks for every command, and each fork that saves what it measured takes longer than the
command. What the forks do is measured where a broker is tested.
"""

import os
import posix

from coverage import Coverage
from coverage.plugin_support import Plugins
from coverage.types import TConfigSectionOut


def coverage_init(reg: Plugins, options: TConfigSectionOut) -> None:
    """Called by coverage at the start of the process."""
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    running = Coverage.current()
    if running is not None:
        running.stop()
    # Coverage put one that saves in its place.
    os._exit = posix._exit
