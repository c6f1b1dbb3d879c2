"""What mkdir does, and where it does not."""

from pathlib import Path

import pytest

from mcp_toolserver.tools.files.mkdir import TOOL
from tests.support.calling import Bench, make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=TOOL, root=make(tmp_path / "root", {"f": b"", "sub/x": b""}))


async def test_a_folder_is_made_with_those_above_it(bench: Bench) -> None:
    assert await bench.text(path="a/b/c") == "Created a/b/c/."
    assert (bench.root / "a/b/c").is_dir()


async def test_one_that_is_there_is_no_error(bench: Bench) -> None:
    for path in ("sub", ".", "sub/../sub/"):
        assert "was there already" in await bench.text(path=path)
    assert sorted(path.name for path in bench.root.iterdir()) == ["f", "sub"]


async def test_no_folder_is_made_where_none_can_be(bench: Bench) -> None:
    before = sorted(bench.root.parent.rglob("*"))
    for path, kind in (("f", "conflict"), ("f/x", "invalid_input"), ("missing/../../new", "invalid_input")):
        await bench.refusal(kind, path=path)
    assert sorted(bench.root.parent.rglob("*")) == before


async def test_a_dangling_link_inside_gets_its_target(bench: Bench) -> None:
    (bench.root / "link").symlink_to("sub/new")
    assert await bench.text(path="link") == "Created sub/new/."
    assert (bench.root / "sub/new").is_dir()
