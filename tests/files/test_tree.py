"""What tree shows, and what it does not."""

import os
from pathlib import Path

import pytest

from mcp_toolserver.tools.search.tree import TOOL
from tests.support.calling import Bench, make

PROJECT = {
    "README.md": b"",
    "src/app/main.py": b"",
    "src/app/deep/er/x": b"",
    "src/lib.py": b"",
    ".git/config": b"",
    ".gitignore": b"build/\n*.log\n",
    "build/out": b"",
    "run.log": b"",
    "empty/.keep": b"",
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=TOOL, root=make(tmp_path / "root", PROJECT))


async def test_folders_are_shown_to_a_depth_without_what_is_ignored(bench: Bench) -> None:
    assert await bench.text() == "\n".join(
        [
            "./",
            "README.md",
            "empty/",
            "  [nothing to show]",
            "src/",
            "  app/",
            "    deep/ …",
            "    main.py",
            "  lib.py",
            "[folders with … were not looked into; give one as path, or set max_depth]",
        ]
    )


async def test_the_depth_can_be_chosen(bench: Bench) -> None:
    assert (await bench.text(max_depth=1)).split("\n")[:4] == ["./", "README.md", "empty/ …", "src/ …"]
    assert (await bench.text(path="src/app", max_depth=3)) == "src/app/\ndeep/\n  er/\n    x\nmain.py"


async def test_ignored_and_hidden_files_are_shown_when_asked_for(bench: Bench) -> None:
    ignored = (await bench.text(include_ignored=True, max_depth=2)).split("\n")
    assert {"build/", "  out", "run.log"} <= set(ignored)
    assert ".gitignore" not in ignored
    hidden = (await bench.text(hidden=True, max_depth=2)).split("\n")
    assert ".gitignore" in hidden
    assert not {".git/", "build/"} & set(hidden)
    both = (await bench.text(hidden=True, include_ignored=True, max_depth=2)).split("\n")
    assert {".git/", "  config", "build/", ".gitignore"} <= set(both)


async def test_rules_of_folders_above_count(bench: Bench) -> None:
    make(bench.root, {"src/app/x.log": b"", "src/.gitignore": b"/lib.py\n"})
    assert "x.log" not in await bench.text(path="src/app")
    assert "lib.py" not in await bench.text()


async def test_a_huge_folder_does_not_crowd_out_the_others(bench: Bench) -> None:
    make(bench.root, {f"data/{number:04}": b"" for number in range(120)})
    result = await bench.result()
    lines = result.text.split("\n")
    assert result.truncated
    assert "  [20 more]" in lines
    assert "  lib.py" in lines
    assert "[not all entries are shown; ls lists one folder whole]" in lines


async def test_at_most_500_entries_are_shown_and_upper_levels_first(tmp_path: Path) -> None:
    files = {f"{a}/{b:02}": b"" for a in "abcdefgh" for b in range(90)}
    bench = Bench(tool=TOOL, root=make(tmp_path / "root", files))
    result = await bench.result()
    lines = result.text.split("\n")
    shown = [line for line in lines[1:] if "[" not in line]
    assert len(shown) == 500
    assert result.truncated
    assert {"a/", "f/", "g/ …", "h/ …"} <= set(lines)
    assert "  [48 more]" in lines


async def test_links_are_named_and_not_followed(bench: Bench) -> None:
    (bench.root / "up").symlink_to("..")
    (bench.root / "loop").symlink_to("src")
    os.mkfifo(bench.root / "src/pipe")
    lines = (await bench.text()).split("\n")
    assert {"up (link)", "loop (link)", "  pipe (FIFO)"} <= set(lines)
    assert lines.count("  lib.py") == 1


async def test_what_a_rule_hides_is_left_out_at_any_depth(bench: Bench) -> None:
    def hides(names: tuple[str, ...]) -> bool:
        return names[0] == "src/app" or names[0].startswith("src/app/")

    hiding = Bench(tool=TOOL, root=bench.root, hides=hides)
    text = await hiding.text()
    assert "lib.py" in text
    assert "app" not in text
    await hiding.refusal("denied", path="src/app")


async def test_a_folder_that_cannot_be_read_is_reported_and_the_rest_is_shown(bench: Bench) -> None:
    mounted = Bench(tool=TOOL, root=bench.root.parent / "top" / "root")
    mounted.root.parent.mkdir()
    mounted.root.symlink_to("/")
    lines = (await mounted.text(max_depth=2)).split("\n")
    place = lines.index("proc/")
    assert "the kernel makes up" in lines[place + 1]
