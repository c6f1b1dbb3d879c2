"""The whole gate: formatting, lint, types, architecture, tests, coverage.

`python -m tests` runs everything and stops at the first step that fails; `python -m tests STEP ...` runs
single steps. Arguments after `--` go to pytest.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("mcp_toolserver", "tests", "benchmarks")
FULLY_COVERED = (
    "dispatch.py",
    "validation.py",
    "policy/*",
    "limits.py",
    "registry.py",
    "protocol/*",
    "text/*",
    "tools/*",
)

STEPS: dict[str, Sequence[Sequence[str]]] = {
    "format": [("ruff", "format", "--check", *SOURCES)],
    "lint": [("ruff", "check", *SOURCES)],
    "types": [("pyright", "--pythonpath", sys.executable, *SOURCES)],
    "arrows": [("lint-imports",)],
    "tests": [
        ("coverage", "erase"),
        ("coverage", "run", "-m", "pytest", "-n", "2", "--dist", "loadgroup"),
        ("coverage", "combine", "--quiet"),
    ],
    "coverage": [
        ("coverage", "report", "--fail-under=95"),
        (
            "coverage",
            "report",
            "--fail-under=100",
            "--include=" + ",".join(f"mcp_toolserver/{part}" for part in FULLY_COVERED),
        ),
    ],
}


def run(command: Sequence[str], extra: Sequence[str]) -> int:
    """Run one program of this environment."""
    program = Path(sys.executable).parent / command[0]
    if not program.exists():
        print(f"{command[0]} is missing: install the gate's tools with  pip install -e '.[dev]'")
        return 2
    environment = {**os.environ, "PYTHONWARNDEFAULTENCODING": "1", "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    # Hundreds of server starts are much faster with compiled files.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run([program, *command[1:], *extra], cwd=ROOT, env=environment, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """Run the named steps, or all; the exit status is that of the first that fails."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, extra = arguments[:split], arguments[split + 1 :]
    if unknown := [name for name in names if name not in STEPS]:
        print(f"unknown step {unknown[0]}; choose from {', '.join(STEPS)}")
        return 2
    for name in names or STEPS:
        print(f"== {name}", flush=True)
        for command in STEPS[name]:
            if status := run(command, extra if "pytest" in command else ()):
                print(f"== {name} failed")
                return status
    print("== all green")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
