"""Attempts to get out of the workspace, to run something, or to be slow, by way of a search. By their ids.

Each comes with a harmless call of the same kind that has to work.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import JsonValue

from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.processes.broker_client import Broker
from tests.search.searching import ask, searcher

SECRET = "only outside the workspace"


@dataclass(frozen=True)
class Scene:
    """A workspace, its siblings, and the tools."""

    root: Path
    at: Dispatcher
    hasty: Dispatcher
    """Gives a search one second."""

    async def glob(self, pattern: str) -> Result:
        return await ask(self.at, "glob_search", pattern=pattern)

    async def grep(self, pattern: str, **arguments: JsonValue) -> Result:
        return await ask(self.at, "grep_search", pattern=pattern, output_mode="content", **arguments)

    def put(self, name: str, content: str = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return path


@pytest.fixture
def scene(tmp_path: Path, search_broker: Broker) -> Scene:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(f"{SECRET}\n", encoding="utf-8")
    hasty = searcher(tmp_path, search_broker, deadline=1.0)
    return Scene(tmp_path / "root", searcher(tmp_path, search_broker), hasty)


def identified(case: str) -> pytest.MarkDecorator:
    """Names the case in the test's id."""
    return pytest.mark.parametrize("case", [case])


@identified("GLOB02")
async def test_an_absolute_pattern_stays_in_the_roots(scene: Scene, case: str) -> None:
    scene.put("a/b.txt")
    assert (await scene.glob("/etc/*")).error == "denied"
    assert (await scene.glob(f"{scene.root}/../outside/*")).error == "denied"
    assert (await scene.glob(f"{scene.root}/a/*.txt")).text == "a/b.txt"


@identified("GLOB03")
async def test_braces_do_not_hide_the_way_up(scene: Scene, case: str) -> None:
    scene.put("secret")
    for pattern in ("{..,.}/secret", "{.,x}{.,y}/outside/secret", "{..,a}/outside/*", "{/etc,a}/*"):
        assert (await scene.glob(pattern)).error == "invalid_input"
    assert (await scene.glob("{.,a}/secret")).text == "secret"


@identified("GLOB04")
async def test_a_linked_folder_is_not_entered(scene: Scene, case: str) -> None:
    (scene.root / "link").symlink_to(scene.root.parent / "outside")
    scene.put("real/secret")
    assert (await scene.glob("**/secret")).text == "real/secret"
    assert (await scene.glob("link/*")).text.startswith("No file")


@identified("GLOB06")
async def test_braces_cannot_explode(scene: Scene, case: str) -> None:
    scene.put("a" * 9)
    assert (await scene.glob("{a,b}" * 20)).error == "invalid_input"
    assert (await scene.grep("x", glob="{a,b}" * 20)).error == "invalid_input"
    assert (await scene.glob("{a,b}" * 9)).text == "a" * 9


@identified("GLOB07")
async def test_many_stars_are_fast(scene: Scene, case: str) -> None:
    scene.put("a" * 200)
    assert (await scene.glob("*a" * 30 + "*b")).text.startswith("No file")
    assert (await scene.glob("*a" * 30)).text == "a" * 200


@identified("GLOB09")
async def test_a_class_does_not_reach_over_a_slash(scene: Scene, case: str) -> None:
    scene.put("x/y")
    scene.put("x.y")
    scene.put("x[!]/]y")
    assert (await scene.glob("./x[!]/]y")).text == "x[!]/]y"
    assert (await scene.glob("./x[..]y")).text == "x.y"


@identified("GLOB10")
async def test_only_the_roots_are_searched(scene: Scene, case: str) -> None:
    scene.put("a", "root\n")
    assert (await scene.grep("root", path="/etc")).error == "denied"
    assert (await scene.grep("outside", path="../outside")).error == "denied"
    assert (await scene.grep("root", path=str(scene.root))).text.startswith("a:1:root")


@identified("GLOB11")
async def test_a_glob_brings_nothing_in(scene: Scene, case: str) -> None:
    scene.put("a", f"{SECRET}\n")
    for glob in ("../**", "{..,.}/**", "/**"):
        assert SECRET not in (await scene.grep(SECRET[:4], glob=glob)).text
    assert SECRET in (await scene.grep(SECRET[:4], glob="**")).text


@identified("GLOB12")
async def test_links_are_not_searched_through(scene: Scene, case: str) -> None:
    (scene.root / "file").symlink_to(scene.root.parent / "outside" / "secret")
    (scene.root / "folder").symlink_to(scene.root.parent / "outside")
    scene.put("a", "only here\n")
    assert "\n".join((await scene.grep("only")).text.splitlines()[:-1]) == "a:1:only here"
    assert (await scene.grep("only", path="file")).error == "denied"
    assert (await scene.grep("only", path="folder")).error == "denied"


@identified("GLOB14")
async def test_a_pattern_has_its_limit(scene: Scene, case: str) -> None:
    scene.put("a", "x" * 10_000)
    assert (await scene.grep("x" * 100_000)).error == "invalid_input"
    assert (await scene.grep("x" * 10_000)).text.startswith("a:1:x")


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("--pre=./evil.sh", id="RG01"),
        pytest.param("--hostname-bin=./evil.sh", id="RG02"),
        pytest.param("-f/etc/passwd", id="RG03"),
        pytest.param("--", id="RG03-end of options"),
        pytest.param("-e", id="RG03-another pattern"),
    ],
)
async def test_a_pattern_is_never_an_option(scene: Scene, pattern: str) -> None:
    mark = scene.root.parent / "mark"
    scene.put("evil.sh", f"#!/bin/sh\ntouch {mark}\n").chmod(0o755)
    scene.put("a", f"x {pattern} y\nroot:x:0\n")
    assert (await scene.grep(pattern)).text.startswith(f"a:1:x {pattern} y\n[1 match")
    assert (await scene.grep("x", type=pattern)).error == "invalid_input"
    assert (await scene.grep("x", glob=pattern)).text.startswith("No ")
    assert not mark.exists()


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("(a+)+$", id="REDOS01"),
        pytest.param("^(a|a)*$", id="REDOS01-alternatives"),
        pytest.param("(a+a+)+b", id="RG07"),
        pytest.param("(.*)*=", id="RG07-anything"),
    ],
)
async def test_a_pattern_that_backtracks_ends_in_time(scene: Scene, pattern: str) -> None:
    """ripgrep does not backtrack, and a search has a deadline."""
    scene.put("a", "a" * 60 + "c\n")
    result = await ask(scene.hasty, "grep_search", pattern=pattern)
    assert result.error == "timed_out" or result.text.startswith("No matches")
    assert (await scene.grep("a+c$")).text.startswith("a:1:aaa")


@identified("RG07")
async def test_what_needs_backtracking_is_refused(scene: Scene, case: str) -> None:
    scene.put("a", "aa\n")
    for pattern in ("(?=a)a", r"(a)\1", "(?<=a)a", "(?>a)a"):
        assert (await scene.grep(pattern)).error == "invalid_input"
    assert (await scene.grep("(?:a)a")).text.startswith("a:1:aa")


@identified("RG08")
async def test_a_pattern_that_grows_is_bounded(scene: Scene, case: str) -> None:
    scene.put("a", "aaa\n")
    for pattern in ("(a{1000}){1000}", "((a{100}){100}){100}", "a{99999999999}"):
        result = await scene.grep(pattern)
        assert result.error in ("invalid_input", "timed_out") or result.text.startswith("No matches")
    assert (await scene.grep("(a{3}){1}")).text.startswith("a:1:aaa")


@identified("REDOS05")
async def test_stars_over_folders_are_fast(scene: Scene, case: str) -> None:
    deep = "/".join(["a"] * 100)
    scene.put(f"{deep}/y")
    assert (await scene.glob("**/**/**/**/x")).text.startswith("No file")
    assert (await scene.glob("**/a/" * 20 + "**/x")).text.startswith("No file")
    assert (await scene.glob("**/**/**/**/y")).text == f"{deep}/y"
