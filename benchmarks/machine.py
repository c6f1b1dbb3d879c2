"""What the measurements were taken on: nothing that tells whose machine it is."""

import datetime as dt
import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.ripgrep import ripgrep
from benchmarks.servers import PACKAGE
from benchmarks.servers import VERSION as PACKAGE_VERSION


def description() -> dict[str, str]:
    """The facts that figures depend on, by name."""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "processor": f"{len(os.sched_getaffinity(0))} × {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "Python": platform.python_version(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in ("mcp", "pydantic", "anyio")),
        "ripgrep": _program(ripgrep()),
        "Node": _program(shutil.which("node")),
        "official filesystem server": f"{PACKAGE} {PACKAGE_VERSION}",
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _program(path: str | None) -> str:
    if path is None:
        return "none"
    done = subprocess.run([path, "--version"], capture_output=True, encoding="utf-8", timeout=10, check=False)
    return done.stdout.partition("\n")[0].partition(" (")[0].removeprefix("ripgrep ")
