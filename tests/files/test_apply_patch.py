"""What apply_patch does to a folder, and what it answers."""

import hashlib
import os
import re
from pathlib import Path

import pytest

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.lines.encoding import encoding_of
from mcp_toolserver.tools.files.apply_patch import TOOL
from tests.support.calling import HANDLE, Bench, held, make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(
        tool=TOOL, root=make(tmp_path / "root", {"a.py": b"one\ntwo\nthree\n", "b": b"1\n", "sub/c": b"3\n"})
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
    with pytest.raises(InvalidInput):
        encoding_of("f", b"\0")


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
