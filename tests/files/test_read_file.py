"""What read_file answers."""

import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.tools.files.read_file import TOOL
from tests.support.workbench import Person, dispatcher, machine

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


async def call(root: Path, path: str, tool: str = "read_file", **arguments: Any) -> Result:
    server = dispatcher(machine(root.parent), Entry(TOOL, toolset="files"), ceiling=Permission.READ_ONLY)
    with anyio.fail_after(30):
        return await server.call(tool, {"path": path, **arguments}, Person())


async def refusal(root: Path, path: str, *, kind: str, **arguments: Any) -> str:
    """The text of a call that must fail."""
    result = await call(root, path, **arguments)
    assert result.error == kind
    return result.text


async def test_lines_are_numbered_from_one(root: Path) -> None:
    (root / "f").write_bytes(b"one\n\nthree")
    assert (await call(root, "f")).text == "1\tone\n2\t\n3\tthree"


async def test_a_page_says_where_it_is_and_how_to_go_on(root: Path) -> None:
    (root / "f").write_bytes(b"".join(b"%d\n" % number for number in range(1, 11)))
    output = await call(root, "f", offset=2, limit=3)
    assert output.text == "3\t3\n4\t4\n5\t5\n[lines 3-5 of 10; go on with offset=5]"
    assert not output.truncated
    assert (await call(root, "f", offset=7, limit=3)).text == "8\t8\n9\t9\n10\t10"


async def test_without_a_limit_2000_lines_are_read(root: Path) -> None:
    (root / "f").write_bytes(b"x\n" * 2001)
    output = await call(root, "f")
    assert output.text.endswith("2000\tx\n[lines 1-2000 of 2001; go on with offset=2000]")
    assert output.truncated
    (root / "f").write_bytes(b"x\n" * 2000)
    assert (await call(root, "f")).text.endswith("2000\tx")


async def test_pages_cut_by_size_fit_the_limit_of_the_answer_and_join_up(root: Path) -> None:
    lines = [f"{number} " + "x" * (number % 700) for number in range(1500)]
    (root / "f").write_text("\n".join(lines), encoding="utf-8")
    seen: list[str] = []
    offset = 0
    while True:
        output = await call(root, "f", offset=offset)
        assert len(output.text.encode()) <= TOOL.limits.output_bytes
        *shown, note = output.text.split("\n")
        following = re.fullmatch(r"\[lines .*; go on with offset=(\d+)\]", note)
        seen += [line.split("\t", 1)[1] for line in (shown if following else [*shown, note])]
        if following is None:
            break
        assert output.truncated
        offset = int(following[1])
    assert seen == lines


async def test_a_line_longer_than_an_answer_is_cut_and_measured(root: Path) -> None:
    (root / "f").write_bytes(b"x" * 300_000 + b"\nlast\n")
    output = await call(root, "f")
    assert output.truncated
    assert "300000 bytes" in output.text
    assert output.text.endswith("[lines 1-1 of 2; go on with offset=1]")
    assert len(output.text) <= TOOL.limits.output_bytes


async def test_an_empty_file_and_an_offset_past_the_end_are_reported(root: Path) -> None:
    (root / "empty").touch()
    (root / "f").write_bytes(b"x\n")
    assert (await call(root, "empty")).text == "[the file is empty]"
    assert (await call(root, "f", offset=5)).text == "[nothing at offset 5: the file has 1 lines]"


async def test_an_unusual_encoding_or_line_ending_is_reported(root: Path) -> None:
    for content, note in (
        (b"a\r\n", "[CRLF line endings]"),
        (b"a\r\na\n", "[mixed line endings]"),
        (b"caf\xe9\n", "[windows-1252]"),
        ("a\r\n".encode("utf-8-sig"), "[utf-8 with BOM, CRLF line endings]"),
    ):
        (root / "f").write_bytes(content)
        assert (await call(root, "f")).text.split("\n")[-1] == note


async def test_a_big_file_is_read_in_slices_only(root: Path) -> None:
    with (root / "big").open("wb") as file:
        file.write(b"head\n" * 20_000)
        file.truncate(10 * 1024 * 1024)
    assert (await call(root, "big")).text.startswith("1\thead\n")
    with (root / "big").open("ab") as file:
        file.write(b"\n")
    text = await refusal(root, "big", kind="invalid_input")
    assert "10485761" in text
    assert (await call(root, "big", offset=3, limit=1)).text.startswith("4\thead\n[lines 4-4 of 20001;")


async def test_images_are_shown_by_content_not_by_name(root: Path) -> None:
    for content, mime_type in (
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 20, "image/jpeg"),
        (b"GIF89a" + b"\0" * 20, "image/gif"),
        (b"GIF87a" + b"\0" * 20, "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 " + b"\0" * 20, "image/webp"),
    ):
        (root / "f.txt").write_bytes(content)
        output = await call(root, "f.txt")
        assert [(image.data, image.mime_type) for image in output.images] == [(content, mime_type)]
        assert output.text == f"f.txt: {mime_type}, {len(content)} bytes"


async def test_an_image_too_big_to_be_shown_is_refused(root: Path) -> None:
    with (root / "f.png").open("wb") as file:
        file.write(PNG)
        file.truncate(5 * 1024 * 1024)
    assert len((await call(root, "f.png")).images[0].data) == 5 * 1024 * 1024
    with (root / "f.png").open("ab") as file:
        file.write(b"\0")
    await refusal(root, "f.png", kind="invalid_input")


async def test_drawings_in_svg_are_text_and_other_binary_files_are_refused(root: Path) -> None:
    (root / "f.svg").write_bytes(b"<svg/>")
    (root / "f.bmp").write_bytes(b"BM\0\0\0\0")
    (root / "f.wav").write_bytes(b"RIFF\x10\0\0\0WAVEfmt ")
    assert (await call(root, "f.svg")).text == "1\t<svg/>"
    for name in ("f.bmp", "f.wav"):
        await refusal(root, name, kind="invalid_input")


async def test_what_is_no_file_is_refused(root: Path) -> None:
    (root / "folder").mkdir()
    text = await refusal(root, "folder", kind="invalid_input")
    assert "glob_search" in text
    await refusal(root, "gone", kind="not_found")


async def test_other_names_count_lines_from_one_and_take_file_path(root: Path) -> None:
    (root / "f").write_bytes(b"a\nb\nc\n")
    for offset, first in ((0, "1\ta"), (1, "1\ta"), (2, "2\tb")):
        for name in ("Read", "read"):
            assert (await call(root, "f", name, offset=offset, limit=1)).text.split("\n")[0] == first
        own = await call(root, "f", offset=offset, limit=1)
        assert own.text.startswith(f"{offset + 1}\t")
    await refusal(root, "f", tool="Read", offset=-1, kind="invalid_input")
    server = dispatcher(machine(root.parent), Entry(TOOL, toolset="files"))
    for tool in ("read_file", "Read", "read"):
        assert (await server.call(tool, {"file_path": "f"}, Person())).text == "1\ta\n2\tb\n3\tc"


async def test_a_name_that_no_file_can_have_is_refused(root: Path) -> None:
    assert "255 bytes" in await refusal(root, "a/" + "ä" * 128, kind="invalid_input")
