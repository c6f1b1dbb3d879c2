"""The example program prints what docs/agents.md shows."""

import re
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from tests.support.processes import PATIENCE

PAGE = ROOT / "docs" / "agents.md"
START, END = "<!-- output of examples/work_session.py -->\n```text\n", "```\n"


def tidied(text: str) -> str:
    """`text` without the handles, paths and dates of one run."""
    text = re.sub(r"/\S*/\.example-\w+", "/home/you", text)
    text = re.sub(r"\b(plan|task|cron)_[0-9a-f]+", r"\1_…", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "…", text)
    return re.sub(r"\d{4}-\d\d-\d\dT00:00\+00:00", "2026-11-24T00:00+00:00", text)


def test_the_page_shows_what_the_program_prints(tmp_path: Path, update: bool) -> None:
    # Commands of the server do not see the folder of temporary files.
    folder = ROOT / "benchmarks" / ".cache" / f"example-{tmp_path.name}"
    folder.mkdir(parents=True)
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "work_session.py")],
            cwd=folder,
            check=True,
            capture_output=True,
            encoding="utf-8",
            timeout=10 * PATIENCE,
        )
        assert list(folder.iterdir()) == []
    finally:
        folder.rmdir()
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    shown, _, after = rest.partition(END)
    printed = tidied(done.stdout).strip() + "\n"
    if update:
        PAGE.write_text(before + START + printed + END + after, encoding="utf-8")
    else:
        assert shown == printed, "review the change, then run python -m tests update"
