"""A home folder as on a new machine, in which `uv` and `pipx` find packages where pip finds them here."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.official import cache_folder

_SECONDS = 300
"""For a first installation, on a slow line."""

_PROGRAMS = ("uv", "uvx", "pipx")


@dataclass(frozen=True)
class FreshHome:
    """A home folder with the configuration of uv, and the programs that a user has on the PATH."""

    folder: Path
    path: str

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.folder), "PATH": self.path}

    def run(self, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of this PATH with HOME and PATH alone."""
        return subprocess.run(
            [
                "/usr/bin/env",
                "-i",
                *(f"{name}={value}" for name, value in self.environment.items()),
                *command,
            ],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_SECONDS,
            check=False,
        )


@contextmanager
def fresh_home(folder: Path) -> Generator[FreshHome]:
    """A new home below `folder`."""
    home, programs = folder / "home", folder / "programs"
    (home / ".config/uv").mkdir(parents=True)
    programs.mkdir()
    for name in _PROGRAMS:
        (programs / name).symlink_to(Path(sys.executable).with_name(name))
    with _uv_cache() as cache:
        settings = {"cache-dir": str(cache), "system-certs": True, "python-downloads": "never", **_index()}
        lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        (home / ".config/uv/uv.toml").write_text("".join(lines), encoding="utf-8")
        yield FreshHome(home, f"{programs}:/usr/bin:/bin")


@contextmanager
def _uv_cache() -> Generator[Path]:
    """The folder in which uv keeps packages between runs. Environments of earlier runs are removed when no
    other run uses it."""
    cache = cache_folder() / "uv"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "uv.lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            shutil.rmtree(cache / "environments-v2", ignore_errors=True)
            uv = Path(sys.executable).with_name("uv")
            subprocess.run(
                [uv, "cache", "prune", "--quiet", "--cache-dir", cache], timeout=_SECONDS, check=True
            )
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield cache


def _index() -> dict[str, Any]:
    """The package index that pip uses, if another one than PyPI is configured."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    variables: Sequence[str] = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    given = [os.environ.get(name, "") for name in variables]
    found = next(filter(None, [*given, asked.stdout.strip()]), None)
    return {"index-url": found} if found else {}
