"""Which encoding the bytes of a file have, and that they survive it."""

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.lines.encoding import detect

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
