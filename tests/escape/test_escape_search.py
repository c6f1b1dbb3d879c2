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


async def test_only_the_roots_are_searched(scene: Scene) -> None:
    """GLOB02, GLOB10: `test_glob.py` has the patterns that hide the way up."""
    scene.put("a/b.txt", "root\n")
    assert (await scene.glob("/etc/*")).error == "denied"
    assert (await scene.glob(f"{scene.root}/../outside/*")).error == "denied"
    assert (await scene.glob(f"{scene.root}/a/*.txt")).text == "a/b.txt"
    assert (await scene.grep("root", path="/etc")).error == "denied"
    assert (await scene.grep("outside", path="../outside")).error == "denied"
    assert (await scene.grep("root", path=str(scene.root))).text.startswith("a/b.txt:1:root")


async def test_links_are_not_searched_through(scene: Scene) -> None:
    """GLOB04, GLOB12."""
    (scene.root / "file").symlink_to(scene.root.parent / "outside" / "secret")
    (scene.root / "folder").symlink_to(scene.root.parent / "outside")
    scene.put("real/secret", "only here\n")
    assert (await scene.glob("**/secret")).text == "real/secret"
    assert (await scene.glob("folder/*")).text.startswith("No file")
    assert "\n".join((await scene.grep("only")).text.splitlines()[:-1]) == "real/secret:1:only here"
    assert (await scene.grep("only", path="file")).error == "denied"
    assert (await scene.grep("only", path="folder")).error == "denied"


async def test_a_glob_brings_nothing_in(scene: Scene) -> None:
    """GLOB11."""
    scene.put("a", f"{SECRET}\n")
    for glob in ("../**", "{..,.}/**", "/**"):
        assert SECRET not in (await scene.grep(SECRET[:4], glob=glob)).text
    assert SECRET in (await scene.grep(SECRET[:4], glob="**")).text


async def test_a_pattern_is_never_an_option(scene: Scene) -> None:
    """RG01 to RG03."""
    mark = scene.root.parent / "mark"
    scene.put("evil.sh", f"#!/bin/sh\ntouch {mark}\n").chmod(0o755)
    for pattern in ("--pre=./evil.sh", "--hostname-bin=./evil.sh", "-f/etc/passwd", "--", "-e"):
        scene.put("a", f"x {pattern} y\nroot:x:0\n")
        assert (await scene.grep(pattern)).text.startswith(f"a:1:x {pattern} y\n[1 match"), pattern
        assert (await scene.grep("x", type=pattern)).error == "invalid_input", pattern
        assert (await scene.grep("x", glob=pattern)).text.startswith("No "), pattern
    assert not mark.exists()


async def test_a_pattern_that_backtracks_or_grows_ends_in_time(scene: Scene) -> None:
    """REDOS01, RG07, RG08: ripgrep does not backtrack, and a search has a deadline."""
    scene.put("a", "a" * 60 + "c\n")
    for pattern in ("(a+)+$", "^(a|a)*$", "(a+a+)+b", "(.*)*="):
        result = await ask(scene.hasty, "grep_search", pattern=pattern)
        assert result.error == "timed_out" or result.text.startswith("No matches"), pattern
    for pattern in ("(a{1000}){1000}", "((a{100}){100}){100}", "a{99999999999}"):
        result = await scene.grep(pattern)
        assert result.error in ("invalid_input", "timed_out") or result.text.startswith("No matches"), pattern
    assert (await scene.grep("a+c$")).text.startswith("a:1:aaa")
