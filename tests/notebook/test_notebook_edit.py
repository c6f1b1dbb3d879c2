"""What read_file shows of a notebook, and what NotebookEdit does to one: not a byte more than it should."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import v4

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.text.notebook.edit import CellType, Mode, edit
from mcp_toolserver.text.notebook.notebook import parsed
from mcp_toolserver.tools.files.notebook_edit import TOOL as EDIT
from mcp_toolserver.tools.files.read_file import TOOL as READ
from tests.notebook.notebooks import PIXEL, cells, made, old, plain, written
from tests.support.calling import HANDLE, Bench, make

ABOUT = "notebook, nbformat 4.5, python"
TINY = base64.b64decode(PIXEL)


@pytest.fixture
def reader(tmp_path: Path) -> Bench:
    return Bench(tool=READ, root=make(tmp_path / "root", {}), ceiling=Permission.READ_ONLY)


async def shown(reader: Bench, content: bytes, name: str = "n.ipynb", **arguments: Any) -> Result:
    (reader.root / name).write_bytes(content)
    return await reader.result(path=name, **arguments)


def code(*outputs: dict[str, Any], source: str = "x") -> dict[str, Any]:
    return v4.new_code_cell(source, id="a", outputs=list(map(nbformat.from_dict, outputs)))


def rich(**data: Any) -> dict[str, Any]:
    """An output in several forms; `text_plain` stands for text/plain."""
    forms = {name.replace("_", "/", 1).replace("__", "+"): value for name, value in data.items()}
    return {"output_type": "display_data", "metadata": {}, "data": forms}


async def test_cells_come_with_number_type_id_source_and_outputs(reader: Bench) -> None:
    result = await shown(reader, written(made()))
    assert result.error is None
    assert result.text == (
        "[cell 0 code id=a run=3]\n1\tprint('ä')\n2\t1 / 2\n"
        "[output stdout]\n\tä\n[output text/plain]\n\t0.5\n"
        "[cell 1 markdown id=b]\n1\t# Title\n2\t\n3\t![p](attachment:p.png)\n"
        "[cell 2 raw id=c]\n1\traw\n"
        f"[{ABOUT}: cells 0-2 of 3]"
    )


async def test_offset_and_limit_count_cells(reader: Bench) -> None:
    content = written(made(*(v4.new_raw_cell(f"cell {number}", id=f"c{number}") for number in range(10))))
    result = await shown(reader, content, offset=3, limit=2)
    assert result.text == (
        f"[cell 3 raw id=c3]\n1\tcell 3\n[cell 4 raw id=c4]\n1\tcell 4\n"
        f"[{ABOUT}: cells 3-4 of 10; go on with offset=5]"
    )
    assert not result.truncated
    last = await shown(reader, content, offset=9)
    assert last.text.endswith(f"[{ABOUT}: cell 9 of 10]")
    past = await shown(reader, content, offset=10)
    assert past.text == f"[{ABOUT}: nothing at offset 10, it has 10 cells]"
    empty = await shown(reader, written({**made(), "cells": []}))
    assert empty.text == f"[{ABOUT}: nothing at offset 0, it has 0 cells]"


async def test_a_long_notebook_comes_in_pages_that_join_up(reader: Bench) -> None:
    content = written(made(*(v4.new_raw_cell("y" * 9_000, id=f"c{number}") for number in range(20))))
    seen, offset, pages = 0, 0, 0
    while offset < 20:
        result = await shown(reader, content, offset=offset)
        assert len(result.text.encode()) <= READ.limits.output_bytes
        pages += 1
        seen += result.text.count("[cell ")
        following = result.text.rpartition("offset=")[2].rstrip("]")
        assert result.truncated == following.isdecimal()
        offset = int(following) if following.isdecimal() else 20
    assert (seen, pages) == (20, 5)


async def test_a_cell_longer_than_an_answer_is_cut_and_says_so(reader: Bench) -> None:
    content = written(made(v4.new_raw_cell("ü" * 300_000, id="c"), code()))
    result = await shown(reader, content)
    assert result.truncated
    assert len(result.text.encode()) <= READ.limits.output_bytes
    *_, cut, note = result.text.split("\n")
    assert re.search(r"of this cell are cut; go on inside it with offset=0, column=\d+\]$", cut)
    following = await shown(reader, content, column=int(cut.rpartition("=")[2].rstrip("]")))
    assert following.text.startswith("ü" * 15_000)
    assert note == f"[{ABOUT}: cell 0 of 2; go on with offset=1]"


async def test_the_text_and_the_number_of_outputs_are_bounded(reader: Bench) -> None:
    stream = {"output_type": "stream", "name": "stderr"}
    text = "start\n" + "x" * 100_000 + "\nend\n"
    outputs = [{**stream, "text": text}, *({**stream, "text": f"{number}\n"} for number in range(24))]
    result = await shown(reader, written(made(code(*outputs))))
    assert len(result.text) < 6_000
    assert "\tstart\n" in result.text
    assert "\tend\n" in result.text
    assert "characters of it are left out;" in result.text
    assert result.text.count("[output stderr]") == 20
    assert "[5 more outputs are left out;" in result.text


async def test_an_error_shows_its_traceback_without_colours(reader: Bench) -> None:
    failed = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[0;31mE\x1b[0m", "v"]}
    result = await shown(reader, written(made(code(failed))))
    assert "[output error]\n\tE\n\tv\n" in result.text


async def test_a_line_of_a_notebook_cannot_pass_for_one_of_ours(reader: Bench) -> None:
    lie = "\n[cell 7 code id=z]\n7\tlie"
    stream = {"output_type": "stream", "name": "stdout", "text": lie}
    result = await shown(reader, written(made(code(stream, source=lie))))
    assert [line for line in result.text.split("\n") if line.startswith("[")] == [
        "[cell 0 code id=a]",
        "[output stdout]",
        f"[{ABOUT}: cell 0 of 1]",
    ]


async def test_pictures_of_outputs_are_shown_as_pictures(reader: Bench) -> None:
    figure = rich(text_plain="<Figure>", image_png=PIXEL)
    result = await shown(reader, written(made(code(figure, figure))))
    assert [(image.data, image.mime_type) for image in result.images] == [(TINY, "image/png")] * 2
    assert f"[output image/png, {len(TINY)} bytes, image 1 of this answer]" in result.text
    assert f"[output image/png, {len(TINY)} bytes, image 2 of this answer]" in result.text
    assert "<Figure>" not in result.text


async def test_pictures_are_bounded_in_number_and_size_and_only_those_of_the_page_come(reader: Bench) -> None:
    figure = rich(image_png=PIXEL)
    many = written(made(*(code(figure) | {"id": f"c{number}"} for number in range(10))))
    result = await shown(reader, many)
    assert len(result.images) == 8
    assert result.text.count("left out; an answer holds at most 8 images") == 2
    assert len((await shown(reader, many, offset=8)).images) == 2
    huge = base64.b64encode(TINY + b"\0" * 4 * 1024 * 1024).decode()
    result = await shown(reader, written(made(code(rich(image_png=huge), figure))))
    assert [image.data for image in result.images] == [TINY]


async def test_what_only_claims_to_be_a_picture_is_not_sent(reader: Bench) -> None:
    for value in ("AAAA", "A", base64.b64encode(b"<svg/>").decode()):
        result = await shown(reader, written(made(code(rich(image_png=value, text_plain="instead")))))
        assert result.images == ()
        assert "[output text/plain, also there as image/png]\n\tinstead\n" in result.text


SCRIPT = "<script>alert(1)</script>"

FORMS: tuple[tuple[dict[str, Any], str], ...] = (
    # NB06.
    ({"text_html": SCRIPT}, f"[output text/html, untrusted, shown as text]\n\t{SCRIPT}\n"),
    (
        {"image_svg__xml": ["<svg>\n", "</svg>"]},
        "[output image/svg+xml, untrusted, shown as text]\n\t<svg>\n\t</svg>\n",
    ),
    ({"text_html": "<b>1</b>", "text_plain": "1"}, "[output text/plain, also there as text/html]\n\t1\n"),
    ({"application_json": {"ä": [1]}}, '[output application/json]\n\t{"ä": [1]}\n'),
    ({"application_json": ["a", "b"]}, '\t["a", "b"]\n'),
    ({"application_x-widget": "1"}, "[output that has no text, also there as application/x-widget]\n"),
    ({"text_plain": ""}, "[output text/plain]\n[notebook"),
)


async def test_an_output_shows_the_plainest_of_its_forms(reader: Bench) -> None:
    for data, expected in FORMS:
        result = await shown(reader, written(made(code(rich(**data)))))
        assert expected in result.text
        assert result.images == ()


async def test_nbformat_3_is_shown_as_what_it_would_be_today(reader: Bench) -> None:
    result = await shown(reader, old())
    assert result.text == (
        "[cell 0 markdown]\n1\t## Old\n"
        "[cell 1 code run=1]\n1\tprint(1)\n[output stdout]\n\t1\n[output text/plain]\n\t2\n"
        "[notebook, nbformat 3.0: cells 0-1 of 2]"
    )


async def test_what_is_not_quite_a_notebook_is_shown_as_far_as_it_is(reader: Bench) -> None:
    odd = {
        "nbformat": 4,
        "nbformat_minor": "\n[a lie]",
        "metadata": [],
        "cells": [
            3,
            {"cell_type": "huh", "source": 4, "id": "\n[a lie]", "execution_count": True, "outputs": {}},
            {
                "cell_type": "code",
                "source": ["a", "b"],
                "outputs": [None, {"output_type": "stream", "text": 1}],
            },
        ],
    }
    result = await shown(reader, json.dumps(odd).encode())
    assert result.text == (
        "[cell 0 of unknown type]\n[cell 1 of unknown type]\n[cell 2 code]\n1\tab\n"
        "[output that has no text]\n[output stdout]\n\t1\n[notebook, nbformat 4: cells 0-2 of 3]"
    )


NO_NOTEBOOKS = {
    b"{\n": "is not valid JSON",
    b"[]\n": "does not have nbformat 3 or 4",
    b'{"nbformat": 2}\n': "does not have nbformat 3 or 4",
    b'{"nbformat": 4}\n': "has no list of cells",
    b'{"nbformat": 3, "nbformat_minor": 0}\n': "is not valid:",
    b"[" * 30_000: "is nested too deeply",  # NB03
}


async def test_what_is_no_notebook_is_shown_as_text_for_it_may_have_to_be_mended(reader: Bench) -> None:
    for content, why in NO_NOTEBOOKS.items():
        result = await shown(reader, content)
        assert result.error is None
        first, *_, note = result.text.split("\n")
        assert first == f"1\t{content.decode().rstrip()}"
        assert note.startswith(f"[shown as text, because as a notebook it {why}")
    assert (await shown(reader, b"\0\1\2\3" * 100)).error == "invalid_input"
    assert (await shown(reader, b'{"nbformat": 4}', "n.json")).text == '1\t{"nbformat": 4}'


async def test_a_notebook_beyond_the_size_that_is_taken_apart_is_refused_before_it_is_parsed(
    reader: Bench,
) -> None:
    """NB02"""
    with (reader.root / "n.ipynb").open("wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)
    assert "52428801" in await reader.refusal("invalid_input", path="n.ipynb")


async def test_a_big_notebook_of_many_cells_is_read_in_pages(reader: Bench) -> None:
    """NB02"""
    cells = [
        {"cell_type": "raw", "id": f"c{number}", "metadata": {}, "source": ["x" * 500]}
        for number in range(20_000)
    ]
    content = json.dumps({**plain(made()), "cells": cells}).encode()
    assert len(content) > 10 * 1024 * 1024
    result = await shown(reader, content, offset=19_999)
    assert result.text.startswith("[cell 19999 raw id=c19999]\n1\txxx")
    assert result.text.endswith(f"[{ABOUT}: cell 19999 of 20000]")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=EDIT, root=make(tmp_path / "root", {"n.ipynb": written(made())}))


async def call(bench: Bench, path: str = "n.ipynb", **arguments: Any) -> Result:
    return await bench.result(path=path, **arguments)


async def edited(bench: Bench, before: bytes, **arguments: Any) -> bytes:
    """The file after an edit that succeeds, and leaves a notebook that nbformat finds valid."""
    (bench.root / "n.ipynb").write_bytes(before)
    result = await call(bench, **arguments)
    assert result.error is None, result.text
    after = (bench.root / "n.ipynb").read_bytes()
    assert nbformat.validator.isvalid(json.loads(after.decode("utf-8-sig")))
    return after


async def refusal(bench: Bench, before: bytes, *, kind: str, **arguments: Any) -> str:
    (bench.root / "n.ipynb").write_bytes(before)
    result = await call(bench, **arguments)
    assert result.error == kind
    assert (bench.root / "n.ipynb").read_bytes() == before
    return result.text


NOT_RUN: dict[str, Any] = {"outputs": [], "execution_count": None}
REPLACED: tuple[tuple[int, str | None, dict[str, Any], tuple[str, ...]], ...] = (
    (0, None, NOT_RUN, ()),
    (1, None, {}, ()),
    *((0, kind, {"cell_type": kind}, tuple(NOT_RUN)) for kind in ("markdown", "raw")),
    (1, "code", {"cell_type": "code", **NOT_RUN}, ("attachments",)),
)
"""A cell, the type that it gets, and the fields that this changes and removes."""


async def test_a_cell_gets_its_new_source_and_loses_what_its_type_or_source_made_wrong(bench: Bench) -> None:
    for number, kind, changed, lost in REPLACED:
        arguments = {} if kind is None else {"cell_type": kind}
        after = await edited(bench, written(made()), cell_number=number, new_source="2\n3", **arguments)
        expected = plain(made())
        expected["cells"][number] |= {"source": ["2\n", "3"], **changed}
        for name in lost:
            del expected["cells"][number][name]
        assert after == written(expected), (number, kind)


async def test_the_answer_shows_the_change_of_the_cell(bench: Bench) -> None:
    result = await call(bench, cell_number=0, new_source="print('ä')\n1 / 3")
    after = (bench.root / "n.ipynb").read_bytes()
    digest = hashlib.sha256(after).hexdigest()
    assert HANDLE.sub("", result.text) == (
        f"Replaced cell 0 (code id=a) of n.ipynb, which has 3 cells ({len(after)} bytes).\n"
        'Its outputs (2) are cleared.\nTo undo: write_file, path "n.ipynb", restore "".\n'
        "--- a/n.ipynb#0\n+++ b/n.ipynb#0\n@@ -1,2 +1,2 @@\n print('ä')\n"
        "-1 / 2\n\\ No newline at end of file\n+1 / 3\n\\ No newline at end of file"
    )
    assert result.metadata()["sha256"] == {"n.ipynb": digest}
    text = (await call(bench, cell_id="b", new_source="1", cell_type="code")).text
    assert "Its type was markdown." in text
    assert "attachments are gone" in text


async def test_the_same_source_changes_nothing_and_keeps_the_outputs(bench: Bench) -> None:
    before = written(made())
    (bench.root / "n.ipynb").write_bytes(before)
    result = await call(bench, cell_id="a", new_source="print('ä')\n1 / 2")
    assert "same as before" in result.text
    assert "cleared" not in result.text
    assert (bench.root / "n.ipynb").read_bytes() == before


PLACES: tuple[tuple[dict[str, Any], int], ...] = (
    *(({}, 3), ({"cell_id": "a"}, 1), ({"cell_id": "c"}, 3)),
    *(({"cell_number": 0}, 0), ({"cell_number": 2}, 2), ({"cell_number": 3}, 3)),
)


async def test_a_cell_is_inserted(bench: Bench) -> None:
    rows = [("code", *row) for row in PLACES] + [(kind, *PLACES[0]) for kind in ("markdown", "raw")]
    for kind, place, number in rows:
        arguments = {"edit_mode": "insert", "new_source": "x\ny", "cell_type": kind, **place}
        after = await edited(bench, written(made()), **arguments)
        found = json.loads(after)
        new = found["cells"].pop(number)
        assert found == plain(made())
        assert (new["cell_type"], new["source"]) == (kind, ["x\n", "y"])
        assert new["id"] not in ("a", "b", "c")
        found["cells"].insert(number, new)
        assert after == written(found)


async def test_a_new_cell_is_code_unless_said_otherwise_and_has_an_id_of_its_own(bench: Bench) -> None:
    result = await call(bench, edit_mode="insert", new_source="1")
    new = json.loads((bench.root / "n.ipynb").read_bytes())["cells"][3]
    assert new == {**new, "cell_type": "code", "outputs": [], "execution_count": None, "metadata": {}}
    assert result.text.startswith(f"Inserted cell 3 (code id={new['id']}) of n.ipynb, which has 4 cells")
    assert result.text.endswith("+1\n\\ No newline at end of file")
    await call(bench, edit_mode="insert", new_source="1")
    assert len({cell["id"] for cell in json.loads((bench.root / "n.ipynb").read_bytes())["cells"]}) == 5


async def test_a_cell_is_deleted_and_its_source_shown(bench: Bench) -> None:
    result = await call(bench, edit_mode="delete", cell_id="c")
    assert result.text.startswith("Deleted cell 2 (raw id=c) of n.ipynb, which has 2 cells")
    assert "-raw" in result.text
    expected = made()
    del expected["cells"][1]
    assert await edited(bench, written(made()), edit_mode="delete", cell_number=1) == written(expected)


async def test_the_only_cell_is_deleted_and_another_put_in_its_place(bench: Bench) -> None:
    before = written(made(cells()[2]))
    empty = await edited(bench, before, edit_mode="delete", cell_id="c")
    assert empty == written({**made(cells()[2]), "cells": []})
    after = await edited(bench, empty, edit_mode="insert", new_source="raw", cell_type="raw")
    assert after == before.replace(b'"c"', json.dumps(json.loads(after)["cells"][0]["id"]).encode())


async def test_numbers_and_escapes_that_python_would_write_otherwise_stay(bench: Bench) -> None:
    notebook = plain(made())
    notebook["cells"][0]["metadata"] = {"odd": "HERE"}
    odd = b'[1.00, 1E2, NaN, "\\u00e4", "\\ud800", "\\/", 123456789012345678901234567890]'
    before = json.dumps(notebook, ensure_ascii=False).encode().replace(b'"HERE"', odd)
    for arguments in ({"new_source": "1"}, {"new_source": "1", "cell_type": "raw"}):
        after = await edited(bench, before, cell_id="a", **arguments)
        assert odd in after


async def test_an_encoding_stays(bench: Bench) -> None:
    """NB13"""
    expected = plain(made())
    expected["cells"][1]["source"] = ["ß 漢"]
    for codec in ("utf-8-sig", "utf-16"):
        (bench.root / "n.ipynb").write_bytes(written(made()).decode().encode(codec))
        assert (await call(bench, cell_id="b", new_source="ß 漢")).error is None
        assert (bench.root / "n.ipynb").read_bytes() == written(expected).decode().encode(codec)


async def test_older_minor_versions_have_numbers_and_no_ids(bench: Bench) -> None:
    for minor in (0, 4):
        before = written(made(*cells()[2:], cells()[0], minor=minor))
        after = await edited(bench, before, cell_number=1, new_source="1")
        assert json.loads(after)["cells"][1]["outputs"] == []
        after = await edited(bench, before, edit_mode="insert", new_source="1")
        assert "id" not in json.loads(after)["cells"][2]
        text = await refusal(bench, before, kind="not_found", cell_id="a", new_source="1")
        assert "cell_number" in text


WHOLE = written(made())


def with_field(name: str, value: object) -> bytes:
    return json.dumps({**plain(made()), name: value}).encode()


INVALID = {
    "nbformat 3": (old(),),
    "4.6": (with_field("nbformat_minor", 6),),
    "nbformat": (with_field("nbformat", True), b'{"worksheets": []}'),
    "JSON": (
        *(b"[]", b"", WHOLE[:-10], WHOLE.replace(b'"cells": [', b'"cells": '), b'{"a": 1 "b": 2}'),
        *(b'{"a" 1}', b"{1: 1}", b'{"nbformat": ' + b"1" * 5000 + b"}"),
    ),
    "follows": (WHOLE + b"{}",),
    "binary": (b"\0\1\2",),
    "windows-1252": (WHOLE.decode().encode("cp1252"),),
    "wrong type": (with_field("cells", {}),),
    "cells[0] lacks": (WHOLE.replace(b'   "metadata": {},\n', b"", 1),),
    "cells[2]": (WHOLE.replace(b'"raw",', b'"huh",', 1),),
    "field that it must not have": (WHOLE.replace(b'"nbformat_minor": 5', b'"nbformat_minor": 4'),),
}


async def test_what_is_no_valid_notebook_is_refused(bench: Bench) -> None:
    for word, contents in INVALID.items():
        for before in contents:
            text = await refusal(bench, before, kind="invalid_input", cell_number=0, new_source="1")
            assert text.startswith("'n.ipynb' ")
            assert word in text


def deep() -> bytes:
    notebook = json.dumps({**plain(made()), "metadata": {"deep": "HERE"}}).encode()
    return notebook.replace(b'"HERE"', b"[" * 100_000 + b"]" * 100_000)


HOSTILE: tuple[tuple[bytes, dict[str, Any], str], ...] = (
    # NB02, NB03 and NB04.
    (WHOLE + b" " * 10 * 1024 * 1024, {"cell_number": 0}, "invalid_input"),
    (deep(), {"cell_number": 0}, "invalid_input"),
    (WHOLE.replace(b'"id": "b"', b'"id": "a"'), {"cell_id": "a"}, "invalid_input"),
    (WHOLE, {"cell_number": -1}, "invalid_input"),
    (WHOLE, {"cell_number": 2**63}, "invalid_input"),
    (WHOLE, {"cell_number": 3}, "not_found"),
    (WHOLE, {"cell_id": "z"}, "not_found"),
    (WHOLE, {"edit_mode": "insert", "cell_number": 4}, "not_found"),
)
ONE, OTHER_SOURCE = {"cell_id": "a"}, {"new_source": "1"}
SENSELESS: tuple[dict[str, Any], ...] = (
    *(OTHER_SOURCE, {"edit_mode": "delete"}, ONE, {"edit_mode": "insert"}),
    *({**ONE, "cell_number": 1, **OTHER_SOURCE}, {"edit_mode": "delete", **ONE, **OTHER_SOURCE}),
    *({"edit_mode": "delete", **ONE, "cell_type": "raw"}, {"edit_mode": "move", **ONE, **OTHER_SOURCE}),
)


async def test_hostile_notebooks_and_senseless_calls_change_nothing(bench: Bench) -> None:
    for before, arguments, kind in HOSTILE:
        await refusal(bench, before, kind=kind, **OTHER_SOURCE, **arguments)
    for arguments in SENSELESS:
        await refusal(bench, WHOLE, kind="invalid_input", **arguments)
    assert (await edited(bench, WHOLE, **ONE, **OTHER_SOURCE)) != WHOLE


async def test_an_edit_that_would_make_the_notebook_invalid_is_refused(bench: Bench) -> None:
    notebook = plain(made())
    notebook["cells"][1]["metadata"] = {"format": 1}  # which only a raw cell may not have
    arguments = {"cell_id": "b", "new_source": "x", "cell_type": "raw"}
    text = await refusal(bench, written(notebook), kind="invalid_input", **arguments)
    assert "was not changed" in text


async def test_other_files_are_refused_by_name(bench: Bench) -> None:
    (bench.root / "n.json").write_bytes(written(made()))
    result = await call(bench, "n.json", cell_id="a", new_source="1")
    assert result.error == "invalid_input"
    assert (await call(bench, "gone.ipynb", cell_id="a", new_source="1")).error == "not_found"


async def test_a_file_that_somebody_else_changed_is_left_alone(bench: Bench) -> None:
    before = written(made())
    stale = hashlib.sha256(b"other").hexdigest()
    arguments = {"cell_id": "a", "new_source": "1", "expected_sha256": stale}
    await refusal(bench, before, kind="conflict", **arguments)
    fresh = hashlib.sha256(before).hexdigest()
    await edited(bench, before, cell_id="a", new_source="1", expected_sha256=fresh)


LAYOUTS: tuple[dict[str, Any], ...] = (
    *({"indent": 1, "ensure_ascii": False}, {"indent": 2, "sort_keys": True}, {"ensure_ascii": False}),
    *({"indent": "\t", "ensure_ascii": False}, {"indent": 4, "separators": (",", ": ")}),
    *({"separators": (",", ":")}, {}),
)
SOURCES = ("", "x = 1\n\n", "é\r\n\\u00e9", '"漢" \u2028')
TYPES: tuple[CellType | None, ...] = (None, "code", "markdown", "raw")
Change = tuple[Mode, str | int, str, CellType | None]


def notebooks() -> Iterator[dict[str, Any]]:
    """In a version with ids or without, with sources as text or as lines and keys in any order."""
    for minor, is_text in product((4, 5), (False, True)):
        notebook = plain(made(minor=minor))
        if is_text:
            notebook = dict(reversed(notebook.items()))
            notebook["cells"] = [
                dict(reversed({**cell, "source": joined(cell)}.items())) for cell in notebook["cells"]
            ]
        yield notebook


def edits(has_ids: bool) -> Iterator[Change]:
    """Those that a notebook of three cells allows."""
    for index, (kind, number) in enumerate(product(TYPES, range(4))):
        source = SOURCES[(index + number) % 4]
        yield "insert", number, source, kind
        if number < 3:
            cell = "abc"[number] if has_ids and index % 2 else number
            yield "replace", cell, source, kind
            yield "delete", cell, "", None


def raw_cells(text: str) -> tuple[str, list[str], str]:
    """The file before its list of cells, the text of each, and the file after."""
    notebook = parsed(text)
    found = [text[cell.start : cell.end] for cell in notebook.cells]
    return text[: notebook.array.start], found, text[notebook.array.end :]


def without(items: Sequence[Any], number: int) -> list[Any]:
    return [*items[:number], *items[number + 1 :]]


def joined(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def check_replaced(old: dict[str, Any], new: dict[str, Any], *, same: bool) -> None:
    assert new["metadata"] == old["metadata"]
    assert new.get("id") == old.get("id")
    if (joined(new), new["cell_type"]) == (joined(old), old["cell_type"]):
        assert same
    elif new["cell_type"] == "code":
        assert (new["outputs"], new["execution_count"]) == ([], None)


def test_an_edit_does_what_it_says_and_nothing_else() -> None:
    for index, (notebook, options, newline) in enumerate(product(notebooks(), LAYOUTS, ("\n", "\r\n"))):
        text = json.dumps(notebook, **options).replace("\n", newline)
        for change in islice(edits(notebook["nbformat_minor"] == 5), index % 9, None, 9):
            check(text, change, options, newline)


def check(text: str, change: Change, options: dict[str, Any], newline: str) -> None:
    done = edit(text, *change)
    mode, cell, source, _ = change
    number = done.number
    assert cell in (number, done.id)
    before, after = raw_cells(text), raw_cells(done.text)
    assert (before[0], before[2]) == (after[0], after[2])
    unchanged = before[1] if mode == "insert" else without(before[1], number)
    assert unchanged == (after[1] if mode == "delete" else without(after[1], number))
    if mode != "delete":
        new = json.loads(after[1][number])
        assert joined(new) == source
        assert type(new["source"]) is type(json.loads(before[1][0])["source"])
        assert new["cell_type"] == done.type
    if mode == "replace":
        check_replaced(json.loads(before[1][number]), json.loads(after[1][number]), same=done.text == text)
    lines = done.text.replace(newline, "\n")
    uniform = [
        json.dumps(json.loads(lines), **{**options, "ensure_ascii": escapes}) for escapes in (False, True)
    ]
    assert lines in uniform


def test_white_space_of_any_kind_is_kept() -> None:
    whole = json.dumps(plain(made()), indent=1)
    for outer, gap in product(("\n {} \n\n", "{}", "\t{}"), ("", "  ", "\n\n\t", " \r\n")):
        text = outer.replace("{}", whole)
        text = text.replace('"cells": [', f'"cells"{gap}:{gap}[{gap}').replace("},\n  {", f"}}{gap},{gap}{{")
        before = raw_cells(text)
        for mode in ("replace", "insert", "delete"):
            done = edit(text, mode, 1, "x" * (mode != "delete"))
            after = raw_cells(done.text)
            assert (before[0], before[2]) == (after[0], after[2])
            assert (after[1][0], after[1][-1]) == (before[1][0], before[1][-1])
            assert json.loads(done.text)
