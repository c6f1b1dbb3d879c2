"""What head and tail show."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_toolserver.tools.files import head, tail
from tests.support.calling import Bench, make

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
