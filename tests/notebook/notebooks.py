"""Notebooks to read and to edit, made by nbformat and written in the ways that notebooks are written."""

import json
from typing import Any

import nbformat
from nbformat import v3, v4

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one pixel, as PNG in base 64."""

KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def cells() -> list[dict[str, Any]]:
    """One of each kind, with ids a to c; the code has run."""
    code = v4.new_code_cell("print('ä')\n1 / 2", id="a", execution_count=3)
    code.outputs = [
        v4.new_output("stream", name="stdout", text="ä\n"),
        v4.new_output("execute_result", execution_count=3, data={"text/plain": "0.5"}),
    ]
    markdown = v4.new_markdown_cell("# Title\n\n![p](attachment:p.png)", id="b")
    markdown["attachments"] = {"p.png": {"image/png": PIXEL}}
    return [code, markdown, v4.new_raw_cell("raw", id="c")]


def made(*parts: dict[str, Any], minor: int = 5, **more: Any) -> dict[str, Any]:
    """A notebook of `parts`, or of one cell of each kind."""
    notebook = v4.new_notebook(cells=list(parts) or cells(), metadata=KERNEL, **more)
    notebook.nbformat_minor = minor
    if minor < 5:
        for cell in notebook.cells:
            del cell["id"]
    return notebook


def written(notebook: dict[str, Any]) -> bytes:
    return f"{nbformat.writes(nbformat.from_dict(notebook))}\n".encode()


def plain(notebook: dict[str, Any]) -> dict[str, Any]:
    """What is in the file: sources and outputs as lists of lines."""
    return json.loads(written(notebook))


def old() -> bytes:
    """A notebook of nbformat 3, whose cells lie in a worksheet and have other names for the same things."""
    code = v3.new_code_cell("print(1)", language="python", prompt_number=1)
    code.outputs = [v3.new_output("stream", output_text="1\n"), v3.new_output("pyout", "2", prompt_number=1)]
    sheet = v3.new_worksheet(cells=[v3.new_heading_cell("Old", level=2), code])
    return v3.writes_json(v3.new_notebook(worksheets=[sheet], metadata=v3.new_metadata(name="x"))).encode()
