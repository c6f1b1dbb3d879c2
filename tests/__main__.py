"""The whole gate: formatting, lint, types, architecture, tests.

`python -m tests` runs the gate and stops at the first step that fails; `python -m tests STEP ...` runs single
steps. `python -m tests fast` runs the part of the gate for working, `python -m tests long` what takes long or
needs other people's programs, `python -m tests coverage` the tests of the gate and what they cover. `python
-m tests update` writes the generated files, `python -m tests update clients` also what is known of MCP
clients. Arguments after `--` go to pytest.

On another system than Linux the gate runs the portable tests, and names what it left out.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tests import ROOT
from tests.macos.linux_guarantees import SUITES
from tests.support.extent import VARIABLE

SOURCES = ("mcp_toolserver", "tests", "benchmarks", "examples", "packaging")

IN_PARALLEL = ("-n", "4", "--dist", "loadgroup")
"""Half of the time tests wait, so there are more processes than the two cores of a small machine: there the
tests of the gate take 437 s with three, 405 s with four."""

OF_GATE = ("pytest", *IN_PARALLEL, "-m", "not long")

UPDATE = ("pytest", "--quiet", "-n", "2", "--dist", "loadgroup", "--update")

WRITING = ("project/test_each_example", "setup/test_client_pages")
"""The tests that write generated files, but for those that read what these write."""

ON_POSIX = ("--process-layer", "posix")

STARTS_PROGRAMS = re.compile(r"\bsys\.executable\b|\bBroker\b")
"""What a test module says that starts a server, a broker or another Python."""

OF_EVERY_TOOL = ("tests/pipeline/test_every_tool.py", "tests/pipeline/test_registry.py")
"""Part of the fast step although one test starts a program: a new tool is checked here."""

PORTABLE = ("doctor_report", "release", "setup", "setup_jsonc", "developer_docs")
"""Tests that start programs and are for every system that the package supports; in them, what needs Linux is
skipped with a reason. Which others would pass on macOS is unknown, because none was ever run there."""

NOT_PORTABLE = ("every_tool", "fs", "registry")
"""Of the fast step, tests that need openat2, O_PATH or the broker of Linux. A run on Linux with the platform
name `darwin`, without the calls that only Linux has, showed these and `DESELECTED`; 2,846 others passed."""

DESELECTED = (
    "tests/files/test_transaction.py::test_a_file_keeps_its_mode_or_gets_that_of_another",
    "tests/files/test_folders.py::test_a_folder_that_cannot_be_read_is_reported_and_the_rest_is_shown",
)
"""Single tests of portable files that need `os.setxattr` and /proc."""

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


def without_programs() -> list[str]:
    """The test files of the fast step: pure functions, and the dispatcher on a real folder."""
    files = (ROOT / "tests").rglob("test_*.py")
    return [*OF_EVERY_TOOL, *sorted(str(file) for file in files if not starts_programs(file))]


def portable() -> list[str]:
    """The test files of the gate on another system than Linux."""
    found = {str(ROOT / file) for file in without_programs()}
    return sorted(found - _test_files(NOT_PORTABLE) | _test_files(PORTABLE))


def _test_files(names: Sequence[str]) -> set[str]:
    return {str(file) for name in names for file in (ROOT / "tests").rglob(f"test_{name}.py")}


def left_out() -> Sequence[str]:
    """The test files and single tests that the gate does not run on this system, relative to the project."""
    if sys.platform == "linux":
        return ()
    files = {str(file) for file in (ROOT / "tests").rglob("test_*.py")} - {*portable()}
    return (*sorted(str(Path(file).relative_to(ROOT)) for file in files), *DESELECTED)


STEPS: dict[str, Sequence[Sequence[str]]] = {
    "format": [("ruff", "format", "--check", *SOURCES)],
    "lint": [("ruff", "check", *SOURCES)],
    "arrows": [("lint-imports",)],
    "types": [("pyright", "--pythonpath", sys.executable, *SOURCES)],
    "tests": [OF_GATE],
    # Measuring makes tests in this process 1.7 times slower, so it is a job of its own.
    "coverage": [(*OF_GATE, "--cov", "--cov-report="), ("coverage", "report", "--fail-under=98")],
    # Property tests and rounds, which the gate runs, would add 12 s. The types keep another processor busy.
    "pure": [("pytest", "-m", "not long and not rounds and not hypothesis", *without_programs())],
    "portable": [("pytest", "-n", "2", *(f"--deselect={test}" for test in DESELECTED), *portable())],
    "long": [
        ("pytest", *IN_PARALLEL, "-m", "long or rounds or hypothesis"),
        ("pytest", *IN_PARALLEL, *ON_POSIX, *SUITES),
    ],
    # Examples first: the snapshot of a new tool needs one.
    "update": [
        (*UPDATE, *(f"tests/{name}.py" for name in WRITING)),
        (*UPDATE, "tests/pipeline/test_every_tool.py"),
    ],
    "requirements": [(*UPDATE, "tests/project/test_requirements.py")],
    "clients": [
        (*UPDATE, "tests/client_programs/test_client_programs.py"),
        (*UPDATE, "tests/setup/test_client_pages.py"),
    ],
}

CHECKS = ("format", "lint", "arrows", "types")
FAST = (*CHECKS, "pure")


def whole() -> Sequence[str]:
    """The steps of the gate on this system."""
    return (*CHECKS, "tests" if sys.platform == "linux" else "portable")


def run(command: Sequence[str], *, in_full: bool, quiet: bool) -> subprocess.CompletedProcess[str]:
    """Run one program of this environment; `quiet` keeps its output for later."""
    program = Path(sys.executable).parent / command[0]
    if not program.exists():
        print(f"{command[0]} is missing: install the gate's tools with  pip install -e '.[dev]'")
        return subprocess.CompletedProcess(command, 2, "")
    environment = {**os.environ, "PYTHONWARNDEFAULTENCODING": "1", "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    # Hundreds of server starts are much faster with compiled files.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if in_full:
        environment[VARIABLE] = "1"
    return subprocess.run(
        [program, *command[1:]],
        cwd=ROOT,
        env=environment,
        check=False,
        encoding="utf-8",
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
    )


def step(name: str, extra: Sequence[str], *, quiet: bool = False) -> int:
    """Run one step; its status is that of its first program that fails."""
    if not quiet:
        print(f"== {name}", flush=True)
    for command in STEPS[name]:
        ended = run([*command, *(extra if "pytest" in command else ())], in_full=name == "long", quiet=quiet)
        if quiet:
            print(f"== {name}\n{ended.stdout}", end="", flush=True)
        if ended.returncode:
            print(f"== {name} failed", flush=True)
            return ended.returncode
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the named steps, or the gate; the exit status is that of the first that fails."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, extra = arguments[:split] or whole(), arguments[split + 1 :]
    if unknown := [name for name in names if name not in (*STEPS, "fast")]:
        print(f"unknown step {unknown[0]}; choose from fast, {', '.join(STEPS)}")
        return 2
    names = [single for name in names for single in (FAST if name == "fast" else (name,))]
    with ThreadPoolExecutor(1) as background:
        types: Future[int] | None = None
        for name in names:
            if name == "types" and name != names[-1]:
                # It computes on one processor, and the steps after it do not need its result.
                types = background.submit(step, name, extra, quiet=True)
            elif status := step(name, extra):
                return status
        if types and (status := types.result()):
            return status
    if not arguments[:split] and (files := left_out()):
        print(f"== left out on {sys.platform}: {len(files)} test files, which need Linux or were")
        print(f"   never tried here: {' '.join(files)}")
    print("== all green")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
