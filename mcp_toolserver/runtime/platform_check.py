"""Whether this platform has what the promises about paths rest on. Imported before anything that needs it."""

import os
import sys

_FLAGS = ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC")
_BESIDE_A_FOLDER = ("open", "stat", "mkdir", "unlink", "rename", "readlink")


def shortcoming() -> str | None:
    """Why no server can keep its promises here, with what to do; None where one can.

    Paths are opened beneath a folder held open, so that no link swapped in meanwhile leads out. Where the
    system cannot do that, to check a path first and open it afterwards would promise what anybody can break.
    """
    names = (*(f"os.{flag}" for flag in _FLAGS if not hasattr(os, flag)), *_without_folder())
    if not names:
        return None
    return (
        f"{sys.platform} cannot open files beneath a folder that is held open (Python lacks "
        f"{', '.join(names)} here), so no path could be kept inside a root; run it on Linux or macOS, or on "
        "Windows in WSL 2"
    )


def _without_folder() -> tuple[str, ...]:
    able = {function.__name__ for function in os.supports_dir_fd}
    return tuple(f"dir_fd of os.{name}" for name in _BESIDE_A_FOLDER if name not in able)
