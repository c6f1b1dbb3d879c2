"""What write_file, edit_file and apply_patch do, and what they answer."""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.tools.files.apply_patch import TOOL as PATCH
from mcp_toolserver.tools.files.edit_file import TOOL as EDIT
from mcp_toolserver.tools.files.write_file import TOOL as WRITE
from tests.support.calling import HANDLE, Bench, held, make


@pytest.fixture
def writer(tmp_path: Path) -> Bench:
    return Bench(tool=WRITE, root=make(tmp_path / "root", {}))


async def write(writer: Bench, path: str, content: str, **arguments: Any) -> str:
    return await writer.text(path=path, content=content, overwrite=True, **arguments)


async def test_a_new_file_is_reported_with_size_and_hash(writer: Bench) -> None:
    result = await writer.result(path="new/f", content="é\n")
    content = "é\n".encode()
    assert (writer.root / "new/f").read_bytes() == content
    assert result.text == "Created new/f (3 bytes)."
    assert result.metadata()["sha256"] == {"new/f": hashlib.sha256(content).hexdigest()}


async def test_a_change_is_reported_with_a_diff(writer: Bench) -> None:
    (writer.root / "f").write_bytes(b"one\ntwo\n")
    text = await write(writer, "f", "one\n2\n")
    assert text.startswith("Updated f (6 bytes)")
    assert text.endswith("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+2")


async def test_a_long_diff_is_a_summary_of_what_was_replaced(writer: Bench) -> None:
    (writer.root / "f").write_bytes(b"old\n" * 600)
    text = await write(writer, "f", "new\n" * 500 + "end")
    assert text.startswith("Updated f (2003 bytes).\nTo undo: ")
    assert text.endswith("\nIt had 600 lines and now has 501; their diff is not shown.")


async def test_content_is_appended_when_asked_for_and_excludes_a_restoration(writer: Bench) -> None:
    (writer.root / "f").write_bytes(b"one\n" * 600)
    assert (await writer.text(path="f", content="two\n", append=True)).endswith(" one\n one\n one\n+two")
    assert (writer.root / "f").read_bytes() == b"one\n" * 600 + b"two\n"
    for arguments in ({"restore": "x", "append": True}, {}, {"content": "x", "restore": "0" * 12}):
        await writer.refusal("invalid_input", path="f", **arguments)


async def test_the_same_content_is_reported_as_unchanged(writer: Bench) -> None:
    (writer.root / "f").write_bytes(b"one\n")
    assert (await write(writer, "f", "one\n")).startswith("Unchanged: f (4 bytes)")


async def test_content_is_written_exactly_as_given(writer: Bench) -> None:
    content = "\ufeffa\r\nb\nc\r😀\t\x0c "
    await write(writer, "f", content)
    assert (writer.root / "f").read_bytes() == content.encode()


async def test_a_changed_encoding_or_line_ending_is_reported_and_nothing_else(writer: Bench) -> None:
    for before, after, note in (
        (b"caf\xe9\n", "café\n", "The encoding was windows-1252 and is now utf-8."),
        (b"\xef\xbb\xbfa\n", "b\n", "The encoding was utf-8 with BOM and is now utf-8."),
        (b"a\r\nb\r\n", "a\nb\n", "The line endings were CRLF and are now LF."),
        (b"a\nb\n", "a\r\nb\n", "The line endings were LF and are now mixed."),
    ):
        (writer.root / "f").write_bytes(before)
        assert note in (await write(writer, "f", after)).split("\n")
    for before, after in ((b"a\n", "b\n"), (b"", "b\r\n"), (b"a\r\n", "b"), (b"a\r\n", "")):
        (writer.root / "f").write_bytes(before)
        text = await write(writer, "f", after)
        assert " is now " not in text
        assert " are now " not in text


async def test_a_binary_file_is_replaced_without_a_diff(writer: Bench) -> None:
    (writer.root / "f").write_bytes(b"\0\1\2")
    assert "It replaced 3 bytes; the old or the new content is not text" in await write(writer, "f", "text\n")


async def test_a_wrong_expectation_is_a_conflict_and_a_malformed_one_is_refused(writer: Bench) -> None:
    (writer.root / "f").write_bytes(b"a\n")
    for known, kind in (("0" * 64, "conflict"), ("abc", "invalid_input")):
        await writer.refusal(kind, path="f", content="b\n", overwrite=True, expected_sha256=known)
    known = hashlib.sha256(b"a\n").hexdigest()
    assert (await write(writer, "f", "b\n", expected_sha256=known)).startswith("Updated")


@pytest.fixture
def editor(tmp_path: Path) -> Bench:
    return Bench(tool=EDIT, root=make(tmp_path / "root", {}))


@pytest.mark.requirement("GR-24")
async def test_a_text_is_replaced_and_the_diff_shown(editor: Bench) -> None:
    (editor.root / "a.py").write_bytes(b"one\ntwo\nthree\n")

    result = await editor.result(path="a.py", old_string="two", new_string="2")

    digest = hashlib.sha256(b"one\n2\nthree\n").hexdigest()
    assert result.error is None
    assert (editor.root / "a.py").read_bytes() == b"one\n2\nthree\n"
    assert HANDLE.sub("", result.text) == (
        'Edited a.py: 1 replacement at line 2 (12 bytes).\nTo undo: write_file, path "a.py", restore "".\n'
        "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    )
    assert result.metadata()["sha256"] == {"a.py": digest}


async def test_of_several_edits_all_or_none_are_made(editor: Bench) -> None:
    (editor.root / "a").write_bytes(b"one two")
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "three", "new_string": "3"}]

    result = await editor.result(path="a", edits=edits)

    assert result.error == "conflict"
    assert "edits[1]" in result.text
    assert (editor.root / "a").read_bytes() == b"one two"


ALL_X = {"old_string": "x", "new_string": "z", "replace_all": True}

MADE = (
    (b"x\ny\nx x\n", ALL_X, b"z\ny\nz z\n", "3 replacements at lines 1 and 3"),
    (b"x\n" * 30, ALL_X, b"z\n" * 30, "30 replacements at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and"),
    (b"keep drop keep", {"old_string": " drop", "new_string": ""}, b"keep keep", "1 rep"),
    (b"1\r\n2\r\n", {"old_string": "1\n2\n", "new_string": "3\n4\n"}, b"3\r\n4\r\n", "line endings"),
)


async def test_an_edit_is_made_and_reported(editor: Bench) -> None:
    for before, arguments, after, says in MADE:
        (editor.root / "a").write_bytes(before)
        result = await editor.result(path="a", **arguments)
        assert (editor.root / "a").read_bytes() == after
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


async def test_bytes_outside_the_match_stay(editor: Bench) -> None:
    for before, after in BYTES.items():
        (editor.root / "a").write_bytes(before)
        assert (await editor.result(path="a", old_string="two", new_string="2")).error is None
        assert (editor.root / "a").read_bytes() == after


PAIR = {"old_string": "one", "new_string": "1"}

MEANINGLESS: tuple[dict[str, Any], ...] = (
    # JSON16.
    *({**PAIR, "edits": [PAIR]}, {"replace_all": True, "edits": [PAIR]}),
    *({}, {"edits": []}, {"old_string": "one"}, {"old_string": "one", "new_string": None}),
    *({"old_string": "", "new_string": "x"}, {"old_string": "one", "new_string": "one"}),
    *({"edits": [{"old_string": "", "new_string": "x"}]}, {"edits": [{"old_string": "one"}]}),
    *({"edits": [{**PAIR, "path": "b"}]}, {"edits": [PAIR] * 101}, {**PAIR, "expected_sha256": "abc"}),
)


async def test_arguments_that_cannot_be_meant_are_refused(editor: Bench) -> None:
    (editor.root / "a").write_bytes(b"one")
    for arguments in MEANINGLESS:
        assert (await editor.result(path="a", **arguments)).error == "invalid_input", arguments
        assert (editor.root / "a").read_bytes() == b"one"


async def test_an_edit_that_is_refused_is_explained_and_leaves_the_file(editor: Bench) -> None:
    for content, old, new, error, says in (
        (b"\tif x:\n", "    if x:", "y", "conflict", "indentation"),
        (b"one\0two", "one", "1", "invalid_input", "not a text file"),
        (b"caf\xe9", "caf", "漢", "invalid_input", "U+6F22"),
    ):
        (editor.root / "a").write_bytes(content)
        result = await editor.result(path="a", old_string=old, new_string=new)
        assert result.error == error
        assert says in result.text
        assert (editor.root / "a").read_bytes() == content


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(
        tool=PATCH, root=make(tmp_path / "root", {"a.py": b"one\ntwo\nthree\n", "b": b"1\n", "sub/c": b"3\n"})
    )


def envelope(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


CHANGE = ("*** Update File: a.py", "@@", " one", "-two", "+2")


@pytest.mark.requirement("GR-70")
async def test_several_files_change_in_one_call(bench: Bench) -> None:
    (bench.root / "b").chmod(0o750)
    result = await bench.result(
        patch=envelope(
            *CHANGE,
            *("*** Add File: new/d", "+four"),
            *("*** Update File: b", "*** Move to: moved/b", "@@", "-1", "+one"),
            *("*** Delete File: sub/c",),
        )
    )
    after = {"a.py": b"one\n2\nthree\n", "moved/b": b"one\n", "new/d": b"four\n"}
    assert held(bench.root) == after
    assert (bench.root / "moved/b").stat().st_mode & 0o777 == 0o750
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in after.items()}
    assert result.metadata()["sha256"] == hashes
    assert HANDLE.sub("", result.text).split("\n") == [
        "Patched 4 files.",
        "To undo a file: write_file with its path and the id after restore.",
        '- updated a.py: 1 hunk (12 bytes, restore "")',
        "- created new/d (5 bytes)",
        '- moved b to moved/b: 1 hunk (4 bytes, restore "" at b)',
        '- deleted sub/c (restore "")',
    ]


async def test_what_did_not_fit_exactly_is_reported_and_shown(bench: Bench) -> None:
    text = await bench.text(patch="--- a/a.py\n+++ b/a.py\n@@ -8,2 +8,2 @@\n two\n-three\n+3\n")
    assert "  - hunk 1: found at line 2 instead of 8\n--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n" in text


async def test_the_diffs_shown_have_a_bound(bench: Bench) -> None:
    long = [f"{number} {'x' * 900}" for number in range(40)]
    make(bench.root, {f"f{n}": ("\n".join(("", *long, ""))).encode() for n in range(5)})
    sections = [
        line
        for n in range(5)
        for line in (f"*** Update File: f{n}", "@@ -9 +9 @@", *(f"-{one}" for one in long), "+y")
    ]
    text = await bench.text(patch=envelope(*sections))
    assert len(text) < 5_000
    assert re.search(r"\[\d+ lines in the middle of the diff are left out; read_file shows them\]", text)


@pytest.mark.requirement("GR-70")
async def test_when_one_file_does_not_fit_none_changes(bench: Bench) -> None:
    before = held(bench.root)
    text = await bench.refusal(
        "conflict",
        patch=envelope(*CHANGE, "*** Delete File: b", "*** Update File: sub/c", "@@", "-4", "+5"),
    )
    assert "'sub/c': hunk 1 (line 9 of the patch)" in text
    assert "No file was changed." in text
    assert held(bench.root) == before


async def test_a_patch_that_changes_nothing_says_so(bench: Bench) -> None:
    text = await bench.text(patch=envelope("*** Update File: b", "@@", "-1", "+1"))
    assert text.startswith("Nothing changed")
    assert "(unchanged)" in text


async def test_what_is_no_patch_changes_nothing(bench: Bench) -> None:
    for patch in ("", "no patch", "*** Begin Patch\n*** Delete File: b", 7):
        await bench.refusal("invalid_input", patch=patch)
    await bench.refusal("invalid_input")
    assert (bench.root / "b").exists()


async def test_other_names_of_the_argument_are_known(bench: Bench) -> None:
    for name in ("input", "patchText", "diff"):
        make(bench.root, {"b": b"1\n"})
        assert (await bench.result(**{name: envelope("*** Delete File: b")})).error is None
        assert not (bench.root / "b").exists()


async def test_a_link_is_written_through_but_not_deleted_through(bench: Bench) -> None:
    (bench.root / "link").symlink_to("b")
    await bench.text(patch=envelope("*** Update File: link", "@@", "-1", "+2"))
    assert (bench.root / "b").read_bytes() == b"2\n"
    assert (bench.root / "link").is_symlink()
    for lines in (("*** Delete File: link",), ("*** Update File: link", "*** Move to: n")):
        assert "'link' leads to 'b'" in await bench.refusal("invalid_input", patch=envelope(*lines))
    assert (bench.root / "b").exists()


async def test_two_spellings_of_one_file_are_one_file(bench: Bench) -> None:
    (bench.root / "link").symlink_to("b")
    patch = envelope("*** Update File: ./b", "@@", "-1", "+2", "*** Update File: link", "@@", "-2", "+3")
    assert (await bench.text(patch=patch)).startswith("Patched 1 file.")
    assert (bench.root / "b").read_bytes() == b"3\n"
    (bench.root / "way").symlink_to("sub")
    assert "- deleted sub/c" in await bench.text(patch=envelope("*** Delete File: way/c"))


async def test_special_files_are_refused_without_waiting(bench: Bench) -> None:
    os.mkfifo(bench.root / "pipe")
    await bench.refusal("invalid_input", patch=envelope(*CHANGE, "*** Delete File: pipe"))
    await bench.refusal("invalid_input", patch=envelope(*CHANGE, "*** Delete File: sub"))
    assert held(bench.root)["a.py"] == b"one\ntwo\nthree\n"


async def test_many_more_files_than_descriptors_for_one_each_are_changed(bench: Bench) -> None:
    lines = [line for n in range(100) for line in (f"*** Add File: many/{n}/f", "+x")]
    before = len(os.listdir("/proc/self/fd"))
    assert (await bench.text(patch=envelope(*lines))).startswith("Patched 100 files.")
    assert len(os.listdir("/proc/self/fd")) <= before + 5
