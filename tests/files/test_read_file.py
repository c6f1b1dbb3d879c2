"""What read_file answers."""

import re
from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.tools.files.read_file import TOOL
from tests.support.calling import Bench, make

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\3\0\0\0\2" + b"\0" * 20
"""The beginning of a picture."""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=TOOL, root=make(tmp_path / "root", {}), ceiling=Permission.READ_ONLY)


@pytest.mark.requirement("SW-58")
async def test_lines_are_numbered_from_one(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"one\n\nthree")
    assert (await bench.text(path="f")) == "1\tone\n2\t\n3\tthree"


async def test_a_page_says_where_it_is_and_how_to_go_on(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"".join(b"%d\n" % number for number in range(1, 11)))
    output = await bench.result(path="f", offset=2, limit=3)
    assert output.text == "3\t3\n4\t4\n5\t5\n[lines 3-5 of 10; go on with offset=5]"
    assert not output.truncated
    assert (await bench.result(path="f", offset=7, limit=3)).text == "8\t8\n9\t9\n10\t10"


async def test_without_a_limit_2000_lines_are_read(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"x\n" * 2001)
    output = await bench.result(path="f")
    assert output.text.endswith("2000\tx\n[lines 1-2000 of 2001; go on with offset=2000]")
    assert output.truncated
    (bench.root / "f").write_bytes(b"x\n" * 2000)
    assert (await bench.text(path="f")).endswith("2000\tx")


async def test_pages_cut_by_size_fit_the_limit_of_the_answer_and_join_up(bench: Bench) -> None:
    lines = [f"{number} " + "x" * (number % 700) for number in range(1500)]
    (bench.root / "f").write_text("\n".join(lines), encoding="utf-8")
    seen: list[str] = []
    offset = 0
    while True:
        output = await bench.result(path="f", offset=offset)
        assert len(output.text.encode()) <= TOOL.limits.output_bytes
        *shown, note = output.text.split("\n")
        following = re.fullmatch(r"\[lines .*; go on with offset=(\d+)\]", note)
        seen += [line.split("\t", 1)[1] for line in (shown if following else [*shown, note])]
        if following is None:
            break
        assert output.truncated
        offset = int(following[1])
    assert seen == lines


async def test_a_line_longer_than_an_answer_comes_in_pages_that_join_up(bench: Bench) -> None:
    line = "".join(f"{number} é" for number in range(20_000))
    (bench.root / "f").write_text(f"first\n{line}\r\nlast\r\n", encoding="utf-8")
    seen, note, where = "", "", {"offset": 1}
    while where:
        output = await bench.result(path="f", **where)
        shown, note, *_ = output.text.split("\n")
        seen += shown.removeprefix("2\t")
        assert len(output.text.encode()) <= 41_000
        found = re.search(r"of line 2; go on inside it with offset=1, column=(\d+)\]", note)
        assert output.truncated is (found is not None)
        where = {"offset": 1, "column": int(found[1])} if found else {}
    assert seen == line
    assert note == "3\tlast"
    past = await bench.text(path="f", offset=2, column=99)
    assert past == "3\t\n[bytes 5-5 of the 5 of line 3]"


async def test_a_negative_offset_counts_from_the_end(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"a\nb\nc\n")
    for asked in ({"offset": -2}, {"tail": 2}, {"view_range": [2, -1]}):
        assert await bench.text(path="f", **asked) == "2\tb\n3\tc"
    assert await bench.text(path="f", offset=-9) == "1\ta\n2\tb\n3\tc"


async def test_an_empty_file_and_an_offset_past_the_end_are_reported(bench: Bench) -> None:
    (bench.root / "empty").touch()
    (bench.root / "f").write_bytes(b"x\n")
    assert (await bench.text(path="empty")) == "[the file is empty]"
    assert (await bench.result(path="f", offset=5)).text == "[nothing at offset 5: the file has 1 lines]"


async def test_an_unusual_encoding_or_line_ending_is_reported(bench: Bench) -> None:
    for content, note in (
        (b"a\r\n", "[CRLF line endings]"),
        (b"a\r\na", "[CRLF line endings]"),
        (b"a\r\na\n", "[mixed line endings]"),
        ("a\r\n".encode("utf-16"), "[utf-16-le with BOM, CRLF line endings]"),
        (b"caf\xe9\n", "[windows-1252]"),
        ("a\r\n".encode("utf-8-sig"), "[utf-8 with BOM, CRLF line endings]"),
    ):
        (bench.root / "f").write_bytes(content)
        assert (await bench.text(path="f")).split("\n")[-1] == note


async def test_a_big_file_is_read_in_slices_only(bench: Bench) -> None:
    with (bench.root / "big").open("wb") as file:
        file.write(b"head\n" * 20_000)
        file.truncate(10 * 1024 * 1024)
    assert (await bench.text(path="big")).startswith("1\thead\n")
    with (bench.root / "big").open("ab") as file:
        file.write(b"\n")
    text = await bench.refusal("invalid_input", path="big")
    assert "10485761" in text
    assert (await bench.result(path="big", offset=3, limit=1)).text.startswith(
        "4\thead\n[lines 4-4 of 20001;"
    )
    assert (await bench.result(path="big", offset=-1)).text.startswith("20001\t")


async def test_images_are_shown_by_content_not_by_name_up_to_a_size(bench: Bench) -> None:
    (bench.root / "f.txt").write_bytes(PNG)
    output = await bench.result(path="f.txt")
    assert [(image.data, image.mime_type) for image in output.images] == [(PNG, "image/png")]
    assert output.text == f"f.txt: image/png, 3 x 2 pixels, {len(PNG)} bytes"
    (bench.root / "f.txt").write_bytes(PNG + bytes(5 << 20))
    await bench.refusal("invalid_input", path="f.txt")


async def test_drawings_in_svg_are_text_and_other_binary_files_are_refused(bench: Bench) -> None:
    (bench.root / "f.svg").write_bytes(b"<svg/>")
    (bench.root / "f.bmp").write_bytes(b"BM\0\0\0\0")
    (bench.root / "f.wav").write_bytes(b"RIFF\x10\0\0\0WAVEfmt ")
    assert (await bench.text(path="f.svg")) == "1\t<svg/>"
    for name in ("f.bmp", "f.wav"):
        await bench.refusal("invalid_input", path=name)


async def test_what_is_no_file_is_refused(bench: Bench) -> None:
    (bench.root / "folder").mkdir()
    text = await bench.refusal("invalid_input", path="folder")
    assert "glob_search" in text
    await bench.refusal("not_found", path="gone")


async def test_a_name_that_no_file_can_have_is_refused(bench: Bench) -> None:
    assert "255 bytes" in await bench.refusal("invalid_input", path="a/" + "ä" * 128)
