"""Searching: what is found, how it is shown, and what keeps a search in its folder.

`rg` is a program of commands: that of the machine, else the one that the server searches with.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.capabilities.search import LineQuery, SearchMode
from mcp_toolserver.errors import Denied, InvalidInput, NotFound, TimedOut
from mcp_toolserver.runtime.files.path_resolver import inside
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.search.executable import COMMAND_PATH, find_ripgrep, start
from mcp_toolserver.runtime.search.ignore_rules import rules_above
from mcp_toolserver.runtime.search.results import Results
from tests.search.searching import RIPGREP, Grounds, Meddling
from tests.support.cases import rows, table
from tests.support.confinement import FULL, READ_ONLY, USERS, Scene, Server, put, scene, serving
from tests.support.processes import call
from tests.support.workshop import program, workshop


@pytest.fixture
def grounds(tmp_path: Path, search_broker: Broker) -> Grounds:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("needle outside\n", encoding="utf-8")
    return Grounds(root=tmp_path / "root", outside=tmp_path / "outside", launcher=Programs(search_broker))


async def test_files_come_in_path_order_lines_with_numbers_and_counts_per_file(grounds: Grounds) -> None:
    grounds.write(a__z="x", a__b__c="x", a_dot_txt="x\n\nx x\n", b="x", other="y")
    modes: tuple[tuple[SearchMode, list[str], int], ...] = (
        ("files_with_matches", ["a/b/c", "a/z", "a.txt", "b"], 4),
        ("content", ["a/b/c:1:x", "a/z:1:x", "a.txt:1:x", "a.txt:3:x x", "b:1:x"], 5),
        ("count", ["a/b/c:1", "a/z:1", "a.txt:2", "b:1"], 5),
    )
    for mode, shown, matches in modes:
        found = await grounds.lines("x", mode)
        assert found.text.splitlines() == shown
        assert (found.shown, found.total, found.files, found.matches) == (len(shown), len(shown), 4, matches)
    found = await grounds.lines("z")
    assert (found.text, found.total, found.complete, found.errors) == ("", 0, True, ())
    assert (await grounds.files("*.z")).total == 0


async def test_an_option_does_what_it_says(grounds: Grounds) -> None:
    wrong: list[tuple[str, list[str]]] = []
    for number, (files, *questions) in enumerate(rows(Path(__file__).with_name("options.txt"), {}).values()):
        made = below(grounds, str(number), json.loads(files))
        for question in questions:
            pattern, options, expected = question.split(" | ")
            found = await made.shown(pattern, **json.loads(options))
            if found != json.loads(expected):
                wrong.append((question, found))
    assert not wrong


async def test_text_in_any_encoding_is_found(grounds: Grounds) -> None:
    contents = {
        "UTF-8 with a mark": (b"\xef\xbb\xbfone\nneedle\n", "a:2:needle"),
        "UTF-16": ("one\nneedle é\n".encode("utf-16"), "a:2:needle é"),
        "UTF-16 big end first": ("\ufeffone\nneedle é\n".encode("utf-16-be"), "a:2:needle é"),
        "no UTF-8": (b"one\nneedle \xff\n", "a:2:needle \ufffd"),
        "UTF-8": ("é\nneedle\n".encode(), "a:2:needle"),
    }
    for name, (content, line) in contents.items():
        grounds.put("a", content)
        assert await grounds.shown("needle") == [line], name


async def test_binary_files_are_skipped_with_their_lines_before_the_first_sign(grounds: Grounds) -> None:
    grounds.put("binary", b"needle\0needle\n")
    grounds.put("late", b"needle\n" + b"x\n" * 500_000 + b"\0\n")
    grounds.put("text", b"needle\n")
    assert await grounds.shown("needle") == ["text:1:needle"]
    (grounds.root / "late").unlink()
    assert await grounds.shown("needle", "files_with_matches") == ["text"]
    assert await grounds.shown("needle", "count") == ["text:1"]
    # Of one that is asked for it is said that it matches.
    found = await grounds.lines("needle", path="binary")
    assert (found.text, len(found.errors)) == ("", 1)
    # A line that speaks of binary files is a line.
    grounds.put("text", "<stdin>: binary file matches (found)\n")
    found = await grounds.lines("binary", path="text")
    assert (found.text, found.errors) == ("1:<stdin>: binary file matches (found)", ())


async def test_context_does_not_count(grounds: Grounds) -> None:
    grounds.write(a="0\nx\n2\n3\n4\nx\n6\n")
    found = await grounds.lines("x", before=1, after=1, limit=1)
    assert found.text.splitlines() == ["a-1-0", "a:2:x", "a-3-2"]
    assert (found.shown, found.total) == (1, 2)
    assert await grounds.shown("x", before=1, after=1, limit=1, offset=1) == ["a-5-4", "a:6:x", "a-7-6"]


async def test_an_unknown_type_is_answered_with_known_ones(grounds: Grounds) -> None:
    for name in ("nosuch", "py --pre=x"):
        with pytest.raises(InvalidInput, match=r" py .*rust"):
            await grounds.lines("x", type=name)


async def test_the_insides_of_git_are_never_searched(grounds: Grounds) -> None:
    grounds.write(_dot_git__hooks__x="x", sub___dot_git="x", a="x")
    assert await grounds.shown("x", "files_with_matches", hidden=True, ignored=True) == ["a"]
    assert await grounds.names("**", hidden=True, ignored=True) == ["a"]
    # They can be named.
    assert await grounds.shown("x", "files_with_matches", path=".git/hooks") == [".git/hooks/x"]


def below(grounds: Grounds, folder: str, rules: dict[str, str], *names: str) -> Grounds:
    """A root of its own with these files and these ignore files."""
    made = replace(grounds, root=grounds.root / folder)
    for name, text in {**dict.fromkeys(names, "x"), **rules}.items():
        made.put(name, text)
    return made


async def test_ignore_files_count(grounds: Grounds) -> None:
    whole = ["a.log", "b", "build/f", "sub/c.log", "sub/d", "sub/e/build/g"]
    for case, expected, rules in table(Path(__file__).with_name("ignored.txt"), "below"):
        made = below(grounds, case, json.loads(rules), *whole)
        assert sorted(await made.shown("x", "files_with_matches")) == expected.split(), case
        assert await made.names("**") == expected.split(), case
    made = below(grounds, "on request", {".gitignore": "*\n"}, *whole)
    assert await made.names("**", ignored=True) == whole


async def test_ignore_files_above_the_searched_folder_count_but_not_above_the_root(
    grounds: Grounds,
) -> None:
    (grounds.root.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    for case, expected, rules in table(Path(__file__).with_name("ignored.txt"), "above"):
        made = below(grounds, case, json.loads(rules), "a/b/c.log", "a/b/d", "a/b/gen/e")
        assert sorted(await made.shown("x", "files_with_matches", path="a/b")) == expected.split(), case
        assert sorted((await made.files("**", path="a/b")).files) == expected.split(), case


async def test_special_files_are_passed_by_and_what_is_not_there_is_said(grounds: Grounds) -> None:
    grounds.write(a="needle")
    os.mkfifo(grounds.root / "fifo")
    assert await grounds.shown("needle", "files_with_matches") == ["a"]
    assert await grounds.names("*") == ["a"]
    for name, error in (("fifo", InvalidInput), ("missing", NotFound), ("missing/deeper", NotFound)):
        for search in (grounds.lines("x", path=name), grounds.files("*", path=name)):
            with pytest.raises(error):
                await search


async def test_other_roots_are_shown_by_absolute_path(grounds: Grounds) -> None:
    both = replace(grounds, more_roots=(grounds.outside,))
    assert await both.shown("needle", path=str(grounds.outside)) == [
        f"{grounds.outside}/secret:1:needle outside"
    ]
    assert (await both.files("*", path=str(grounds.outside))).files == (f"{grounds.outside}/secret",)
    assert (await both.files("*", path=".")).files == ()


async def test_what_a_rule_hides_is_in_no_answer(grounds: Grounds) -> None:
    hiding = replace(grounds, hides=lambda spellings: "keys/k" in spellings)
    hiding.write(keys__k="needle\n", keys__l="needle\n")
    found = await hiding.lines("needle")
    assert (found.text, found.total, found.files, found.matches) == ("keys/l:1:needle", 1, 1, 1)
    assert (await hiding.files("**")).total == 1
    with pytest.raises(Denied):
        await hiding.lines("needle", path="keys/k")


async def test_any_name_is_shown_as_it_is(grounds: Grounds) -> None:
    for name in ("-rf", "two words", "ünïcödé", "a:1:b", "12", "{a}[b]*"):
        made = below(grounds, f"of {name}", {}, name, f"in/{name}/{name}")
        assert sorted(await made.shown("x")) == sorted([f"{name}:1:x", f"in/{name}/{name}:1:x"])
        assert await made.names("**") == sorted([name, f"in/{name}/{name}"])
        assert await made.shown("x", path=name) == ["1:x"]


async def test_a_name_cannot_pass_for_another_line(grounds: Grounds) -> None:
    (grounds.root / "a\n\nb\nc").write_bytes(b"needle\n")
    (grounds.root / os.fsdecode(b"\xff")).write_bytes(b"needle\n")
    assert await grounds.shown("needle") == ["a\\x0a\\x0ab\\x0ac:1:needle", "\\xff:1:needle"]
    assert await grounds.shown("needle", "count") == ["a\\x0a\\x0ab\\x0ac:1", "\\xff:1"]
    assert await grounds.names("**") == ["\\xff", "a\\x0a\\x0ab\\x0ac"]


def test_what_cannot_be_read_is_named_and_the_rest_is_found(
    servers: Callable[[str, str], Server],
) -> None:
    server = servers("unprivileged", READ_ONLY)
    folder = server.scene.root / "unreadable"
    for name in ("a", "closed", "sub/b", "shut/c"):
        put(folder / name, "needle")
    server.scene.own()
    for name in ("closed", "shut"):
        (folder / name).chmod(0)
    found = server.call("grep_search", pattern="needle", path="unreadable").text.splitlines()
    listed = server.call("glob_search", pattern="**", path="unreadable").text.splitlines()
    (folder / "shut").chmod(0o755)
    assert found[:2] == ["unreadable/a", "unreadable/sub/b"]
    (line,) = (line for line in found if line.startswith("[not searched: "))
    errors = sorted(line.removeprefix("[not searched: ").removesuffix("]").split("; "))
    assert errors == [f"unreadable/{name}: Permission denied" for name in ("closed", "shut")]
    assert sorted(listed)[-3:] == ["unreadable/a", "unreadable/closed", "unreadable/sub/b"]


BAD_PATTERNS = (
    *("needle(", "[needle", "*needle", "needle(?=x)", "(?<!x)needle", r"(n)\1"),
    *("(?P<n>e)(?P=n)", "a{2,1}", "(" * 5_000, "x" * 10_001),
)


async def test_a_bad_pattern_and_a_bad_glob_are_explained(grounds: Grounds) -> None:
    grounds.write(a="needle")
    with pytest.raises(InvalidInput, match="multiline"):
        await grounds.lines(r"one\ntwo")
    for pattern in BAD_PATTERNS:
        with pytest.raises(InvalidInput) as caught:
            await grounds.lines(pattern)
        text = str(caught.value)
        assert "pattern" in text
        assert len(text) < 600
        assert "rg:" not in text
        assert str(grounds.root) not in text
    for glob in ("../*", "/etc/*", "{a,b}" * 20):
        for search in (grounds.lines("x", glob=glob), grounds.files(glob)):
            with pytest.raises(InvalidInput, match=re.escape(glob[:9])):
                await search


async def test_the_newest_file_comes_first_and_equal_ones_by_path(grounds: Grounds) -> None:
    for name, age in (("old", 5), ("new", 1), ("b", 3), ("a", 3), ("c/d", 3)):
        os.utime(grounds.put(name), (1e9, 1e9 - age))
    found = await grounds.files("**", limit=3)
    assert (found.files, found.total) == (("new", "a", "b"), 5)


async def test_a_pattern_finds_files_by_name_and_for_their_lines(grounds: Grounds) -> None:
    patterns = {
        "*.py": ["a.py", "src/b.py", "src/x/c.py"],
        "./*.py": ["a.py"],
        "./*": ["a.py", "a.yml", "e.md"],
        "src/*.py": ["src/b.py"],
        "src/**": ["src/b.py", "src/d.js", "src/x/c.py"],
        "src/": ["src/b.py", "src/d.js", "src/x/c.py"],
        "src/b.py": ["src/b.py"],
        "*.{py,js}": ["a.py", "src/b.py", "src/d.js", "src/x/c.py"],
        "**/x/*.py": ["src/x/c.py"],
        "[a-b].py": ["a.py", "src/b.py"],
        "**/[!a].*": ["e.md", "src/b.py", "src/d.js", "src/x/c.py"],
        "*.rs": [],
        # One that names a hidden folder searches it.
        ".github/**": [".github/ci.yml"],
        ".github/*.yml": [".github/ci.yml"],
        "*.yml": ["a.yml"],
    }
    for name in (".github/ci.yml", "a.yml", "a.py", "src/b.py", "src/x/c.py", "src/d.js", "e.md"):
        grounds.put(name, "needle")
    assert {pattern: await grounds.names(pattern) for pattern in patterns} == patterns
    patterns["!*.py"] = ["a.yml", "e.md", "src/d.js"]
    found = {glob: await grounds.shown("needle", "files_with_matches", glob=glob) for glob in patterns}
    assert found == patterns
    # It applies below the folder, but files are shown whole.
    assert (await grounds.files("x/*", path="src")).files == ("src/x/c.py",)
    with pytest.raises(InvalidInput, match="is a file"):
        await grounds.files("*", path="a.py")


async def test_a_search_that_takes_too_long_is_ended(grounds: Grounds) -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(TimedOut):
            await replace(
                grounds, launcher=Meddling(launcher=grounds.launcher, stdin=reading), deadline=0.1
            ).lines("x")
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("name", ["a", "sub"])
async def test_lines_of_what_becomes_a_link_meanwhile_are_not_shown(grounds: Grounds, name: str) -> None:
    grounds.write(a="needle outside\n", b="needle\n", sub__secret="needle outside\n", z__c="needle\n")
    path = grounds.root / name

    def swap() -> None:
        path.rename(grounds.root.parent / "moved")
        path.symlink_to(grounds.outside / "secret" if name == "a" else grounds.outside)

    found = await replace(grounds, launcher=Meddling(launcher=grounds.launcher, act=swap)).lines("needle")
    kept = [line.partition(":")[0] for line in found.text.splitlines()]
    assert kept == (["b", "sub/secret", "z/c"] if name == "a" else ["a", "b", "z/c"])
    (error,) = found.errors
    assert error.startswith(name)


async def test_lines_that_are_not_in_the_workspace_are_not_shown(grounds: Grounds) -> None:
    grounds.write(secret="something else\n", same="needle outside\n")
    (grounds.outside / "same").write_text("needle outside\n", encoding="utf-8")
    found = await replace(
        grounds, launcher=Meddling(launcher=grounds.launcher, folder=grounds.outside)
    ).lines("needle")
    assert found.text == "same:1:needle outside"
    assert found.errors == ("secret: changed during the search",)


async def test_the_kernel_holds_a_search_program_to_its_folder(grounds: Grounds) -> None:
    grounds.write(a="needle\n")
    (grounds.root / "link").symlink_to(grounds.outside)
    found = {}
    for place in ("./", "../outside", "link/"):
        argv = (*start(RIPGREP), "--files-with-matches", "-e", "needle", "--", place)
        folder = os.open(grounds.root, os.O_RDONLY)
        try:
            async with grounds.launcher.open(argv, cwd=folder, timeout=10) as running:
                found[place] = b"".join([chunk async for chunk in running.chunks()])
                await running.wait()
        finally:
            os.close(folder)
    assert found == {"./": b"./a\n", "../outside": b"", "link/": b""}


async def test_what_a_held_program_found_is_shown_as_it_was_found(grounds: Grounds) -> None:
    grounds.write(a="needle\n", sub__b="x\nneedle\ny\n")
    landlocked = await replace(grounds, landlocked=True).lines("needle", before=1, after=1)
    assert landlocked == await grounds.lines("needle", before=1, after=1)


def ignored(workspace: Workspace, path: str) -> bool:
    """Whether a listing leaves out `path`, a file, or a folder with a slash at the end."""
    rules, folder = rules_above(workspace, CanonicalPath(".")), CanonicalPath(".")
    *parents, name = path.rstrip("/").split("/")
    for parent in parents:
        rules = rules.read(workspace, folder, frozenset((".gitignore",)))
        if rules.ignores(parent, is_folder=True):
            return True
        rules, folder = rules.enter(parent), inside(folder, parent)
    rules = rules.read(workspace, folder, frozenset((".gitignore",)))
    return rules.ignores(name, is_folder=path.endswith("/"))


GIT_RULES = [
    ["*.log", "!keep.log"],
    ["/a", "b/"],
    ["a/**", "!a/b/"],
    ["**/b/x*"],
    ["a/**/x.log"],
    ["*/b", "# a", "", "  "],
    ["[!x]", "\\#b", "\\!c", "x\\ "],
    ["x  ", "{a,b}"],
    ["**", "!*/", "!x.log"],
    ["**/", "**/**/c"],
    ["[z-a", "[", "\\"],
]


def test_a_listing_leaves_out_what_git_ignores(tmp_path: Path) -> None:
    files = [
        "a/b/x.log",
        "a/x.log",
        "a/keep.log",
        "b/a",
        "c",
        "x",
        "x ",
        "#b",
        "!c",
        "{a,b}",
        "d/b/xy",
        "d/c",
    ]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a/b/.gitignore").write_text("!x.log\n", encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    paths = [*files, "a/", "a/b/", "b/", "d/", "d/b/"]
    asked = "\0".join(path.rstrip("/") for path in paths).encode()
    command = ["git", "check-ignore", "--no-index", "--stdin", "-z"]
    for lines in GIT_RULES:
        (tmp_path / ".gitignore").write_text("\n".join(lines) + "\n", encoding="utf-8")
        answer = subprocess.run(command, cwd=tmp_path, check=False, input=asked, capture_output=True).stdout
        workspace = Workspace([str(tmp_path)])
        found = {path.rstrip("/") for path in paths if ignored(workspace, path)}
        assert found == set(answer.decode().split("\0")) - {""}, lines


def test_no_ignore_rule_backtracks(tmp_path: Path) -> None:
    """With backtracking, each of these takes longer than the test may."""
    rules = ["*a" * 30 + "*b", "**/a/" * 30 + "b", "**/*a*a*/" * 10 + "b"]
    (tmp_path / ".gitignore").write_text("\n".join(rules), encoding="utf-8")
    workspace = Workspace([str(tmp_path)])
    assert not ignored(workspace, "/".join(["a"] * 250))
    assert not ignored(workspace, "a" * 250)
    assert ignored(workspace, "a" * 249 + "b")


def test_results_are_cut_the_same_wherever_the_pieces_end() -> None:
    whole = (
        b"./a\n\nb\x001:0:x\n7:20:y\r\n\r\n"
        b"./c\x001:0:x\n./c: WARNING: stopped searching binary file after match (found)\n\n"
        b"./d\x003:9: WARNING: stopped searching binary file\n"
    )
    query = LineQuery(pattern="x", path=CanonicalPath("."), mode="content", limit=0)
    for size in (1, 2, 7, 1000):
        found = Results(query, lambda _: True, ordered=False)
        for begin in range(0, len(whole), size):
            found.add(whole[begin : begin + size])
        found.finish()
        assert [(hit.name, hit.entries) for hit in found.hits] == [("a\n\nb", 2), ("d", 1)], size


OWN = f"{COMMAND_PATH}/rg"


@pytest.fixture(scope="module")
def of() -> Generator[Scene]:
    """With all programs of the machine but its ripgrep, if it has one, in `outside/bin`."""
    with scene(USERS[0]) as made:
        programs = made.outside / "bin"
        programs.mkdir()
        for file in Path("/usr/bin").iterdir():
            if file.name != "rg":
                (programs / file.name).symlink_to(file)
        yield made


@pytest.mark.long
@pytest.mark.parametrize("mode", [READ_ONLY, FULL])
def test_commands_search_with_the_ripgrep_of_the_server(of: Scene, mode: str) -> None:
    with serving(of, mode, around=("env", f"PATH={of.outside}/bin")) as server:
        assert server.bash("command -v rg; rg -c hello f; rg missing f; echo $?") == f"{OWN}\n1\n1\n"
        shown = server.call("REPL", language="shell", code="rg -c hello f", session="new").text
        assert shown.startswith("1\n")
        # It is the last of the PATH, and nothing else comes with it.
        assert server.bash("echo ${PATH##*:}; ls ${PATH##*:}") == f"{COMMAND_PATH}\nrg\n"
        if mode != FULL:
            assert server.bash(f"test -w {OWN} || echo kept") == "kept\n"


async def test_commands_have_it_in_bubblewrap_and_behind_landlock_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for bubblewrap in (True, False):
        async with workshop(tmp_path, Permission.READ_ONLY, bubblewrap=bubblewrap) as server:
            put(tmp_path / "root/f", "hello\n")
            said = await call(server, "bash", command="rg -c hello f; echo ${PATH##*:}")
            assert said.text == f"1\n{COMMAND_PATH}\n"


def test_a_program_in_the_workspace_is_never_the_one_of_the_server(of: Scene) -> None:
    for name in ("rg", "git"):
        program(of.root, name, f"touch {of.outside}/evil-ran; echo evil")
    with serving(of, FULL, around=("env", f"PATH={of.root}:{os.environ['PATH']}")) as server:
        found = server.call("grep_search", pattern="hello", path="f")
        assert (found.is_error, "f" in found.text) == (False, True)
        assert "second" in server.call("git_log").text
        # Setting the variable changes only what the command itself runs.
        server.bash(f"export COMMAND_RIPGREP={of.root}/rg; true")
        assert not server.call("grep_search", pattern="hello", path="f").is_error
        assert not (of.outside / "evil-ran").exists()
        server.bash("rg hello f")
    assert (of.outside / "evil-ran").exists(), "the attack is not one"


def test_ripgrep_on_the_path_counts_outside_the_roots_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolserver.runtime.search.executable._wheel_folders", lambda: iter(()))
    theirs = program(tmp_path / "bin", "rg", "")
    assert find_ripgrep([str(tmp_path / "bin")]) == theirs
    monkeypatch.chdir(tmp_path / "bin")
    assert find_ripgrep([".", ""]) is None
    assert find_ripgrep([str(tmp_path / "bin")], [str(tmp_path)]) is None


async def test_the_ripgrep_of_the_machine_comes_first_and_one_that_would_start_itself_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "rg", "echo theirs")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    async with workshop(tmp_path) as server:
        assert (await call(server, "bash", command="rg hello f")).text == "theirs\n"
        for spelt in ("", f"COMMAND_RIPGREP={OWN}"):
            result = await call(server, "bash", command=f"env -u COMMAND_RIPGREP {spelt} {OWN} x; exit $?")
            assert "this runs only in commands of mcp-toolserver" in result.text
            assert "[exit status 2]" in result.text or "[exit status 127]" in result.text
