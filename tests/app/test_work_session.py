"""The example program prints what the file next to it has."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.processes import PATIENCE

PROGRAM = ROOT / "examples" / "work_session.py"


def tidied(text: str) -> str:
    """`text` without the handles, paths and dates of one run."""
    text = re.sub(r"/\S*/\.example-\w+", "/home/you", text)
    text = re.sub(r"\b(plan|task|cron)_[0-9a-f]+", r"\1_…", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "…", text)
    return re.sub(r"\d{4}-\d\d-\d\dT00:00\+00:00", "2026-11-24T00:00+00:00", text)


@pytest.mark.long
def test_the_file_shows_what_the_program_prints(tmp_path: Path, update: bool) -> None:
    # Commands of the server do not see the folder of temporary files.
    folder = ROOT / "benchmarks" / ".cache" / f"example-{tmp_path.name}"
    folder.mkdir(parents=True)
    try:
        done = subprocess.run(
            [sys.executable, str(PROGRAM)],
            cwd=folder,
            check=True,
            capture_output=True,
            encoding="utf-8",
            timeout=10 * PATIENCE,
        )
        assert list(folder.iterdir()) == []
    finally:
        folder.rmdir()
    printed = tidied(done.stdout).strip() + "\n"
    shown = PROGRAM.with_suffix(".txt")
    if update:
        shown.write_text(printed, encoding="utf-8")
    assert shown.read_text(encoding="utf-8") == printed, "review the change, then run python -m tests update"
