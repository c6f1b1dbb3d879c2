"""What write_file does and answers."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.tools.files.write_file import TOOL
from tests.support.calling import Bench, make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=TOOL, root=make(tmp_path / "root", {}))


async def call(bench: Bench, path: str, content: str, **arguments: Any) -> str:
    return await bench.text(path=path, content=content, overwrite=True, **arguments)


async def test_a_new_file_is_reported_with_size_and_hash(bench: Bench) -> None:
    result = await bench.result(path="new/f", content="é\n")
    content = "é\n".encode()
    assert (bench.root / "new/f").read_bytes() == content
    assert result.text == "Created new/f (3 bytes)."
    assert result.metadata()["sha256"] == {"new/f": hashlib.sha256(content).hexdigest()}


async def test_a_change_is_reported_with_a_diff(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"one\ntwo\n")
    text = await call(bench, "f", "one\n2\n")
    assert text.startswith("Updated f (6 bytes)")
    assert text.endswith("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+2")


async def test_a_long_diff_is_a_summary_of_what_was_replaced(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"old\n" * 600)
    text = await call(bench, "f", "new\n" * 500 + "end")
    assert text.startswith("Updated f (2003 bytes).\nTo undo: ")
    assert text.endswith("\nIt had 600 lines and now has 501; their diff is not shown.")


async def test_content_is_appended_when_asked_for_and_excludes_a_restoration(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"one\n" * 600)
    assert (await bench.text(path="f", content="two\n", append=True)).endswith(" one\n one\n one\n+two")
    assert (bench.root / "f").read_bytes() == b"one\n" * 600 + b"two\n"
    for arguments in ({"restore": "x", "append": True}, {}, {"content": "x", "restore": "0" * 12}):
        await bench.refusal("invalid_input", path="f", **arguments)


async def test_the_same_content_is_reported_as_unchanged(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"one\n")
    assert (await call(bench, "f", "one\n")).startswith("Unchanged: f (4 bytes)")


async def test_content_is_written_exactly_as_given(bench: Bench) -> None:
    content = "\ufeffa\r\nb\nc\r😀\t\x0c "
    await call(bench, "f", content)
    assert (bench.root / "f").read_bytes() == content.encode()


async def test_a_changed_encoding_or_line_ending_is_reported_and_nothing_else(bench: Bench) -> None:
    for before, after, note in (
        (b"caf\xe9\n", "café\n", "The encoding was windows-1252 and is now utf-8."),
        (b"\xef\xbb\xbfa\n", "b\n", "The encoding was utf-8 with BOM and is now utf-8."),
        (b"a\r\nb\r\n", "a\nb\n", "The line endings were CRLF and are now LF."),
        (b"a\nb\n", "a\r\nb\n", "The line endings were LF and are now mixed."),
    ):
        (bench.root / "f").write_bytes(before)
        assert note in (await call(bench, "f", after)).split("\n")
    for before, after in ((b"a\n", "b\n"), (b"", "b\r\n"), (b"a\r\n", "b"), (b"a\r\n", "")):
        (bench.root / "f").write_bytes(before)
        text = await call(bench, "f", after)
        assert " is now " not in text
        assert " are now " not in text


async def test_a_binary_file_is_replaced_without_a_diff(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"\0\1\2")
    assert "It replaced 3 bytes; the old or the new content is not text" in await call(bench, "f", "text\n")


async def test_a_wrong_expectation_is_a_conflict_and_a_malformed_one_is_refused(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"a\n")
    for known, kind in (("0" * 64, "conflict"), ("abc", "invalid_input")):
        await bench.refusal(kind, path="f", content="b\n", overwrite=True, expected_sha256=known)
    known = hashlib.sha256(b"a\n").hexdigest()
    assert (await call(bench, "f", "b\n", expected_sha256=known)).startswith("Updated")
