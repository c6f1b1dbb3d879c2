"""What read_file, head, tail, view_image and diff answer."""

import os
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.tools.files import head, tail
from mcp_toolserver.tools.files.read_file import TOOL as READ
from mcp_toolserver.tools.files.view_image import TOOL as VIEW
from mcp_toolserver.tools.search.diff import TOOL as DIFF
from tests.support.calling import Bench, make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=READ, root=make(tmp_path / "root", {}), ceiling=Permission.READ_ONLY)


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
        assert len(output.text.encode()) <= READ.limits.output_bytes
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
    picture = png(3, 2)
    (bench.root / "f.txt").write_bytes(picture)
    output = await bench.result(path="f.txt")
    assert [(image.data, image.mime_type) for image in output.images] == [(picture, "image/png")]
    assert output.text == f"f.txt: image/png, 3 x 2 pixels, {len(picture)} bytes"
    (bench.root / "f.txt").write_bytes(picture + bytes(5 << 20))
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


NUMBERS = b"".join(b"%d\n" % number for number in range(1, 101))


@pytest.fixture
def first(tmp_path: Path) -> Bench:
    return Bench(tool=head.TOOL, root=make(tmp_path / "root", {"f": NUMBERS}))


@pytest.fixture
def last(first: Bench) -> Bench:
    return replace(first, tool=tail.TOOL)


async def test_ten_lines_are_shown_or_as_many_as_are_asked_for(first: Bench, last: Bench) -> None:
    *lines, note = (await first.text(path="f")).split("\n")
    assert lines == [str(number) for number in range(1, 11)]
    assert note == "[the first 10 lines of 292 bytes; read_file goes on with offset=10]"
    *lines, note = (await last.text(path="f")).split("\n")
    assert lines == [str(number) for number in range(91, 101)]
    assert note == "[the last 10 lines of 292 bytes; set lines to see more]"
    assert (await first.text(path="f", lines=1)).startswith("1\n[the first line of")
    assert (await last.text(file_path="f", lines=1)).startswith("100\n[the last line of")
    assert await first.text(path="f", lines=100) == NUMBERS.decode().rstrip("\n")
    assert await last.text(path="f", lines=1_000) == NUMBERS.decode().rstrip("\n")
    await last.refusal("invalid_input", path="f", lines=-1)


SHORT = {
    b"": "[the file is empty]",
    b"one": "one",
    b"\n": "",
    b"a\n\n": "a\n",
    b"a\r\nb\r\n": "a\nb\n[CRLF line endings]",
    b"\xef\xbb\xbfa\n": "a\n[utf-8 with BOM]",
    "é\n".encode("utf-16"): "é\n[utf-16-le with BOM]",
    b"caf\xe9\n": "café\n[windows-1252]",
}


async def test_a_short_file_is_shown_whole_by_both(first: Bench, last: Bench) -> None:
    for content, shown in SHORT.items():
        (first.root / "f").write_bytes(content)
        assert await first.text(path="f") == shown
        assert await last.text(path="f") == shown


async def test_of_a_huge_file_only_the_end_is_read(last: Bench, first: Bench) -> None:
    with open(last.root / "huge", "wb") as file:
        file.write(b"start\n" * 20_000)
        file.seek(1 << 40)
        file.write("\nthe é end\n".encode())
    assert (await last.text(path="huge", lines=1)).startswith("the é end\n")
    assert (await first.text(path="huge", lines=1)).startswith("start\n")


async def test_lines_that_do_not_fit_are_cut_and_it_is_said(first: Bench, last: Bench) -> None:
    (first.root / "f").write_bytes(b"a" * 30_000 + b"\n" + b"b" * 30_000 + b"\n")
    result = await first.result(path="f")
    assert result.truncated
    assert result.text.startswith("a" * 30_000 + "\n" + "b" * 9_000)
    assert "cut to what fits" in result.text.split("\n")[-1]
    assert "offset=1]" in result.text
    result = await last.result(path="f")
    assert result.truncated
    assert "b" * 30_000 in result.text
    assert len(result.text) < 41_000
    assert "grep_search" in result.text.split("\n")[-1]


async def test_a_line_longer_than_what_is_looked_at_is_shown_in_part(first: Bench, last: Bench) -> None:
    (first.root / "f").write_bytes(b"a" * 400_000 + b"z")
    assert (await first.result(path="f")).text.startswith("a" * 39_500)
    assert "az\n[" in (await last.result(path="f")).text


async def test_many_lines_of_a_big_utf_16_file_are_whole(last: Bench) -> None:
    (last.root / "f").write_bytes("".join(f"line {n}\n" for n in range(30_000)).encode("utf-16"))
    assert (await last.text(path="f", lines=2)).startswith("line 29998\nline 29999\n")


async def test_only_text_files_are_shown(first: Bench, last: Bench) -> None:
    (first.root / "binary").write_bytes(b"\0\1\2")
    os.mkfifo(first.root / "pipe")
    for bench in (first, last):
        for path in ("binary", "pipe", "."):
            await bench.refusal("invalid_input", path=path)
        await bench.refusal("not_found", path="gone")


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    rows = (b"\0" + bytes((width + 7) // 8)) * height
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes(3)
    return b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14) + b"\xff\xff\x01" + frame + b"\xff\xd9"


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + bytes(4) + b"WEBP" + kind + bytes(4) + body


PICTURES = {
    "largest": (png(8_000, 1), "image/png", (8_000, 1)),
    "jpeg": (jpeg(640, 480), "image/jpeg", (640, 480)),
    "old-gif": (b"GIF87a" + struct.pack("<HH", 7, 9) + bytes(10), "image/gif", (7, 9)),
    "gif": (b"GIF89a" + struct.pack("<HH", 7, 9) + bytes(10), "image/gif", (7, 9)),
    "webp-lossy": (
        webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 0x4000 | 33, 44)),
        "image/webp",
        (33, 44),
    ),
    "webp-lossless": (webp(b"VP8L", b"\x2f" + struct.pack("<I", 54 | 65 << 14)), "image/webp", (55, 66)),
    "webp-extended": (
        webp(b"VP8X", bytes(4) + (76).to_bytes(3, "little") + (87).to_bytes(3, "little")),
        "image/webp",
        (77, 88),
    ),
}


@pytest.fixture
def viewer(tmp_path: Path) -> Bench:
    return Bench(tool=VIEW, root=make(tmp_path / "root", {"ok.png": png(1, 1)}))


async def test_a_picture_is_shown_as_it_is_with_its_size(viewer: Bench) -> None:
    for data, mime_type, (width, height) in PICTURES.values():
        (viewer.root / "picture").write_bytes(data)
        result = await viewer.result(path="picture")
        assert result.text == f"picture: {mime_type}, {width} x {height} pixels, {len(data)} bytes"
        [image] = result.images
        assert (image.data, image.mime_type) == (data, mime_type)


REFUSED = {
    "BMP": (b"BM" + bytes(20),),
    "PDF": (b"%PDF-1.7\n",),
    "AVIF": (b"\0\0\0\x20ftypavif",),
    "no PNG": (b"text\n", b""),
    "damaged": (
        *(png(3, 2)[:18], png(0, 2), jpeg(1, 1)[:22], b"\xff\xd8\xff\xe0\0\x02junk"),
        *(webp(b"VP9 ", bytes(20)), b"\xff\xd8\xff\xd9\0\0\0"),
    ),
    "1 x 8001": (png(1, 8_001),),
    "bytes": (png(1, 1) + bytes(5 << 20),),
}


async def test_what_no_model_takes_is_refused_with_the_reason(viewer: Bench) -> None:
    for what, pictures in REFUSED.items():
        for data in pictures:
            (viewer.root / "picture").write_bytes(data)
            assert what in await viewer.refusal("invalid_input", path="picture")


@pytest.fixture
def differ(tmp_path: Path) -> Bench:
    files = {"a": b"one\ntwo\n", "sub/b": b"one\n2\n", "same": b"one\ntwo\n"}
    return Bench(tool=DIFF, root=make(tmp_path / "root", files))


async def test_two_files_are_compared_and_both_are_named(differ: Bench) -> None:
    assert await differ.text(path="a", other_path="sub/b") == (
        "--- a/a\n+++ b/sub/b\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    )


async def test_line_endings_and_a_missing_last_one_are_differences(differ: Bench) -> None:
    make(differ.root, {"crlf": b"one\r\ntwo\n", "open": b"one\ntwo"})
    assert "-one\n" in await differ.text(path="a", other_path="crlf")
    assert "\\ No newline at end of file" in await differ.text(path="a", other_path="open")


async def test_encodings_are_reported_where_they_differ(differ: Bench) -> None:
    make(
        differ.root, {"wide": "one\ntwo\n".encode("utf-16"), "latin": b"caf\xe9\n", "utf": "café!\n".encode()}
    )
    text = await differ.text(path="a", other_path="wide")
    assert text == "The text is the same, but not its encoding.\n[a is utf-8, wide is utf-16-le with BOM]"
    text = await differ.text(path="latin", other_path="utf")
    assert text.endswith("-café\n+café!\n[latin is windows-1252, utf is utf-8]")


async def test_files_that_are_no_text_are_only_said_to_differ(differ: Bench) -> None:
    make(differ.root, {"x": b"\0\1", "y": b"\0\1"})
    assert "2 and 8 bytes" in await differ.text(path="x", other_path="a")
    assert "8 and 2 bytes" in await differ.text(path="a", other_path="x")
    assert await differ.text(path="x", other_path="y") == "The files are identical."


async def test_a_file_too_large_is_refused(differ: Bench) -> None:
    with open(differ.root / "big", "wb") as file:
        file.truncate(10 * 1024 * 1024 + 1)
    await differ.refusal("invalid_input", path="a", other_path="big")
