"""The parts of the LSP tool that need no server: counting along lines, messages, forms of definitions."""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.code import CodeEdit, CodeQuery, ProposedFile
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.runtime.lsp.connection import (
    MOST_BYTES,
    FrameDecoder,
    ProtocolError,
)
from mcp_toolserver.runtime.lsp.documents import FileWatcher, to_path, to_uri
from mcp_toolserver.runtime.lsp.pool import find_executables, search_folders
from mcp_toolserver.text.code.languages import CODE_GLOB, LANGUAGES, code_glob, code_language
from mcp_toolserver.text.code.positions import (
    Encoding,
    InvalidEdit,
    apply_edits,
    asked_place,
    code_lines,
    definition_pattern,
    definitions,
    symbol_at,
    symbol_starts,
    to_index,
    to_units,
)
from mcp_toolserver.text.edit.unified_diff import cut_middle
from mcp_toolserver.text.search.glob import matcher
from mcp_toolserver.tools.lsp.lsp_edit import edit_text
from tests.support.cases import table
from tests.support.extent import examples

LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
ENCODINGS = st.sampled_from(["utf-8", "utf-16", "utf-32"])


@examples(20)
@given(LINES, ENCODINGS, st.integers(), st.data())
def test_whatever_a_server_counts_leads_into_the_line_and_what_we_count_to_the_same_character(
    line: str, encoding: Encoding, units: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(line)))
    assert to_index(line, to_units(line, index, encoding), encoding) == index
    assert 0 <= to_index(line, units, encoding) <= len(line)


def test_lines_break_where_the_protocol_says() -> None:
    assert code_lines("a\nb\r\nc\rd\x0be\u2028f\n") == ["a", "b", "c", "d\x0be\u2028f", ""]


def test_the_name_at_a_place_is_found() -> None:
    assert symbol_at("a.doubled(x)", 2) == symbol_at("a.doubled(x)", 9) == "doubled"
    assert symbol_at("größe = 1", 3) == "größe"
    assert symbol_at("$x + 1", 0) == "$x"
    assert symbol_at("a + 12", 5) == symbol_at("", 0) == ""
    lines = {"undoubled doubled": [10], "undoubled": [2], "nothing": [], "doubled$ doubled": [9]}
    assert {line: symbol_starts(line, "doubled") for line in lines} == lines


@examples(20)
@given(st.binary())
def test_no_stream_breaks_the_frames(stream: bytes) -> None:
    with suppress(ProtocolError):
        assert all(len(body) <= len(stream) for body in FrameDecoder().feed(stream))


def test_a_stream_may_begin_with_a_warning_a_header_say_more_and_a_message_be_of_the_greatest_size() -> None:
    assert FrameDecoder().feed(b"WARNING: new version\nContent-Length: 2\r\n\r\n{}") == [b"{}"]
    assert FrameDecoder().feed(b"Content-Type: x\r\ncontent-length:  2 \r\n\r\n{}") == [b"{}"]
    assert FrameDecoder().feed(b"Content-Length: %d\r\n\r\n" % MOST_BYTES) == []
    with pytest.raises(ProtocolError, match="more than 16,777,216 bytes"):
        FrameDecoder().feed(b"Content-Length: %d\r\n\r\n" % (MOST_BYTES + 1))


def test_an_address_means_its_path() -> None:
    for path in ("/a/b c.py", "/é/𝒳.py", "/a%20b#?.py", os.fsdecode(b"/\xff.py")):
        assert to_path(to_uri(path)) == path


def test_every_language_has_a_server_and_files() -> None:
    for language in LANGUAGES:
        assert language.servers, language.name
        assert all(code_language(f"x.{end}") is language for end in language.ids)
    matches = {path: matcher(code_glob(path) or "")("in/y.cc") for path in ("x.h", "x.go", "x.odd")}
    assert matches == {"x.h": True, "x.go": False, "x.odd": False}
    assert code_glob("Makefile") is None
    assert all(matcher(glob)("in/y.go") for glob in (code_glob("x.go") or "", CODE_GLOB))


def test_a_definition_is_known_by_its_form() -> None:
    wrong: list[str] = []
    for answer, line in table(Path(__file__).with_name("definitions.txt")):
        defines = answer == "yes"
        found = [(one.name, line[one.index]) for one in definitions([line], "f")]
        if found != [("f", "f")] * defines or (defines and not re.search(definition_pattern("f"), line)):
            wrong.append(line)
    assert not wrong


@examples(20)
@given(st.text(st.sampled_from("f =(){};:class<>*&\n\"'#/.")))
def test_no_line_keeps_the_forms_busy(text: str) -> None:
    line = (text * 1_000)[:5_000]
    assert len(list(definitions([line]))) <= 1


def test_changes_are_seen_by_kind(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "Makefile", "c.txt", "in/d.py", ".dot/e.py", "node_modules/f.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / ".dot")
    watch = FileWatcher(str(tmp_path), (".py",), ("Makefile",))
    assert _names(watch, tmp_path) == {"a.py": 1, "b.py": 1, "Makefile": 1, "in/d.py": 1}
    assert len(watch) == 4
    assert _names(watch, tmp_path) == {}
    (tmp_path / "a.py").unlink()
    (tmp_path / "b.py").write_text("longer", encoding="utf-8")
    (tmp_path / "new").mkdir()
    (tmp_path / "new/g.py").write_text("x", encoding="utf-8")
    (tmp_path / "in").rename(tmp_path / "out")
    assert _names(watch, tmp_path) == {"a.py": 3, "b.py": 2, "new/g.py": 1, "in/d.py": 3, "out/d.py": 1}


def test_a_folder_that_just_changed_is_listed_anew(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x", encoding="utf-8")
    watch = FileWatcher(str(tmp_path), (".py",), ())
    watch.poll()
    before = tmp_path.stat()
    (tmp_path / "b.py").write_text("x", encoding="utf-8")
    # As if the file system's clock had not ticked.
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert _names(watch, tmp_path) == {"b.py": 1}


def test_a_folder_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    watch = FileWatcher(str(tmp_path / "there"), (".py",), ())
    assert watch.poll() == []
    (tmp_path / "there").mkdir()
    (tmp_path / "there/a.py").write_text("x", encoding="utf-8")
    assert _names(watch, tmp_path / "there") == {"a.py": 1}
    shutil.rmtree(tmp_path / "there")
    assert _names(watch, tmp_path / "there") == {"a.py": 3}


def _names(watch: FileWatcher, folder: Path) -> dict[str, int]:
    return {os.path.relpath(path, folder): kind for path, kind in watch.poll()}


def test_programs_are_looked_for_in_our_bin_folder_and_on_the_path(tmp_path: Path) -> None:
    where = search_folders(("relative", str(tmp_path), ""))
    assert where[-1] == str(tmp_path)
    assert "relative" not in where
    assert find_executables("clangd", where, ())
    assert find_executables("clangd", where, ("/",)) == []


def test_each_program_is_found_once_under_its_first_name(tmp_path: Path) -> None:
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one/p").symlink_to("../two/p")
    for folder in ("two", "three"):
        (tmp_path / folder / "p").write_text(folder, encoding="utf-8")
        assert find_executables("p", [str(tmp_path / folder)], ()) == []
        (tmp_path / folder / "p").chmod(0o755)
    where = [str(tmp_path / folder) for folder in ("one", "two", "three")]
    assert find_executables("p", where, ()) == [f"{where[0]}/p", f"{where[2]}/p"]
    assert find_executables("p", where, (where[1],)) == [f"{where[2]}/p"]


def whole(text: str, encoding: Encoding, *edits: tuple[tuple[int, int], tuple[int, int], str]) -> str:
    return apply_edits(text, edits, encoding)


EDITED: dict[str, tuple[str, list[tuple[tuple[int, int], tuple[int, int], str]], str | None]] = {
    "a word": ("a b\n", [((0, 2), (0, 3), "c")], "a c\n"),
    "over every line end": ("a\r\nb\rc\n", [((1, 0), (2, 1), "x")], "a\r\nx\n"),
    "units of UTF-16": ("é𝒳b", [((0, 3), (0, 4), "c")], "é𝒳c"),
    "past the last line": ("a", [((0, 0), (9, 0), "")], None),
    "the end of the text": ("a", [((0, 0), (1, 0), "b\n")], "b\n"),
    "past the end of its line": ("a\nb", [((0, 0), (0, 99), "c")], "c\nb"),
    "inside a character": ("𝒳", [((0, 1), (0, 2), "c")], None),
    "a negative position": ("a", [((0, -1), (0, 1), "c")], None),
    "back to front": ("ab", [((0, 1), (0, 0), "c")], None),
    "overlapping": ("abc", [((0, 0), (0, 2), "x"), ((0, 1), (0, 3), "y")], None),
    "twice the same": ("abc", [((0, 0), (0, 2), "x"), ((0, 0), (0, 2), "x")], None),
    "inserted": ("abc", [((0, 1), (0, 2), "z"), ((0, 1), (0, 1), "x"), ((0, 1), (0, 1), "y")], "axyzc"),
}


def test_edits_fit_the_text_or_are_refused() -> None:
    for name, (text, edits, after) in EDITED.items():
        if after is None:
            with pytest.raises(InvalidEdit):
                whole(text, "utf-16", *edits)
        else:
            assert whole(text, "utf-16", *edits) == after, name


@examples(20)
@given(st.lists(LINES, min_size=1, max_size=4), ENCODINGS, st.data())
def test_one_edit_replaces_exactly_what_lies_between(
    lines: list[str], encoding: Encoding, data: st.DataObject
) -> None:
    text = "\n".join(lines)
    start, end = sorted(data.draw(st.integers(0, len(text))) for _ in range(2))

    def position(index: int) -> tuple[int, int]:
        line = text.count("\n", 0, index)
        return line, to_units(lines[line], index - (text.rfind("\n", 0, index) + 1), encoding)

    after = whole(text, encoding, (position(start), position(end), "NEW"))
    assert after == f"{text[:start]}NEW{text[end:]}"


@examples(20)
@given(st.text(), st.lists(st.tuples(st.integers(-2, 9), st.integers(-2, 9), st.integers(-2, 9))), ENCODINGS)
def test_no_edit_breaks_the_text(text: str, places: list[tuple[int, int, int]], encoding: Encoding) -> None:
    edits = [((line, first), (line, last), "") for line, first, last in places]
    with suppress(InvalidEdit):
        assert len(whole(text, encoding, *edits)) <= len(text)


LINES_OF_CODE = ["# f", "f(f)", "def f(): ...", "", "class g: f = 1", "def f(): ...", "# h", "'h'", "h()"]


def test_a_name_that_fits_several_places_says_which() -> None:
    asked = [
        (2, "f", (1, 0), "occurs 2 times on line 2; this is about the first, at character 1"),
        (3, "f", (2, 4), ""),
        (None, "f", (2, 4), "is defined 2 times in this file; this is about line 3"),
        (None, "g", (4, 6), ""),
        (None, "class", (4, 0), "is not defined in this file; this is about its first use, on line 5"),
        (4, "g", None, "not on line 4 of 'a.py', but on line 5."),
        (None, "h", (8, 0), "is not defined in this file; this is about its first use, on line 9"),
    ]
    for line, symbol, place, words in asked:
        query = CodeQuery(operation="hover", path=CanonicalPath("a.py"), line=line, symbol=symbol, limit=1)
        if place is None:
            with pytest.raises(InvalidInput, match=re.escape(words)):
                asked_place(query, LINES_OF_CODE)
            continue
        found = asked_place(query, LINES_OF_CODE)
        assert (found.line, found.index) == place
        assert words in found.note
        assert bool(words) == bool(found.note)


def test_a_long_diff_is_cut_in_the_middle_and_many_files_are_listed_up_to_a_bound() -> None:
    text = "".join(f"line {number}\n" for number in range(1_000))
    cut = cut_middle(text, 100)
    assert cut.startswith("line 0\n")
    assert cut.endswith("line 999\n")
    assert len(cut) < 200
    left_out = 1_000 - (len(cut.splitlines()) - 1)
    assert f"[{left_out} lines in the middle of the diff are left out; read_file shows them]" in cut
    files = tuple(
        ProposedFile(path=CanonicalPath(f"{number}.py"), before=b"a\n", after=b"b\n", edits=1)
        for number in range(120)
    )
    listed = edit_text(CodeEdit(title="x", files=files, source="s"), {})
    assert "Done: x, by s. Changed 120 files." in listed
    assert "- 99.py: 1 edit\n- and 20 more files\n" in listed
    diffs = [
        edit_text(CodeEdit(title="x", files=files, source="s"), made).rpartition("files\n")[2]
        for made in ({}, None)
    ]
    assert [len(diff) // 500 for diff in diffs] == [8, 10]
