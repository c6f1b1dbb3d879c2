"""What write_file does and answers."""

import hashlib
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.runtime.files.workspace import SIZE_LIMIT
from mcp_toolserver.tools.files.write_file import TOOL
from tests.support.workbench import Person, dispatcher, machine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


async def write(root: Path, path: str, content: str, tool: str = "write_file", **arguments: Any) -> Result:
    host = machine(root.parent)
    server = dispatcher(host, Entry(TOOL, toolset="files"), ceiling=Permission.WORKSPACE_WRITE)
    with anyio.fail_after(30):
        return await server.call(
            tool, {"path": path, "content": content, "overwrite": True, **arguments}, Person()
        )


async def call(root: Path, path: str, content: str, **arguments: Any) -> str:
    """The text of a call that must succeed."""
    result = await write(root, path, content, **arguments)
    assert result.error is None
    return result.text


async def refusal(root: Path, path: str, content: str, *, kind: str, **arguments: Any) -> str:
    """The text of a call that must fail."""
    result = await write(root, path, content, **arguments)
    assert result.error == kind
    return result.text


async def test_a_new_file_is_reported_with_size_and_hash(root: Path) -> None:
    result = await write(root, "new/f", "é\n")
    content = "é\n".encode()
    assert (root / "new/f").read_bytes() == content
    assert result.text == "Created new/f (3 bytes)."
    assert result.metadata()["sha256"] == {"new/f": hashlib.sha256(content).hexdigest()}


async def test_a_change_is_reported_with_a_diff(root: Path) -> None:
    (root / "f").write_bytes(b"one\ntwo\n")
    text = await call(root, "f", "one\n2\n")
    assert text.startswith("Updated f (6 bytes)")
    assert text.endswith("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+2")


async def test_the_same_content_is_reported_as_unchanged(root: Path) -> None:
    (root / "f").write_bytes(b"one\n")
    assert (await call(root, "f", "one\n")).startswith("Unchanged: f (4 bytes)")


async def test_content_is_written_exactly_as_given(root: Path) -> None:
    content = "\ufeffa\r\nb\nc\r😀\t\x0c "
    await call(root, "f", content)
    assert (root / "f").read_bytes() == content.encode()


async def test_a_changed_encoding_or_line_ending_is_reported_and_nothing_else(root: Path) -> None:
    for before, after, note in (
        (b"caf\xe9\n", "café\n", "The encoding was windows-1252 and is now utf-8."),
        (b"\xef\xbb\xbfa\n", "b\n", "The encoding was utf-8 with BOM and is now utf-8."),
        (b"a\r\nb\r\n", "a\nb\n", "The line endings were CRLF and are now LF."),
        (b"a\nb\n", "a\r\nb\n", "The line endings were LF and are now mixed."),
    ):
        (root / "f").write_bytes(before)
        assert note in (await call(root, "f", after)).split("\n")
    for before, after in ((b"a\n", "b\n"), (b"", "b\r\n"), (b"a\r\n", "b"), (b"a\r\n", "")):
        (root / "f").write_bytes(before)
        text = await call(root, "f", after)
        assert " is now " not in text
        assert " are now " not in text


async def test_a_binary_file_is_replaced_without_a_diff(root: Path) -> None:
    (root / "f").write_bytes(b"\0\1\2")
    assert "It replaced 3 bytes; the old or the new content is not text" in await call(root, "f", "text\n")


async def test_other_hard_links_are_reported(root: Path) -> None:
    (root / "f").write_bytes(b"a\n")
    (root / "other").hardlink_to(root / "f")
    assert "2 hard links" in await call(root, "f", "b\n")


async def test_the_answer_to_a_big_change_is_bounded(root: Path) -> None:
    (root / "f").write_text("old\n" * 50_000, encoding="utf-8")
    assert len(await call(root, "f", "new\n" * 50_000)) < 25_000


async def test_content_over_the_limit_is_refused(root: Path) -> None:
    await refusal(root, "f", "x" * (SIZE_LIMIT + 1), kind="invalid_input")
    assert not (root / "f").exists()


async def test_a_wrong_expectation_is_a_conflict_and_a_malformed_one_is_refused(root: Path) -> None:
    (root / "f").write_bytes(b"a\n")
    await refusal(root, "f", "b\n", expected_sha256="0" * 64, kind="conflict")
    await refusal(root, "f", "b\n", expected_sha256="abc", kind="invalid_input")
    known = hashlib.sha256(b"a\n").hexdigest()
    assert (await call(root, "f", "b\n", expected_sha256=known)).startswith("Updated")


async def test_other_names_take_file_path(root: Path) -> None:
    server = dispatcher(machine(root.parent), Entry(TOOL, toolset="files"))
    for tool in ("write_file", "Write", "write"):
        assert (await server.call(tool, {"file_path": tool, "content": "x"}, Person())).error is None
        assert (root / tool).read_bytes() == b"x"
