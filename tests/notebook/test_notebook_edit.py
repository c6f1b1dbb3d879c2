"""What NotebookEdit does to a notebook, and what it leaves alone."""

import hashlib
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.tools.files.notebook_edit import TOOL
from tests.notebook.notebooks import cells, made, old, plain, written
from tests.support.calling import HANDLE, Bench, make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=TOOL, root=make(tmp_path / "root", {"n.ipynb": written(made())}))


async def edit(bench: Bench, path: str = "n.ipynb", **arguments: Any) -> Result:
    return await bench.result(path=path, **arguments)


async def edited(bench: Bench, before: bytes, **arguments: Any) -> bytes:
    """The file after an edit that succeeds, and leaves a notebook that nbformat finds valid."""
    (bench.root / "n.ipynb").write_bytes(before)
    result = await edit(bench, **arguments)
    assert result.error is None, result.text
    after = (bench.root / "n.ipynb").read_bytes()
    assert nbformat.validator.isvalid(json.loads(after.decode("utf-8-sig")))
    return after


async def refusal(bench: Bench, before: bytes, *, kind: str, **arguments: Any) -> str:
    (bench.root / "n.ipynb").write_bytes(before)
    result = await edit(bench, **arguments)
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
    result = await edit(bench, cell_number=0, new_source="print('ä')\n1 / 3")
    after = (bench.root / "n.ipynb").read_bytes()
    digest = hashlib.sha256(after).hexdigest()
    assert HANDLE.sub("", result.text) == (
        f"Replaced cell 0 (code id=a) of n.ipynb, which has 3 cells ({len(after)} bytes).\n"
        'Its outputs (2) are cleared.\nTo undo: write_file, path "n.ipynb", restore "".\n'
        "--- a/n.ipynb#0\n+++ b/n.ipynb#0\n@@ -1,2 +1,2 @@\n print('ä')\n"
        "-1 / 2\n\\ No newline at end of file\n+1 / 3\n\\ No newline at end of file"
    )
    assert result.metadata()["sha256"] == {"n.ipynb": digest}
    text = (await edit(bench, cell_id="b", new_source="1", cell_type="code")).text
    assert "Its type was markdown." in text
    assert "attachments are gone" in text


async def test_the_same_source_changes_nothing_and_keeps_the_outputs(bench: Bench) -> None:
    before = written(made())
    (bench.root / "n.ipynb").write_bytes(before)
    result = await edit(bench, cell_id="a", new_source="print('ä')\n1 / 2")
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
    result = await edit(bench, edit_mode="insert", new_source="1")
    new = json.loads((bench.root / "n.ipynb").read_bytes())["cells"][3]
    assert new == {**new, "cell_type": "code", "outputs": [], "execution_count": None, "metadata": {}}
    assert result.text.startswith(f"Inserted cell 3 (code id={new['id']}) of n.ipynb, which has 4 cells")
    assert result.text.endswith("+1\n\\ No newline at end of file")
    await edit(bench, edit_mode="insert", new_source="1")
    assert len({cell["id"] for cell in json.loads((bench.root / "n.ipynb").read_bytes())["cells"]}) == 5


async def test_a_cell_is_deleted_and_its_source_shown(bench: Bench) -> None:
    result = await edit(bench, edit_mode="delete", cell_id="c")
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


async def test_a_new_cell_has_its_fields_in_the_order_of_its_neighbours(bench: Bench) -> None:
    order = ("metadata", "id", "source", "cell_type", "execution_count", "outputs", "attachments")
    notebook = plain(made())
    notebook["cells"] = [{key: cell[key] for key in order if key in cell} for cell in notebook["cells"]]
    before = json.dumps(notebook, indent=1).encode()
    for kind, expected in (("code", order[:-1]), ("raw", order[:4])):
        after = await edited(bench, before, edit_mode="insert", new_source="1", cell_type=kind)
        assert tuple(json.loads(after)["cells"][3]) == expected
    after = await edited(bench, before, cell_id="b", new_source="1", cell_type="code")
    assert tuple(json.loads(after)["cells"][1]) == (*order[:4], "execution_count", "outputs")


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
        assert (await edit(bench, cell_id="b", new_source="ß 漢")).error is None
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
    result = await edit(bench, "n.json", cell_id="a", new_source="1")
    assert result.error == "invalid_input"
    assert (await edit(bench, "gone.ipynb", cell_id="a", new_source="1")).error == "not_found"


async def test_a_file_that_somebody_else_changed_is_left_alone(bench: Bench) -> None:
    before = written(made())
    stale = hashlib.sha256(b"other").hexdigest()
    arguments = {"cell_id": "a", "new_source": "1", "expected_sha256": stale}
    await refusal(bench, before, kind="conflict", **arguments)
    fresh = hashlib.sha256(before).hexdigest()
    await edited(bench, before, cell_id="a", new_source="1", expected_sha256=fresh)


async def test_the_names_that_other_systems_use_are_understood(bench: Bench) -> None:
    for path in ("notebook_path", "file_path"):
        arguments = {path: "n.ipynb", "command": "insert", "source": "1", "cell_number": 0}
        assert (await bench.result(**arguments)).error is None
    assert len(json.loads((bench.root / "n.ipynb").read_bytes())["cells"]) == 5
