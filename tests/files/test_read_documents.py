"""What read_file shows of PDF, Word and Excel files, and what it refuses to take apart."""

import re
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from io import BytesIO
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from openpyxl.chart import BarChart
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, TextStringObject

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.tools.files.read_file import TOOL
from tests.notebook.notebooks import old
from tests.support.calling import Bench, make
from tests.support.live import SharedServers, text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "root", {})


async def shown(root: Path, name: str, content: bytes, **arguments: Any) -> Result:
    (root / name).write_bytes(content)
    return await Bench(tool=TOOL, root=root, ceiling=Permission.READ_ONLY).result(path=name, **arguments)


async def refusal(root: Path, name: str, content: bytes, *, kind: str = "invalid_input") -> str:
    result = await shown(root, name, content)
    assert result.error == kind, result.text[:300]
    assert result.text.startswith(f"'{name}' ")
    return result.text


def operators(*lines: str) -> bytes:
    """A page's drawing of lines of text."""
    drawn = "".join(f"({line}) Tj 0 -20 Td " for line in lines)
    return f"BT /F1 12 Tf 72 700 Td {drawn}ET".encode()


def stream(content: bytes, fields: bytes = b"") -> bytes:
    return b"<</Length %d%s>>stream\n%s\nendstream" % (len(content), fields, content)


def pdf(*contents: bytes, form: bytes = b"", compress: bool = False) -> bytes:
    """A PDF with a page for each drawing; `form` can be drawn by all, as /X."""
    resources = b"/Resources<</Font<</F1 3 0 R>>/XObject<</X 4 0 R>>>>"
    pages = b" ".join(b"%d 0 R" % (5 + 2 * number) for number in range(len(contents)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(contents), pages),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        stream(form, b"/Subtype/Form/BBox[0 0 600 800]" + resources),
    ]
    for content in contents:
        drawing = b"/Contents %d 0 R" % (len(objects) + 2)
        objects.append(b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]%s%s>>" % (resources, drawing))
        packed = stream(zlib.compress(content), b"/Filter/FlateDecode")
        objects.append(packed if compress else stream(content))
    made, places = b"%PDF-1.7\n", b"0000000000 65535 f \n"
    for number, found in enumerate(objects, 1):
        places += b"%010d 00000 n \n" % len(made)
        made += b"%d 0 obj\n%s\nendobj\n" % (number, found)
    end = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(made))
    return made + b"xref\n0 %d\n%s" % (len(objects) + 1, places) + end


def saved(writer: PdfWriter) -> bytes:
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


async def test_a_pdf_by_any_name_is_shown_page_by_page_with_numbered_lines(root: Path) -> None:
    content = pdf(operators("Hello", "[page 2] a lie"), operators("World"), b"")
    for name in ("f.pdf", "f.txt"):
        result = await shown(root, name, content)
        assert result.text == (
            "[page 1]\n1\tHello\n2\t[page 2] a lie\n[page 2]\n1\tWorld\n[page 3]\n"
            "[no text on this page; it may be a picture]\n[PDF: pages 1-3 of 3]"
        )
        assert not result.truncated
    assert (await shown(root, "f.pdf", b"plain\n")).text == "1\tplain"


async def test_offset_and_limit_count_pages_of_a_pdf(root: Path) -> None:
    content = pdf(*(operators(f"text {number}") for number in range(1, 8)))
    result = await shown(root, "f.pdf", content, offset=2, limit=2)
    assert result.text == (
        "[page 3]\n1\ttext 3\n[page 4]\n1\ttext 4\n[PDF: pages 3-4 of 7; go on with offset=4]"
    )
    past = await shown(root, "f.pdf", content, offset=7)
    assert past.text == "[PDF: nothing at offset 7, it has 7 pages]"


async def test_an_encrypted_pdf_is_refused(root: Path) -> None:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(pdf(operators("secret")))))
    writer.encrypt("password", algorithm="RC4-128")
    text = await refusal(root, "f.pdf", saved(writer))
    assert "encrypted" in text


async def test_a_damaged_pdf_is_refused_in_words(root: Path) -> None:
    for content in (b"%PDF-1.7\n", b"%PDF-1.7\n" + b"\0\xff" * 500, pdf(operators("x"))[:-200]):
        assert "damaged" in await refusal(root, "f.pdf", content)


async def test_a_bomb_or_too_many_operators_in_a_page_leave_the_other_pages_readable(root: Path) -> None:
    for bomb in (b" " * 20_000_001, b"q Q " * 101_000):
        content = pdf(operators("before"), bomb, operators("after"), compress=True)
        result = await shown(root, "f.pdf", content)
        left_out = "[page 2]\n[this page is damaged or too large to read]\n[page 3]"
        assert f"1\tbefore\n{left_out}\n1\tafter" in result.text


async def test_parts_that_are_drawn_over_and_over_use_up_the_work_of_one_answer(root: Path) -> None:
    busy = b"/X Do " * 400
    content = pdf(busy, busy, busy, operators("after"), form=b"q Q " * 10)
    result = await shown(root, "f.pdf", content)
    assert "[page 2]\n[this page takes too much work to read]" in result.text
    assert result.text.endswith("[PDF: pages 1-2 of 4; go on with offset=2]")
    assert result.truncated
    assert "1\tafter" in (await shown(root, "f.pdf", content, offset=3)).text


async def test_a_script_in_a_pdf_does_nothing_and_is_not_shown(root: Path) -> None:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(pdf(operators("text")))))
    action = {"/S": NameObject("/JavaScript"), "/JS": TextStringObject("app.alert('run')")}
    writer.root_object[NameObject("/OpenAction")] = DictionaryObject(
        {NameObject(key): value for key, value in action.items()}
    )
    writer.add_attachment("a.txt", b"attached")
    result = await shown(root, "f.pdf", saved(writer))
    assert result.text == "[page 1]\n1\ttext\n[PDF: page 1 of 1]"


async def test_a_page_that_names_itself_does_not_go_on_for_ever(root: Path) -> None:
    content = pdf(operators("x"), form=b"/X Do " * 10)
    assert "1\tx" in (await shown(root, "f.pdf", content)).text
    assert (await shown(root, "f.pdf", pdf(b"/X Do", form=b"/X Do"))).error is None


def document(fill: Callable[[Any], object]) -> bytes:
    made = docx.Document()
    fill(made)
    file = BytesIO()
    made.save(file)
    return file.getvalue()


def letter(made: Any) -> None:
    made.add_heading("Title", level=1)
    made.add_paragraph("First\tline\nsecond line")
    table = made.add_table(rows=2, cols=2)
    for place, cell in enumerate(table._cells):
        cell.text = f"cell {place}"
    table.cell(1, 1).add_paragraph("more")
    made.add_paragraph("item", style="List Number")._p.get_or_add_pPr().get_or_add_numPr()
    made.add_heading("End", level=2)


async def test_a_word_document_is_shown_in_lines(root: Path) -> None:
    result = await shown(root, "f.docx", document(letter))
    assert result.text == (
        "1\t# Title\n2\tFirst\tline\n3\tsecond line\n4\tcell 0 | cell 1\n5\tcell 2 | cell 3 more\n6\t- item\n"
        "7\t## End"
    )
    result = await shown(root, "f.docx", document(letter), offset=3, limit=1)
    assert result.text == "4\tcell 0 | cell 1\n[lines 4-4 of 7; go on with offset=4]"
    assert (await shown(root, "f.docx", document(lambda _: None))).text == "[the document has no text]"


async def test_inserted_text_is_shown_and_deleted_text_is_not(root: Path) -> None:
    space = nsdecls("w")

    def fill(made: Any) -> None:
        body = made.element.body
        body.insert(0, parse_xml(f"<w:p {space}><w:ins><w:r><w:t>new</w:t></w:r></w:ins></w:p>"))
        body.insert(1, parse_xml(f"<w:p {space}><w:del><w:r><w:delText>old</w:delText></w:r></w:del></w:p>"))
        wrapped = f"<w:sdt {space}><w:sdtContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:sdtContent></w:sdt>"
        body.insert(2, parse_xml(wrapped))
        twice = (
            '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
            "<mc:Choice><w:t>once</w:t></mc:Choice><mc:Fallback><w:t>again</w:t></mc:Fallback>"
            "</mc:AlternateContent>"
        )
        body.insert(3, parse_xml(f"<w:p {space}><w:r>{twice}<w:noBreakHyphen/><w:cr/></w:r></w:p>"))

    result = await shown(root, "f.docx", document(fill))
    assert result.text == "1\tnew\n2\t\n3\tbox\n4\tonce-"


async def test_a_wide_cell_costs_no_more_than_it_says(root: Path) -> None:
    def fill(made: Any) -> None:
        cell = made.add_table(rows=1, cols=1).cell(0, 0)
        cell.text = "x"
        cell._tc.get_or_add_tcPr().get_or_add_gridSpan().val = 2_000_000_000

    assert (await shown(root, "f.docx", document(fill))).text == "1\tx"


def workbook(fill: Callable[[Any], object]) -> bytes:
    made = openpyxl.Workbook()
    fill(made)
    file = BytesIO()
    with warnings.catch_warnings():
        # Writing, the library opens a temporary file without naming an encoding. The server never writes one.
        warnings.simplefilter("ignore", EncodingWarning)
        made.save(file)
    return file.getvalue()


def accounts(made: Any) -> None:
    sheet = made.active
    sheet.title = "Q1"
    sheet.append(["name", None, 1, 2.5, True, None])
    sheet["A3"], sheet["B3"] = "two\nlines\tand a tab \\", "=SUM(C1:D1)"
    sheet["A4"], sheet["B4"], sheet["C4"] = date(2026, 1, 2), datetime(2026, 1, 2, 3, 4), time(5, 6)  # noqa: DTZ001
    made.create_sheet("Hidden").sheet_state = "hidden"
    made.create_chartsheet("Chart").add_chart(BarChart())


async def test_a_workbook_is_shown_sheet_by_sheet_with_the_numbers_of_its_rows(root: Path) -> None:
    result = await shown(root, "f.xlsx", workbook(accounts))
    assert result.text == (
        "1\t[sheet 'Q1']\n2\t1\tname\t\t1\t2.5\tTRUE\n3\t3\ttwo\\nlines\\tand a tab \\\\\t=SUM(C1:D1)\n"
        "4\t4\t2026-01-02T00:00:00\t2026-01-02T03:04:00\t05:06:00\n5\t[sheet 'Hidden', hidden]"
    )


async def test_what_a_formula_gave_is_shown_before_the_formula(root: Path) -> None:
    content = changed(
        workbook(accounts),
        {
            "xl/worksheets/sheet1.xml": lambda xml: xml.replace(b"</f><v></v>", b"</f><v>3.5</v>").replace(
                b"</f><v />", b"</f><v>3.5</v>"
            )
        },
    )
    text = (await shown(root, "f.xlsx", content)).text
    assert "3.5" in text
    assert "=SUM" not in text


async def test_a_sheet_that_claims_to_be_endless_is_not_filled_up(root: Path) -> None:
    def fill(made: Any) -> None:
        made.active["A1"] = "first"

    claim = {"xl/worksheets/sheet1.xml": lambda xml: re.sub(rb'ref="A1(:A1)?"', b'ref="A1:XFD1048576"', xml)}
    content = changed(workbook(fill), claim)
    assert b"XFD1048576" in zipfile.ZipFile(BytesIO(content)).read("xl/worksheets/sheet1.xml")
    assert (await shown(root, "f.xlsx", content)).text == "1\t[sheet 'Sheet']\n2\t1\tfirst"


async def test_a_huge_sheet_is_read_up_to_a_bound_that_is_reported(root: Path) -> None:
    def fill(made: Any) -> None:
        made.active["A1"] = "first"
        made.active["A1000000"] = "last"

    result = await shown(root, "f.xlsx", workbook(fill))
    assert "2\t1\tfirst" in result.text
    assert "last" not in result.text
    assert "[the workbook goes on at row" in result.text


async def test_one_text_in_many_cells_does_not_grow_without_bound(root: Path) -> None:
    def fill(made: Any) -> None:
        for _ in range(400):
            made.active.append(["x" * 32_767])

    result = await shown(root, "f.xlsx", workbook(fill), offset=256)
    assert "[the workbook goes on at row 257; only so much of it is read]" in result.text


def changed(content: bytes, changes: Mapping[str, Callable[[bytes], bytes]]) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.infolist():
            data = old.read(part)
            new.writestr(part.filename, changes[part.filename](data) if part.filename in changes else data)
    return file.getvalue()


def extended(content: bytes, parts: Mapping[str, bytes]) -> bytes:
    file = BytesIO(content)
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as package:
        for name, data in parts.items():
            package.writestr(name, data)
    return file.getvalue()


PACKAGES = {
    "f.docx": (document(letter), "word/document.xml"),
    "f.xlsx": (workbook(accounts), "xl/worksheets/sheet1.xml"),
}


async def test_a_package_is_known_by_its_name_and_its_first_bytes(root: Path) -> None:
    for name, (content, _) in PACKAGES.items():
        assert (await shown(root, name, content)).error is None
        assert (await shown(root, name.upper(), content)).error is None
        assert (await shown(root, name, b"plain\n")).text == "1\tplain"
        assert (await shown(root, "f.zip", content)).error == "invalid_input"


async def test_a_damaged_package_is_refused_in_words(root: Path) -> None:
    other = extended(b"", {"a": b"b"})
    for name, (content, part) in PACKAGES.items():
        for damaged in (
            *(content[: len(content) // 2], content[:4] + b"\0" * 2000),
            content[:500] + b"\xff" * 200 + content[700:],
            *(found for key, (found, _) in PACKAGES.items() if key != name),
            *(other, changed(content, {part: lambda _: b"<w:p><unclosed>"})),
        ):
            assert "damaged" in await refusal(root, name, damaged)


async def test_a_bomb_is_refused_before_it_is_unpacked(root: Path) -> None:
    bomb = b"\0" * (30 * 1024 * 1024)
    for name, parts in (
        ("f.docx", {"bomb.xml": b"\0" * (33 * 1024 * 1024)}),
        ("f.xlsx", {f"{number}.xml": bomb for number in range(7)}),
    ):
        content = extended(PACKAGES[name][0], parts)
        assert len(content) < 2_000_000
        assert "too large unpacked" in await refusal(root, name, content)


async def test_a_package_of_very_many_parts_is_refused(root: Path) -> None:
    for name, (content, _) in PACKAGES.items():
        many = extended(content, {f"{number}": b"" for number in range(5_001)})
        assert "parts" in await refusal(root, name, many)


@pytest.mark.parametrize("name", PACKAGES)
async def test_entities_are_not_resolved_from_outside_nor_blown_up(root: Path, name: str) -> None:
    (root / "secret").write_text("TOP SECRET", encoding="utf-8")
    content, part = PACKAGES[name]
    for entity in (f'SYSTEM "file://{root}/secret"', f'"{"x" * 1000}"'):
        for codec in ("utf-8", "utf-16-le", "utf-16-be"):

            def declare(xml: bytes, entity: str = entity, codec: str = codec) -> bytes:
                text = re.sub(r"^<\?xml[^>]*\?>", "", xml.decode()).replace("cell 0", "&e;")
                mark = "\ufeff" * (codec != "utf-8")
                return f"{mark}<!DOCTYPE w [<!ENTITY e {entity}>]>{text}".encode(codec)

            text = await refusal(root, name, changed(content, {part: declare}))
            assert "document type" in text
            assert "SECRET" not in text


async def test_without_the_extra_the_answer_names_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"f.pdf": pdf(operators("x")), **{name: content for name, (content, _) in PACKAGES.items()}}
    for module, (name, content) in zip(("pypdf", "docx", "openpyxl"), pages.items(), strict=True):
        monkeypatch.setitem(sys.modules, module, None)  # as where it is not installed
        assert "mcp-toolserver[documents]" in await refusal(root, name, content, kind="unavailable")


async def test_a_document_beyond_the_size_that_is_taken_apart_is_refused(root: Path) -> None:
    size = 50 * 1024 * 1024 + 1
    for head in (b"%PDF-1.7\n", b"PK\x03\x04"):
        with (root / "f.docx").open("wb") as file:
            file.write(head)
            file.truncate(size)
        assert str(size) in await Bench(tool=TOOL, root=root).refusal("invalid_input", path="f.docx")


@pytest.mark.asyncio(loop_scope="session")
async def test_a_server_that_is_locked_can_still_take_documents_apart(shared: SharedServers) -> None:
    setup = shared.setup()
    folder = setup.root / "documents"
    folder.mkdir()
    (folder / "f.pdf").write_bytes(pdf(operators("from a PDF")))
    (folder / "f.ipynb").write_bytes(old())
    for name, (content, _) in PACKAGES.items():
        (folder / name).write_bytes(content)
    wanted = {"f.pdf": "from a PDF", "f.docx": "# Title", "f.xlsx": "'Q1'", "f.ipynb": "print(1)"}
    client = await shared.client(setup)
    for name, part in wanted.items():
        assert part in text(await client.call_tool("read_file", {"path": f"documents/{name}"}))
