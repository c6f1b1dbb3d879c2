"""The examples of docs/library.md work."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import ROOT

PAGE = ROOT / "docs" / "library.md"
BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def test_every_example_runs() -> None:
    examples = [code for language, title, code in BLOCKS if language == "python" and not title]
    assert len(examples) > 5
    namespace: dict[str, object] = {"__name__": "page"}
    for code in examples:
        exec(compile(code, str(PAGE), "exec"), namespace)


def test_the_servers_example_prints_what_the_page_says(tmp_path: Path) -> None:
    for _, title, content in BLOCKS:
        if title:
            (tmp_path / title).write_text(content, encoding="utf-8")
    (tmp_path / "work").mkdir()
    (console,) = [code for language, _, code in BLOCKS if language == "console"]
    command, expected = console.removeprefix("$ ").split("\n", 1)
    words = command.replace("mcp-toolserver", f"{sys.executable} -m mcp_toolserver", 1)
    done = subprocess.run(
        ["/bin/sh", "-c", f"{words} --state-dir {tmp_path}/state"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
