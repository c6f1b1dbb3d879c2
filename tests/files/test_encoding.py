import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.lines.encoding import detect


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        pytest.param(b"", "utf-8", id="empty"),
        pytest.param(b"plain\r\n", "utf-8", id="ascii"),
        pytest.param("naïve “quotes” 漢字 🙂\n".encode(), "utf-8", id="utf-8"),
        pytest.param(b"\xef\xbb\xbfcaf\xc3\xa9\n", "utf-8 with BOM", id="utf-8-bom"),
        pytest.param(b"\xff\xfe" + "é漢🙂\r\n".encode("utf-16-le"), "utf-16-le with BOM", id="utf-16-le"),
        pytest.param(b"\xfe\xff" + "é漢🙂\r\n".encode("utf-16-be"), "utf-16-be with BOM", id="utf-16-be"),
        pytest.param(b"caf\xe9 \x93quoted\x94\r\n", "windows-1252", id="windows-1252"),
        pytest.param("русский текст".encode("cp1251"), "windows-1252", id="another-8-bit-charset"),
        pytest.param(b"a name with caf\xe9 and the byte \x81 in it\n", "latin-1", id="latin-1"),
        pytest.param(b"\x1b[31mred\x1b[0m\f\x07\n", "utf-8", id="terminal-escapes"),
        pytest.param(b"caf\xe9\r\n\x1a", "windows-1252", id="dos-end-mark"),
        pytest.param(b"a line with one \x01 among its characters\n", "utf-8", id="one-control-character"),
    ],
)
def test_a_text_file_is_recognised(raw: bytes, name: str) -> None:
    encoding = detect(raw)

    assert encoding is not None
    assert encoding.name == name
    assert encoding.encode(encoding.decode(raw)) == raw


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"text\0text", id="nul"),
        pytest.param("no mark".encode("utf-16-le"), id="utf-16-without-bom"),
        pytest.param(b"\xff\xfe" + "a\0b".encode("utf-16-le"), id="nul-in-utf-16"),
        pytest.param(b"\xff\xfe\0\0" + "abc".encode("utf-32-le"), id="utf-32"),
        pytest.param(b"\xff\xfea", id="half-a-unit-of-utf-16"),
        pytest.param(b"\xff\xfe\x00\xd8a\x00", id="half-a-surrogate-pair"),
        pytest.param(b"\x01\x02\x03\x04abcd", id="control-characters"),
        pytest.param(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", id="png"),
        pytest.param(b"\xff\xd8\xff\xe0\x00\x10JFIF", id="jpeg"),
        pytest.param(b"\x1f\x8b\x08\x08\x83\xf5\x16h\x02\x03", id="gzip"),
        pytest.param(bytes(range(0x80, 0x100)), id="bytes-that-no-text-has"),
    ],
)
def test_a_binary_file_has_no_encoding(raw: bytes) -> None:
    assert detect(raw) is None


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


def test_a_whole_file_that_ends_within_a_character_is_not_utf_8() -> None:
    encoding = detect("naïve café".encode()[:-1])

    assert encoding is not None
    assert encoding.name == "windows-1252"


@given(st.one_of(st.binary(), st.text().map(str.encode), st.text().map(lambda text: text.encode("utf-16"))))
def test_what_is_accepted_comes_back_byte_by_byte(raw: bytes) -> None:
    encoding = detect(raw)

    assert encoding is None or encoding.encode(encoding.decode(raw)) == raw


@given(st.binary(min_size=1), st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"]))
def test_a_mark_is_never_part_of_the_text_nor_lost(content: bytes, mark: bytes) -> None:
    raw = mark + content
    encoding = detect(raw)

    assert encoding is None or encoding.encode(encoding.decode(raw)) == raw


def test_a_character_that_the_encoding_lacks_is_refused() -> None:
    encoding = detect(b"caf\xe9")

    assert encoding is not None
    with pytest.raises(UnicodeEncodeError):
        encoding.encode("漢")
