"""Finding by the index of a machine, with stand-ins for the programs that know it: what they name may lie
anywhere, and only what a call may see is returned.
"""

from pathlib import Path

from mcp_toolserver.text.desktop.programs import MOST_NAMED, PROGRAMS
from tests.desktop.desktop import desktop_server, given, stand_ins
from tests.support.processes import call
from tests.support.workshop import names

HOSTILE = "-x'; touch evil; \" $(touch evil) `touch evil` \\ \U0001f600"


def indexed(folder: Path, program: str, *files: str) -> list[str]:
    """A program that names `files`, which lie in the root unless absolute; where it lies."""
    paths = [file if file.startswith("/") else f"{folder}/root/{file}" for file in files]
    (folder / "named").write_text("".join(f"{path}\0" for path in paths), encoding="utf-8")
    return stand_ins(folder, {program: f"cat {folder}/named"})


def fill(folder: Path, *files: str) -> None:
    for file in files:
        path = folder / "root" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x", encoding="utf-8")


ARGUMENTS = {
    "plocate": ("linux", ["--all", "--null", "--ignore-case", "--limit", "1000", "--", "{root}/*", HOSTILE]),
    "mdfind": ("darwin", ["-0", "-onlyin", "{root}", f" {HOSTILE}"]),
    "localsearch": ("linux", ["search", "--limit", "1000", "--disable-color", "--", HOSTILE]),
}
"""Of each program with a format of its own."""


async def test_a_query_is_one_word_and_never_an_option(tmp_path: Path) -> None:
    for program, (platform, expected) in ARGUMENTS.items():
        (folder := tmp_path / program).mkdir()
        path = indexed(folder, program)
        async with desktop_server(folder, path=path, environ={}, platform=platform) as server:
            result = await call(server, "mdfind", query=HOSTILE)
            assert (result.error, "nothing found" in result.text) == (None, True)
            assert given(folder) == [program, *(word.format(root=folder / "root") for word in expected)]
            for query in ("a\0b", ""):
                assert (await call(server, "mdfind", query=query)).error == "invalid_input"
    assert not list(tmp_path.rglob("evil"))


async def test_only_what_lies_in_the_roots_and_is_not_hidden_is_reported(tmp_path: Path) -> None:
    fill(tmp_path, "a.txt", "sub/b.txt", "secrets/c.txt")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/d.txt").write_text("x", encoding="utf-8")
    (tmp_path / "root/out").symlink_to(tmp_path / "outside")
    (tmp_path / "root/link").symlink_to(tmp_path / "root/secrets")
    files = (
        *("a.txt", "sub/b.txt", "sub", "a.txt", "gone.txt"),
        *("secrets/c.txt", "link/c.txt", "out/d.txt", "../outside/d.txt"),
        *("/etc/passwd", f"{tmp_path}/state/x", "", "relative"),
    )
    path = indexed(tmp_path, "plocate", *files)
    with (tmp_path / "named").open("a", encoding="utf-8") as more:
        more.write("a.txt\0")
    async with desktop_server(tmp_path, path=path, environ={}, deny=("read_file(secrets/**)",)) as server:
        result = await call(server, "mdfind", query="txt")
        within = await call(server, "mdfind", query="txt", path="sub")
        (tmp_path / "argv").unlink()
        for folder, error in (("none", "not_found"), ("a.txt", "not_found"), ("/etc", "denied")):
            assert (await call(server, "mdfind", query="x", path=folder)).error == error
        assert not (tmp_path / "argv").exists()
    assert result.text.splitlines() == [
        *("a.txt", "sub/b.txt", "sub"),
        "[4 left out: hidden, or outside the workspace]",
    ]
    assert within.text == "sub/b.txt"
    assert "secrets" not in result.text


async def test_no_more_than_a_hundred_are_reported_and_more_is_said_to_be_there(tmp_path: Path) -> None:
    files = [f"f{at:03}" for at in range(101)]
    fill(tmp_path, *files)
    async with desktop_server(tmp_path, path=indexed(tmp_path, "plocate", *files), environ={}) as server:
        result = await call(server, "mdfind", query="f")
        assert result.text.splitlines()[:100] == files[:100]
        assert (result.truncated, "[100 shown" in result.text) == (True, True)
        indexed(tmp_path, "plocate", *["f000"] * 3, *[f"gone{at}" for at in range(MOST_NAMED)])
        result = await call(server, "mdfind", query="a")
        assert (result.truncated, result.text.splitlines()[0]) == (True, "f000")


UNKNOWN = ("invalid_input", "does not understand")
LOADS = "echo '[UserQueryParser] Loading keywords' >&2"

FAILURES: tuple[tuple[str, dict[str, str], tuple[tuple[str, str, str | None, str], ...]], ...] = (
    (
        "linux",
        {"plocate": ""},
        (
            ("plocate", "exit 1", None, "nothing found"),
            ("plocate", "echo secret: no database >&2; exit 1", "unavailable", "plocate failed"),
            ("plocate", "exit 2", "unavailable", "plocate failed"),
        ),
    ),
    # There is no mdutil.
    ("darwin", {"mdfind": LOADS}, (("mdfind", LOADS, None, "nothing found"),)),
    (
        "darwin",
        {"mdfind": LOADS, "mdutil": ""},
        (
            ("mdutil", "printf '/:\\n\\tIndexing disabled.\\n'", "unavailable", "glob_search"),
            ("mdutil", "printf '/:\\n\\tIndexing enabled. \\n'", None, "nothing found"),
            ("mdutil", "exit 1", None, "nothing found"),
            ("mdfind", "echo \"Failed to create query for 'secret'.\"; exit 1", *UNKNOWN),
            ("mdfind", "echo secret >&2; exit 1", "unavailable", "no index"),
        ),
    ),
)
"""What a server finds as it starts, and what these programs do then."""


async def test_nothing_is_concluded_from_a_failure_or_where_there_is_no_index(tmp_path: Path) -> None:
    for platform, programs, rows in FAILURES:
        path = stand_ins(tmp_path, programs)
        async with desktop_server(tmp_path, path=path, environ={}, platform=platform) as server:
            for program, script, error, words in rows:
                stand_ins(tmp_path, {program: script})
                result = await call(server, "mdfind", query="x")
                assert (result.error, words in result.text) == (error, True), result.text
                assert "secret" not in result.text
    async with desktop_server(tmp_path, path=[str(tmp_path)], environ={}) as server:
        assert "mdfind" not in names(server)
        none = "no plocate or locate or localsearch or tracker3"
        assert none in (await call(server, "mdfind", query="x")).text


async def test_each_index_names_paths_in_its_own_way(tmp_path: Path) -> None:
    fill(tmp_path, "a b.txt", "ä.txt")
    root = tmp_path / "root"
    lines = f"Results:\n  file://{root}/a%20b.txt\n    words\n  file://{root}/%C3%A4.txt\nhttp://x/\n"
    # On macOS, what is spelt as no path of the workspace is counted.
    spelt = f"{root}/ä.txt\0\0{tmp_path}/ROOT/b.txt\0"
    left_out = "[1 left out: hidden, or outside the workspace]"
    for program, platform, listing, answer in (
        ("localsearch", "linux", lines, ["a b.txt", "ä.txt"]),
        ("mdfind", "darwin", spelt, ["ä.txt", left_out]),
    ):
        (tmp_path / "named").write_text(listing, encoding="utf-8")
        path = stand_ins(tmp_path, {program: f"cat {tmp_path}/named"})
        async with desktop_server(tmp_path, path=path, environ={}, platform=platform) as server:
            result = await call(server, "mdfind", query="x")
        assert result.text.splitlines() == answer


def test_a_name_that_was_cut_off_is_none_and_a_folder_is_no_pattern() -> None:
    messages = b'2026 mdfind[1:2] [UserQueryParser] Loading "en"\nand more\n/a\n/b\0/c\0'
    rows = {row.name: row for row in PROGRAMS}
    for program, printed, expected in (
        ("plocate", b"/a\0/b\0/c", ["/a", "/b"]),
        ("tracker3", b"file:///a\nfile:///b%zz\nfile:///c", ["/a", "/b%zz"]),
        ("mdfind", b"/\xff\0/b", ["/\udcff"]),
        ("mdfind", messages, ["/a\n/b", "/c"]),
    ):
        assert rows[program].paths(printed, False) == expected
    # A folder is never a pattern.
    words = rows["locate"].argv(["/usr/bin/locate"], ("q", "/a/[b]*?\\c/"))
    assert words[-3:] == ("--", r"/a/\[b\]\*\?\\c/*", "q")
