"""What mkdir makes, and what ls and tree show."""

import os
from pathlib import Path

import pytest

from mcp_toolserver.tools.files.ls import TOOL as LS
from mcp_toolserver.tools.files.mkdir import TOOL as MKDIR
from mcp_toolserver.tools.search.tree import TOOL as TREE
from tests.support.calling import Bench, make


@pytest.fixture
def maker(tmp_path: Path) -> Bench:
    return Bench(tool=MKDIR, root=make(tmp_path / "root", {"f": b"", "sub/x": b""}))


async def test_a_folder_is_made_with_those_above_it(maker: Bench) -> None:
    assert await maker.text(path="a/b/c") == "Created a/b/c/."
    assert (maker.root / "a/b/c").is_dir()


async def test_one_that_is_there_is_no_error(maker: Bench) -> None:
    for path in ("sub", ".", "sub/../sub/"):
        assert "was there already" in await maker.text(path=path)
    assert sorted(path.name for path in maker.root.iterdir()) == ["f", "sub"]


async def test_no_folder_is_made_where_none_can_be(maker: Bench) -> None:
    before = sorted(maker.root.parent.rglob("*"))
    for path, kind in (("f", "conflict"), ("f/x", "invalid_input"), ("missing/../../new", "invalid_input")):
        await maker.refusal(kind, path=path)
    assert sorted(maker.root.parent.rglob("*")) == before


async def test_a_dangling_link_inside_gets_its_target(maker: Bench) -> None:
    (maker.root / "link").symlink_to("sub/new")
    assert await maker.text(path="link") == "Created sub/new/."
    assert (maker.root / "sub/new").is_dir()


@pytest.fixture
def lister(tmp_path: Path) -> Bench:
    return Bench(tool=LS, root=make(tmp_path / "root", {"b": b"12", "src/main.py": b"", ".env": b""}))


async def test_names_come_sorted_and_folders_end_in_a_slash(lister: Bench) -> None:
    (lister.root / "a").mkdir()
    assert await lister.text() == "a/\nb\nsrc/\n[1 dot files are not shown; set `hidden` to see them]"
    assert await lister.text(path="src") == "main.py"
    assert await lister.text(hidden=True) == ".env\na/\nb\nsrc/"


async def test_what_is_no_file_is_named_but_neither_opened_nor_followed(lister: Bench) -> None:
    os.mkfifo(lister.root / "pipe")
    (lister.root / "link").symlink_to("/etc")
    (lister.root / "gone").symlink_to("nowhere")
    here = os.open(lister.root, os.O_RDONLY)
    os.mknod(f"/proc/self/fd/{here}/socket", 0o140600)
    os.close(here)
    text = await lister.text()
    assert text.split("\n")[:6] == [
        "b",
        "gone (link)",
        "link (link)",
        "pipe (FIFO)",
        "socket (socket)",
        "src/",
    ]
    assert "etc" not in text


async def test_details_are_size_and_time_of_change(lister: Bench) -> None:
    os.utime(lister.root / "b", (0, 1_700_000_000))
    os.utime(lister.root / "src", (0, 0))
    lines = (await lister.text(details=True)).split("\n")
    assert lines[0] == f"{2:>12}  2023-11-14 22:13Z  b"
    assert lines[1] == f"{'':>12}  1970-01-01 00:00Z  src/"


async def test_a_long_folder_comes_in_pages(tmp_path: Path) -> None:
    lister = Bench(tool=LS, root=make(tmp_path / "root", {f"{n:04}": b"" for n in range(1_002)}))
    first = await lister.result()
    assert first.truncated
    lines = first.text.split("\n")
    assert (lines[0], lines[199], len(lines)) == ("0000", "0199", 201)
    assert lines[200] == "[entries 1-200 of 1,002; go on with offset=200]"
    second = await lister.result(offset=1_000)
    assert (second.text, second.truncated) == ("1000\n1001", False)
    assert await lister.text(offset=900, limit=102) == "\n".join(f"{n:04}" for n in range(900, 1_002))
    assert await lister.text(offset=2_000) == "[nothing at offset 2000: the folder has 1,002 entries]"


async def test_an_empty_folder_is_not_an_error(lister: Bench) -> None:
    (lister.root / "empty").mkdir()
    assert await lister.text(path="empty") == "[the folder is empty]"
    (lister.root / "empty/.keep").touch()
    assert (await lister.text(path="empty")).startswith("[no other entries]\n[1 dot files")


async def test_what_a_rule_hides_is_neither_shown_nor_counted(lister: Bench) -> None:
    make(lister.root, {"secret/key": b"", ".hidden": b""})
    hiding = Bench(
        tool=LS,
        root=lister.root,
        hides=lambda names: names[0].startswith("secret") or names[0] in (".hidden", "b"),
    )
    assert await hiding.text() == "src/\n[1 dot files are not shown; set `hidden` to see them]"
    assert await hiding.text(hidden=True) == ".env\nsrc/"
    await hiding.refusal("denied", path="secret")
    assert "secret/" in await lister.text()


async def test_a_name_that_is_no_text_stays_on_its_line(lister: Bench) -> None:
    os.mkdir(os.fsencode(lister.root) + b"/caf\xe9")
    (lister.root / "two\nlines").touch()
    assert (await lister.text()).split("\n")[:4] == ["b", "caf\\xe9/", "src/", "two\\x0alines"]


async def test_only_folders_are_listed(lister: Bench) -> None:
    os.mkfifo(lister.root / "pipe")
    for path in ("b", "pipe"):
        await lister.refusal("invalid_input", path=path)
    await lister.refusal("not_found", path="gone")
    assert (await lister.text(path="src/.")) == "main.py"


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
    return Bench(tool=TREE, root=make(tmp_path / "root", PROJECT))


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
    bench = Bench(tool=TREE, root=make(tmp_path / "root", files))
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

    hiding = Bench(tool=TREE, root=bench.root, hides=hides)
    text = await hiding.text()
    assert "lib.py" in text
    assert "app" not in text
    await hiding.refusal("denied", path="src/app")


async def test_a_folder_that_cannot_be_read_is_reported_and_the_rest_is_shown(bench: Bench) -> None:
    mounted = Bench(tool=TREE, root=bench.root.parent / "top" / "root")
    mounted.root.parent.mkdir()
    mounted.root.symlink_to("/")
    lines = (await mounted.text(max_depth=2)).split("\n")
    place = lines.index("proc/")
    assert "the kernel makes up" in lines[place + 1]
