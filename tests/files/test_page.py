"""Text files: their encodings, and pages of them with the right lines and counts, in constant memory."""

import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.lines import page as module
from mcp_toolserver.text.lines.encoding import detect
from mcp_toolserver.text.lines.page import Page, page

TEXTS = {
    "utf-8": (
        *(b"", b"plain\r\n", "naïve “quotes” 漢字 🙂\n".encode(), b"\x1b[31mred\x1b[0m\f\x07\n"),
        b"a line with one \x01 among its characters\n",
    ),
    "utf-8 with BOM": (b"\xef\xbb\xbfcaf\xc3\xa9\n",),
    "utf-16-le with BOM": (b"\xff\xfe" + "é漢🙂\r\n".encode("utf-16-le"),),
    "utf-16-be with BOM": (b"\xfe\xff" + "é漢🙂\r\n".encode("utf-16-be"),),
    "windows-1252": (
        *(b"caf\xe9 \x93quoted\x94\r\n", "русский текст".encode("cp1251"), b"caf\xe9\r\n\x1a"),
        # A character that is not whole, in a whole file.
        "naïve café".encode()[:-1],
    ),
    "latin-1": (b"a name with caf\xe9 and the byte \x81 in it\n",),
}
BINARY = (
    *(b"text\0text", "no mark".encode("utf-16-le"), b"\xff\xfe" + "a\0b".encode("utf-16-le")),
    # UTF-32, half a unit of UTF-16, and half a surrogate pair.
    *(b"\xff\xfe\0\0" + "abc".encode("utf-32-le"), b"\xff\xfea", b"\xff\xfe\x00\xd8a\x00"),
    *(b"\x01\x02\x03\x04abcd", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\xff\xd8\xff\xe0\x00\x10JFIF"),
    *(b"\x1f\x8b\x08\x08\x83\xf5\x16h\x02\x03", bytes(range(0x80, 0x100))),
)


def test_a_text_file_is_recognised_and_a_binary_file_is_not() -> None:
    for name, contents in TEXTS.items():
        for raw in contents:
            encoding = detect(raw)
            assert encoding is not None, raw
            assert encoding.name == name, raw
            assert encoding.encode(encoding.decode(raw)) == raw
    assert [raw for raw in BINARY if detect(raw) is not None] == []


def test_a_prefix_may_end_within_a_character() -> None:
    text = "é漢🙂"
    for raw, name in (
        (text.encode(), "utf-8"),
        (b"\xef\xbb\xbf" + text.encode(), "utf-8 with BOM"),
        (b"\xff\xfe" + text.encode("utf-16-le"), "utf-16-le with BOM"),
    ):
        for end in range(3, len(raw)):
            encoding = detect(raw[:end], complete=False)
            assert encoding is not None
            assert encoding.name == name


ANY = st.one_of(st.binary(), st.text().map(str.encode), st.text().map(lambda text: text.encode("utf-16")))


@given(ANY, st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"]))
def test_what_is_accepted_comes_back_byte_by_byte_with_its_mark(content: bytes, mark: bytes) -> None:
    raw = mark + content
    encoding = detect(raw)

    assert encoding is None or encoding.encode(encoding.decode(raw)) == raw


PLENTY = 1_000_000


def of(content: bytes, **asked: int) -> Page:
    return page(io.BytesIO(content), **{"skip": 0, "take": 2000, "max_bytes": PLENTY, **asked})


@given(
    text=st.text(st.sampled_from("ab\n\réx€😀\u0a0a\u2028\x0c\x85"), max_size=60),
    skip=st.integers(0, 8),
    take=st.integers(1, 8),
    chunk=st.integers(1, 7),
    codec=st.sampled_from(
        [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")]
    ),
)
def test_a_page_is_a_slice_of_all_lines(
    text: str, skip: int, take: int, chunk: int, codec: tuple[str, bytes]
) -> None:
    content = codec[1] + text.encode(codec[0])
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    lines = lines[:-1] if not text or text.endswith("\n") else lines
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SAMPLE", 4)
        patch.setattr(module, "_CHUNK", chunk)
        found = of(content, skip=skip, take=take)
        inside = of(content, skip=skip, take=take, column=2)
    assert list(found.lines) == lines[skip : skip + take]
    rest = [line.encode()[2:].decode(errors="ignore") for line in lines[skip : skip + 1]]
    assert list(inside.lines) == [*rest, *lines[skip + 1 : skip + take]]
    assert found.total == len(lines)
    assert found.next_skip == (skip + take if skip + take < len(lines) else None) or not found.lines


def test_a_page_is_cut_exactly_at_its_bytes() -> None:
    content = b"aaaa\nbbbb\n"
    whole = of(content, max_bytes=len("1\taaaa\n2\tbbbb\n"))
    assert (whole.lines, whole.cut_by_bytes, whole.next_skip) == (("aaaa", "bbbb"), False, None)
    cut = of(content, max_bytes=len("1\taaaa\n2\tbbbb\n") - 1)
    assert (cut.lines, cut.cut_by_bytes, cut.next_skip) == (("aaaa",), True, 1)


def test_a_line_longer_than_a_page_is_cut_between_characters() -> None:
    for line in ("x" * 1000, "é" * 500, "€" * 333, "😀" * 250):
        for room in range(100, 104):
            found = of(f"short\n{line}\nlast\n".encode(), skip=1, max_bytes=room)
            (shown,) = found.lines
            assert line.startswith(shown)
            assert room - 6 <= len(shown.encode()) <= room - 3
            assert (found.long_line, found.cut_by_bytes) == ((len(shown.encode()), len(line.encode())), True)
            assert found.next_skip == 2
            assert of(f"short\n{line}\nlast\n".encode(), max_bytes=room).lines == ("short",)


def test_what_starts_as_ascii_and_turns_out_to_be_latin_is_read_as_such() -> None:
    content = b"ascii\n" * 20_000 + b"caf\xe9\n"
    found = of(content, skip=20_000)
    assert (found.lines, found.encoding) == (("café",), "windows-1252")
    assert of(content, skip=0, take=3).encoding == "utf-8"


def test_bytes_that_are_no_text_far_into_a_file_do_not_stop_the_reading() -> None:
    found = of(b"ascii\n" * 20_000 + b"\0\xff\x81\n", skip=20_000)
    assert len(found.lines) == 1


def test_a_slice_of_a_huge_file_costs_constant_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "huge.log", 1024**3 // 4
    with path.open("wb") as file:
        file.write(b"head\n" * 20_000)
        file.seek(size // 2)  # the holes read as one line of 128 MB each
        file.write(b"\n" + b"".join(b"line %d\n" % number for number in range(1000)))
        file.seek(size - 5)
        file.write(b"\nend\n")
    tracemalloc.start()
    try:
        with path.open("rb") as file:
            found = page(file, skip=20_001 + 450, take=100, max_bytes=PLENTY)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert found.lines == tuple(f"line {number}" for number in range(450, 550))
    assert (found.first, found.last, found.total) == (20_452, 20_551, 21_003)
    with path.open("rb") as file:
        long = page(file, skip=20_000, take=1, max_bytes=1000)
    assert long.long_line == (1000 - 7, size // 2 - 100_000)
    assert len(long.lines[0]) == 1000 - 7
