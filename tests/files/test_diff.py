"""What diff answers."""

from pathlib import Path

import pytest

from mcp_toolserver.tools.search.diff import TOOL
from tests.support.calling import Bench, make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    files = {"a": b"one\ntwo\n", "sub/b": b"one\n2\n", "same": b"one\ntwo\n"}
    return Bench(tool=TOOL, root=make(tmp_path / "root", files))


async def test_two_files_are_compared_and_both_are_named(bench: Bench) -> None:
    assert await bench.text(path="a", other_path="sub/b") == (
        "--- a/a\n+++ b/sub/b\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    )


async def test_equal_files_are_called_identical(bench: Bench) -> None:
    assert await bench.text(path="a", other_path="same") == "The files are identical."


async def test_line_endings_and_a_missing_last_one_are_differences(bench: Bench) -> None:
    make(bench.root, {"crlf": b"one\r\ntwo\n", "open": b"one\ntwo"})
    assert "-one\n" in await bench.text(path="a", other_path="crlf")
    assert "\\ No newline at end of file" in await bench.text(path="a", other_path="open")


async def test_encodings_are_reported_where_they_differ(bench: Bench) -> None:
    make(
        bench.root, {"wide": "one\ntwo\n".encode("utf-16"), "latin": b"caf\xe9\n", "utf": "café!\n".encode()}
    )
    text = await bench.text(path="a", other_path="wide")
    assert text == "The text is the same, but not its encoding.\n[a is utf-8, wide is utf-16-le with BOM]"
    text = await bench.text(path="latin", other_path="utf")
    assert text.endswith("-café\n+café!\n[latin is windows-1252, utf is utf-8]")


async def test_files_that_are_no_text_are_only_said_to_differ(bench: Bench) -> None:
    make(bench.root, {"x": b"\0\1", "y": b"\0\1"})
    assert "2 and 8 bytes" in await bench.text(path="x", other_path="a")
    assert "8 and 2 bytes" in await bench.text(path="a", other_path="x")
    assert await bench.text(path="x", other_path="y") == "The files are identical."


async def test_a_file_too_large_is_refused(bench: Bench) -> None:
    with open(bench.root / "big", "wb") as file:
        file.truncate(10 * 1024 * 1024 + 1)
    await bench.refusal("invalid_input", path="a", other_path="big")
