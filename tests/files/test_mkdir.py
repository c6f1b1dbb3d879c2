"""What mkdir does, and where it does not."""

from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.tools.files.mkdir import TOOL
from tests.support.calling import Bench, make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=TOOL, root=make(tmp_path / "root", {"f": b"", "sub/x": b""}))


async def test_a_folder_is_made_with_those_above_it(bench: Bench) -> None:
    assert await bench.text(path="a/b/c") == "Created a/b/c/."
    assert (bench.root / "a/b/c").is_dir()


@pytest.mark.parametrize("path", ["sub", ".", "sub/../sub/"])
async def test_one_that_is_there_is_no_error(bench: Bench, path: str) -> None:
    assert "was there already" in await bench.text(path=path)
    assert sorted(path.name for path in bench.root.iterdir()) == ["f", "sub"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        pytest.param("f", "conflict", id="file"),
        pytest.param("f/x", "invalid_input", id="below-a-file"),
        pytest.param("../new", "denied", id="dots"),
        pytest.param("sub/../../new", "denied", id="dots-later"),
        pytest.param("/tmp/new-folder-of-a-test", "denied", id="absolute"),
        pytest.param("out/new", "denied", id="through-a-link"),
        pytest.param("gone", "denied", id="at-a-dangling-link"),
        pytest.param("missing/../../new", "invalid_input", id="back-from-nowhere"),
    ],
)
async def test_no_folder_is_made_elsewhere(bench: Bench, path: str, kind: str) -> None:
    (bench.root / "out").symlink_to("..")
    (bench.root / "gone").symlink_to("../new")
    before = sorted(bench.root.parent.rglob("*"))
    await bench.refusal(kind, path=path)
    assert sorted(bench.root.parent.rglob("*")) == before
    await bench.text(path="control")


async def test_a_dangling_link_inside_gets_its_target(bench: Bench) -> None:
    (bench.root / "link").symlink_to("sub/new")
    assert await bench.text(path="link") == "Created sub/new/."
    assert (bench.root / "sub/new").is_dir()


async def test_nothing_is_made_where_a_rule_hides(bench: Bench) -> None:
    hiding = Bench(tool=TOOL, root=bench.root, hides=lambda names: names[0].startswith("secret"))
    await hiding.refusal("denied", path="secret/new")
    await hiding.refusal("denied", path="sub/../secret")
    assert not (bench.root / "secret").exists()


async def test_in_read_only_mode_none_is_made(bench: Bench) -> None:
    reading = Bench(tool=TOOL, root=bench.root, ceiling=Permission.READ_ONLY)
    await reading.refusal("denied", path="new")
    assert not (bench.root / "new").exists()


async def test_a_deny_rule_matches_every_spelling(bench: Bench) -> None:
    denying = Bench(tool=TOOL, root=bench.root, deny=("mkdir(sub/private/**)",))
    for path in ("sub/private/x", "./sub//private/x", f"{bench.root}/sub/private/x", "f/../sub/private/x"):
        assert (await denying.result(path=path)).error in ("denied", "invalid_input")
    assert not (bench.root / "sub/private").exists()
    await denying.text(path="sub/public")
