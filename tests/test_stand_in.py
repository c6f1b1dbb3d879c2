"""The search engine in Python, run in this process, says what ripgrep says to the same arguments."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.search import FileQuery, LineQuery
from mcp_toolserver.runtime import ripgrep
from mcp_toolserver.runtime.fallback.program import main
from mcp_toolserver.runtime.search_programs import start
from tests.searching import RIPGREP

HERE = CanonicalPath(".")
FILES: dict[str, bytes] = {
    "a.py": b"def one():\n    return needle\n\n# end\n",
    "sub/b.py": b"needle needle\r\nother\r\n",
    "sub/deep/c.txt": b"x\nNEEDLE\ny\nneedle",
    "sub/kept.log": b"needle\n",
    "ignored.log": b"needle\n",
    "wide.txt": "\ufeffneedle ü\n".encode("utf-16-le"),
    "binary": b"needle\0\n",
    "empty": b"",
    ".hidden": b"needle\n",
    ".gitignore": b"*.log\n# a comment\n\n/build/\n",
    "sub/.gitignore": b"!kept.log\n",
    "build/d.py": b"needle\n",
    ".ignore": b"skipped\n",
    "skipped": b"needle\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Generator[Path]:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def line_query(pattern: str = "needle", **options: object) -> LineQuery:
    return LineQuery(**{"pattern": pattern, "path": HERE, "mode": "content", "limit": 0, **options})  # type: ignore[arg-type]


def asked(query: LineQuery | FileQuery, names: tuple[str, ...] | None = None) -> list[str]:
    if isinstance(query, FileQuery):
        return ripgrep.list_files(query, names=names, rules=False)
    return ripgrep.find_lines(query, names=names, rules=False, single=False, ordered=False)


CASES = {
    "content": asked(line_query()),
    "context": asked(line_query(before=1, after=1)),
    "count": asked(line_query(mode="count")),
    "files": asked(line_query(mode="files_with_matches")),
    "ignore case": asked(line_query("NeEdLe", ignore_case=True)),
    "multiline": asked(line_query("one.*return", multiline=True)),
    "hidden": asked(line_query(hidden=True)),
    "ignored too": asked(line_query(hidden=True, ignored=True)),
    "a type": asked(line_query(type="py")),
    "names": asked(line_query(), ("*.txt",)),
    "a class": asked(line_query(r"[[:alpha:]]+\(\)")),
    "a word": asked(line_query(r"\bneedle\b|^y$|\d{2,}")),
    "nothing": asked(line_query("not there")),
    "all files": asked(FileQuery(pattern="**", path=HERE, limit=0)),
    "some files": asked(FileQuery(pattern="*.py", path=HERE, limit=0), ("*.py",)),
    "hidden files": asked(FileQuery(pattern="**", path=HERE, hidden=True, ignored=True, limit=0)),
}


def parts(output: bytes) -> list[bytes]:
    """What was printed, whatever the order of files and the lines between them."""
    return sorted(filter(None, output.replace(b"\0", b"\n").splitlines()))


@pytest.mark.parametrize("arguments", [pytest.param(words, id=name) for name, words in CASES.items()])
def test_the_stand_in_says_what_ripgrep_says(
    arguments: list[str], tree: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    theirs = subprocess.run(
        [*start(RIPGREP), *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    status = main(arguments)
    ours = capfdbinary.readouterr().out
    assert parts(ours) == parts(theirs.stdout)
    assert status == theirs.returncode


@pytest.mark.parametrize("pattern", ["(", "(?<=a)b", "a{1001}{1001}", "[z-a]"])
def test_what_ripgrep_refuses_the_stand_in_refuses(
    pattern: str, tree: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    arguments = asked(line_query(pattern))
    theirs = subprocess.run(
        [*start(RIPGREP), *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (main(arguments), theirs.returncode) == (2, 2)
    assert capfdbinary.readouterr().out == b""
