"""What glob_search answers."""

import os
from pathlib import Path

import pytest

from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.processes.broker_client import Broker
from tests.search.searching import ask, searcher


@pytest.fixture
def at(tmp_path: Path, search_broker: Broker) -> Dispatcher:
    return searcher(tmp_path, search_broker)


def put(folder: Path, *names: str) -> None:
    for age, name in enumerate(names):
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1e9, 1e9 - age))


@pytest.mark.requirement("GR-51")
async def test_two_hundred_files_are_all_shown_and_more_come_in_pages(at: Dispatcher, tmp_path: Path) -> None:
    names = [f"f{number:04}" for number in range(201)]
    put(tmp_path, *names[:200])
    whole = await ask(at, "glob_search", pattern="*")
    assert (whole.text.splitlines(), whole.truncated) == (names[:200], False)
    put(tmp_path, *names)
    cut = await ask(at, "glob_search", pattern="*")
    note = "[files 1-200 of 201, the newest first; go on with offset=200]"
    assert (cut.text.splitlines(), cut.truncated) == ([*names[:200], note], True)
    last = await ask(at, "glob_search", pattern="*", offset=199, limit=2)
    assert last.text == "f0199\nf0200\n[files 200-201 of 201, the newest first]"
    assert not last.truncated
    past = await ask(at, "glob_search", pattern="*", offset=300)
    assert past.text == "[nothing after offset=300: there are 201 files]"


async def test_hidden_and_ignored_files_come_on_request_and_finding_nothing_says_so(
    at: Dispatcher, tmp_path: Path
) -> None:
    put(tmp_path, "a", ".b", "c.log", ".DS_Store", "src/.DS_Store")
    (tmp_path / "root" / ".gitignore").write_text("*.log\n", encoding="utf-8")
    os.utime(tmp_path / "root" / ".gitignore", (1, 1))
    for name in ("glob_search", "Glob", "glob"):
        assert (await ask(at, name, pattern="*", path=".")).text == "a"
    assert (await ask(at, "glob_search", pattern="*", hidden=True)).text == "a\n.b\n.gitignore"
    assert (await ask(at, "glob_search", pattern="*", include_ignored=True)).text == "a\nc.log"
    nothing = await ask(at, "glob_search", pattern="nothing")
    assert (nothing.error, "hidden" in nothing.text, "include_ignored" in nothing.text) == (None, True, True)
    everything = await ask(at, "glob_search", pattern="nothing", hidden=True, include_ignored=True)
    assert everything.text == "No file matches."


async def test_an_absolute_pattern_is_a_folder_and_a_pattern(at: Dispatcher, tmp_path: Path) -> None:
    put(tmp_path, "src/a.py", "src/x/b.py")
    root = tmp_path / "root"
    assert (await ask(at, "glob_search", pattern=f"{root}/src/*.py", path="elsewhere")).text == "src/a.py"
    assert (await ask(at, "glob_search", pattern=f"{root}/src/a.py")).text == "src/a.py"
    assert (await ask(at, "glob_search", pattern=f"{root}//src//*.py")).text == "src/a.py"
    assert (await ask(at, "glob_search", pattern=f"{root}/src/")).text == "src/a.py\nsrc/x/b.py"
