"""What edit_file does and answers."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.tools.files.edit_file import TOOL
from tests.support.calling import HANDLE, Bench, make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=TOOL, root=make(tmp_path / "root", {}))


@pytest.mark.requirement("GR-24")
async def test_a_text_is_replaced_and_the_diff_shown(bench: Bench) -> None:
    (bench.root / "a.py").write_bytes(b"one\ntwo\nthree\n")

    result = await bench.result(path="a.py", old_string="two", new_string="2")

    digest = hashlib.sha256(b"one\n2\nthree\n").hexdigest()
    assert result.error is None
    assert (bench.root / "a.py").read_bytes() == b"one\n2\nthree\n"
    assert HANDLE.sub("", result.text) == (
        'Edited a.py: 1 replacement at line 2 (12 bytes).\nTo undo: write_file, path "a.py", restore "".\n'
        "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    )
    assert result.metadata()["sha256"] == {"a.py": digest}


async def test_of_several_edits_all_or_none_are_made(bench: Bench) -> None:
    (bench.root / "a").write_bytes(b"one two")
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "three", "new_string": "3"}]

    result = await bench.result(path="a", edits=edits)

    assert result.error == "conflict"
    assert "edits[1]" in result.text
    assert (bench.root / "a").read_bytes() == b"one two"


ALL_X = {"old_string": "x", "new_string": "z", "replace_all": True}

MADE = (
    (b"x\ny\nx x\n", ALL_X, b"z\ny\nz z\n", "3 replacements at lines 1 and 3"),
    (b"x\n" * 30, ALL_X, b"z\n" * 30, "30 replacements at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and"),
    (b"keep drop keep", {"old_string": " drop", "new_string": ""}, b"keep keep", "1 rep"),
    (b"1\r\n2\r\n", {"old_string": "1\n2\n", "new_string": "3\n4\n"}, b"3\r\n4\r\n", "line endings"),
)


async def test_an_edit_is_made_and_reported(bench: Bench) -> None:
    for before, arguments, after, says in MADE:
        (bench.root / "a").write_bytes(before)
        result = await bench.result(path="a", **arguments)
        assert (bench.root / "a").read_bytes() == after
        assert result.text.startswith("Edited a: ")
        assert says in result.text


BYTES = {
    # NB14.
    b"one\r\ntwo\nthree\r\n": b"one\r\n2\nthree\r\n",
    b"\xef\xbb\xbfone\r\ntwo\r\n": b"\xef\xbb\xbfone\r\n2\r\n",
    "\ufeffé\r\ntwo".encode("utf-16-le"): "\ufeffé\r\n2".encode("utf-16-le"),
    "\ufeffé\r\ntwo".encode("utf-16-be"): "\ufeffé\r\n2".encode("utf-16-be"),
    b"caf\xe9 \x93two\x94\r\n": b"caf\xe9 \x932\x94\r\n",
    b"caf\xe9 with \x81, two and more\n": b"caf\xe9 with \x81, 2 and more\n",
    b"no ending: two": b"no ending: 2",
}


async def test_bytes_outside_the_match_stay(bench: Bench) -> None:
    for before, after in BYTES.items():
        (bench.root / "a").write_bytes(before)
        assert (await bench.result(path="a", old_string="two", new_string="2")).error is None
        assert (bench.root / "a").read_bytes() == after


async def test_an_edit_that_comes_to_nothing_is_said(bench: Bench) -> None:
    (bench.root / "a").write_bytes(b"one")
    edits = [{"old_string": "one", "new_string": "two"}, {"old_string": "two", "new_string": "one"}]

    result = await bench.result(path="a", edits=edits)

    assert result.error is None
    assert "the same as before" in result.text


PAIR = {"old_string": "one", "new_string": "1"}

MEANINGLESS: tuple[dict[str, Any], ...] = (
    # JSON16.
    *({**PAIR, "edits": [PAIR]}, {"replace_all": True, "edits": [PAIR]}),
    *({}, {"edits": []}, {"old_string": "one"}, {"old_string": "one", "new_string": None}),
    *({"old_string": "", "new_string": "x"}, {"old_string": "one", "new_string": "one"}),
    *({"edits": [{"old_string": "", "new_string": "x"}]}, {"edits": [{"old_string": "one"}]}),
    *({"edits": [{**PAIR, "path": "b"}]}, {"edits": [PAIR] * 101}, {**PAIR, "expected_sha256": "abc"}),
)


async def test_arguments_that_cannot_be_meant_are_refused(bench: Bench) -> None:
    (bench.root / "a").write_bytes(b"one")
    for arguments in MEANINGLESS:
        assert (await bench.result(path="a", **arguments)).error == "invalid_input", arguments
        assert (bench.root / "a").read_bytes() == b"one"


async def test_an_edit_that_is_refused_is_explained_and_leaves_the_file(bench: Bench) -> None:
    for content, old, new, error, says in (
        (b"\tif x:\n", "    if x:", "y", "conflict", "indentation"),
        (b"one\0two", "one", "1", "invalid_input", "not a text file"),
        (b"caf\xe9", "caf", "漢", "invalid_input", "U+6F22"),
    ):
        (bench.root / "a").write_bytes(content)
        result = await bench.result(path="a", old_string=old, new_string=new)
        assert result.error == error
        assert says in result.text
        assert (bench.root / "a").read_bytes() == content
