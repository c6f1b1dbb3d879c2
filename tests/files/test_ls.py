"""What ls shows, and what it does not."""

import os
from pathlib import Path

import pytest

from mcp_toolserver.runtime.files import listing
from mcp_toolserver.tools.files.ls import TOOL
from tests.support.calling import Bench, make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=TOOL, root=make(tmp_path / "root", {"b": b"12", "src/main.py": b"", ".env": b""}))


async def test_names_come_sorted_and_folders_end_in_a_slash(bench: Bench) -> None:
    (bench.root / "a").mkdir()
    assert await bench.text() == "a/\nb\nsrc/\n[1 dot files are not shown; set `hidden` to see them]"
    assert await bench.text(path="src") == "main.py"
    assert await bench.text(hidden=True) == ".env\na/\nb\nsrc/"


async def test_what_is_no_file_is_named_but_neither_opened_nor_followed(bench: Bench) -> None:
    os.mkfifo(bench.root / "pipe")
    (bench.root / "link").symlink_to("/etc")
    (bench.root / "gone").symlink_to("nowhere")
    here = os.open(bench.root, os.O_RDONLY)
    os.mknod(f"/proc/self/fd/{here}/socket", 0o140600)
    os.close(here)
    text = await bench.text()
    assert text.split("\n")[:6] == [
        "b",
        "gone (link)",
        "link (link)",
        "pipe (FIFO)",
        "socket (socket)",
        "src/",
    ]
    assert "etc" not in text


async def test_details_are_size_and_time_of_change(bench: Bench) -> None:
    os.utime(bench.root / "b", (0, 1_700_000_000))
    os.utime(bench.root / "src", (0, 0))
    lines = (await bench.text(details=True)).split("\n")
    assert lines[0] == f"{2:>12}  2023-11-14 22:13Z  b"
    assert lines[1] == f"{'':>12}  1970-01-01 00:00Z  src/"


async def test_a_long_folder_comes_in_pages(tmp_path: Path) -> None:
    bench = Bench(tool=TOOL, root=make(tmp_path / "root", {f"{n:04}": b"" for n in range(1_002)}))
    first = await bench.result()
    assert first.truncated
    lines = first.text.split("\n")
    assert (lines[0], lines[199], len(lines)) == ("0000", "0199", 201)
    assert lines[200] == "[entries 1-200 of 1,002; go on with offset=200]"
    second = await bench.result(offset=1_000)
    assert (second.text, second.truncated) == ("1000\n1001", False)
    assert await bench.text(offset=900, limit=102) == "\n".join(f"{n:04}" for n in range(900, 1_002))
    assert await bench.text(offset=2_000) == "[nothing at offset 2000: the folder has 1,002 entries]"


async def test_a_folder_with_more_names_than_are_looked_at_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_NAMES", 2)
    result = await bench.result(hidden=True)
    assert result.truncated
    assert "not all names were looked at" in result.text


async def test_an_empty_folder_is_not_an_error(bench: Bench) -> None:
    (bench.root / "empty").mkdir()
    assert await bench.text(path="empty") == "[the folder is empty]"
    (bench.root / "empty/.keep").touch()
    assert (await bench.text(path="empty")).startswith("[no other entries]\n[1 dot files")


async def test_what_a_rule_hides_is_neither_shown_nor_counted(bench: Bench) -> None:
    make(bench.root, {"secret/key": b"", ".hidden": b""})
    hiding = Bench(
        tool=TOOL,
        root=bench.root,
        hides=lambda names: names[0].startswith("secret") or names[0] in (".hidden", "b"),
    )
    assert await hiding.text() == "src/\n[1 dot files are not shown; set `hidden` to see them]"
    assert await hiding.text(hidden=True) == ".env\nsrc/"
    await hiding.refusal("denied", path="secret")
    assert "secret/" in await bench.text()


async def test_a_name_that_is_no_text_stays_on_its_line(bench: Bench) -> None:
    os.mkdir(os.fsencode(bench.root) + b"/caf\xe9")
    (bench.root / "two\nlines").touch()
    assert (await bench.text()).split("\n")[:4] == ["b", "caf\\xe9/", "src/", "two\\x0alines"]


async def test_only_folders_are_listed(bench: Bench) -> None:
    os.mkfifo(bench.root / "pipe")
    for path in ("b", "pipe"):
        await bench.refusal("invalid_input", path=path)
    await bench.refusal("not_found", path="gone")
    assert (await bench.text(path="src/.")) == "main.py"


async def test_a_time_no_calendar_has_is_not_an_error(bench: Bench) -> None:
    from mcp_toolserver.capabilities.files import FolderEntry
    from mcp_toolserver.text.folder_listing import detailed

    assert "?" in detailed(FolderEntry(name="f", kind="file", size=1, changed=1e30))
