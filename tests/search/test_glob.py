"""Globs: what they match, that they agree with two independent readings, and that nothing makes them slow."""

import re
import warnings
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from wcmatch import glob as wcmatch

from mcp_toolserver.text.search.glob import expand, literal_prefix, matcher, rooted, starts, wildcard

LONG = 100_000


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        pytest.param("src/*.py", "src/a.py", True, id="star within a component"),
        pytest.param("src/*.py", "src/x/a.py", False, id="star stops at a slash"),
        pytest.param("src/?.py", "src/a.py", True, id="question mark is one character"),
        pytest.param("a?b", "a/b", False, id="question mark is no slash"),
        pytest.param("src/*", "src/", False, id="star is at least one character of a component"),
        pytest.param("src/**/a.py", "src/a.py", True, id="two stars span no folder"),
        pytest.param("src/**/a.py", "src/x/y/a.py", True, id="two stars span folders"),
        pytest.param("src/**/a.py", "src/xa.py", False, id="two stars end at a component"),
        pytest.param("src/**", "src", True, id="two stars at the end match the folder"),
        pytest.param("src/**", "src2/a", False, id="two stars at the end keep the component"),
        pytest.param("**/a.py", "/other/a.py", True, id="two stars in front reach other roots"),
        pytest.param("a**b", "axxb", True, id="two stars inside a component are one"),
        pytest.param("a**b", "ax/xb", False, id="two stars inside a component stop at a slash"),
        pytest.param("**", ".", True, id="two stars alone match everything"),
        pytest.param("*.py", "x/y/a.py", True, id="no slash means any depth"),
        pytest.param("*.py", "/other/a.py", True, id="no slash means any root"),
        pytest.param("*.py", "a.py/b", False, id="no slash means the last component"),
        pytest.param("./*.py", "a.py", True, id="dot slash starts at the top"),
        pytest.param("./*.py", "x/a.py", False, id="dot slash is not any depth"),
        pytest.param("build/", "x/build/y/z", True, id="slash at the end is all below at any depth"),
        pytest.param("build/", "build", True, id="slash at the end is the folder too"),
        pytest.param("x/build/", "y/x/build/z", False, id="slash inside and at the end starts at the top"),
        pytest.param("./", "any/thing", True, id="dot slash alone is everything"),
        pytest.param(".", ".", True, id="a dot is the root"),
        pytest.param(".", "a", False, id="a dot is only the root"),
        pytest.param("/etc/*", "/etc/passwd", True, id="absolute"),
        pytest.param("/etc/*", "etc/passwd", False, id="absolute is not relative"),
        pytest.param("etc/*", "/etc/passwd", False, id="relative is not absolute"),
        pytest.param("/", "/etc/passwd", True, id="a slash is everything absolute"),
        pytest.param("/.", "/", True, id="slash dot is the top"),
        pytest.param("a//b", "a/b", True, id="slashes together are one"),
        pytest.param("*", ".env", True, id="dot files are like others"),
        pytest.param("*", "a\nb", True, id="a line end is a character"),
        pytest.param("*.py", "a.py\n", False, id="a line end after the end counts"),
        pytest.param("*.PY", "a.py", False, id="case counts"),
        pytest.param("{a,b}.{py,js}", "b.js", True, id="braces"),
        pytest.param("{a,{b,c}d}", "cd", True, id="braces in braces"),
        pytest.param("v{1..3}", "v2", True, id="a range in braces"),
        pytest.param("{a,b", "{a,b", True, id="an unclosed brace is itself"),
        pytest.param("{src,lib/**}/x.py", "lib/a/b/x.py", True, id="a brace over a slash"),
        pytest.param("[abc]x", "bx", True, id="a class"),
        pytest.param("[a-c]x", "bx", True, id="a range"),
        pytest.param("[!a]x", "bx", True, id="a negated class"),
        pytest.param("[^a]x", "ax", False, id="a class negated with a caret"),
        pytest.param("[]a]x", "]x", True, id="a bracket first in its class"),
        pytest.param("[!]]x", "]x", False, id="a bracket first in its negated class"),
        pytest.param("[a-]x", "-x", True, id="a minus last in its class"),
        pytest.param(r"[\]]x", "]x", True, id="an escaped bracket in a class"),
        pytest.param("[z-a]x", "bx", False, id="a range backwards is empty"),
        pytest.param("[!z-a]x", "bx", True, id="nothing excluded"),
        pytest.param("[a", "[a", True, id="an unclosed class is itself"),
        pytest.param(r"\*.py", "*.py", True, id="an escaped star is itself"),
        pytest.param(r"\*.py", "a.py", False, id="an escaped star is no star"),
        pytest.param(r"\{a,b}", "{a,b}", True, id="an escaped brace is itself"),
        pytest.param("a.b", "axb", False, id="a dot is itself"),
    ],
)
def test_a_glob_matches(pattern: str, path: str, expected: bool) -> None:
    assert matcher(pattern)(path) is expected


@pytest.mark.parametrize(
    ("pattern", "matching", "not_matching"),
    [
        pytest.param("x[!]/]y", "x[!]/]y", "x/y", id="GLOB09-negated"),
        pytest.param("x[..]y", "x.y", "x/y", id="GLOB09-dots"),
        pytest.param("x[.-0]y", "x.y", "x/y", id="GLOB09-range"),
        pytest.param("x[!a]y", "xby", "x/y", id="GLOB09-anything else"),
    ],
)
def test_a_class_cannot_match_a_slash(pattern: str, matching: str, not_matching: str) -> None:
    assert matcher(pattern)(matching)
    assert not matcher(pattern)(not_matching)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("", id="empty"),
        pytest.param("{,}", id="braces around nothing"),
        pytest.param("../x", id="leaves the folder"),
        pytest.param("a/../../x", id="leaves the folder later"),
        pytest.param("{..,.}/x", id="GLOB03"),
        pytest.param("{a,.}{b,.}/x", id="GLOB03-in pieces"),
        pytest.param("{a,b}" * 20, id="GLOB06"),
        pytest.param("{1..1000000000}", id="GLOB06-range"),
        pytest.param("{" * 2_000, id="braces without end"),
        pytest.param("a" * 4_097, id="too long"),
        pytest.param("{1..999}" + "x" * 60, id="too long once expanded"),
    ],
)
def test_a_glob_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"pattern"):
        matcher(pattern)


def test_as_many_alternatives_as_allowed_are_allowed() -> None:
    assert len(expand("{1..1000}")) == 1_000
    assert matcher("{1..1000}")("a/1000")


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        pytest.param("*a" * 30 + "*b", "a" * LONG, False, id="GLOB07"),
        pytest.param("*a" * 30 + "*", "a" * LONG, True, id="GLOB07-control"),
        pytest.param("**/**/**/**/x", "a/" * LONG + "y", False, id="REDOS05"),
        pytest.param("**/**/**/**/x", "a/" * LONG + "x", True, id="REDOS05-control"),
        pytest.param("**/a/" * 10 + "**/x", "a/" * LONG + "y", False, id="REDOS05-between folders"),
        pytest.param("**/*a*a*/" * 10 + "**/x", "aaaaaaaa/" * LONG + "y", False, id="REDOS05-with stars"),
        pytest.param("**/" + "*/" * 10 + "x", "a/" * LONG + "y", False, id="REDOS05-many components"),
    ],
)
def test_no_glob_backtracks(pattern: str, path: str, expected: bool) -> None:
    """With backtracking, one of these takes longer than the age of the universe."""
    matches = matcher(pattern)
    assert [matches(path) for _ in range(10)] == [expected] * 10


def test_no_wildcard_backtracks() -> None:
    assert not wildcard("*a" * 30 + "*b")("a" * LONG)
    assert wildcard("*a" * 30 + "*")("a" * LONG)


COMPONENTS = st.text(alphabet="ab.*[", min_size=1, max_size=4).filter(lambda text: text not in (".", ".."))
PATHS = st.lists(COMPONENTS, min_size=1, max_size=4).map("/".join)
ANY_PATH = st.one_of(PATHS, PATHS.map("/{}".format))
PIECES = [
    "a",
    "b",
    ".",
    "*",
    "**",
    "?",
    "[ab]",
    "[!a]",
    "[a-b]",
    "[",
    "]",
    "!",
    "-",
    r"\*",
    "{a,b}",
    "{a,b/*}",
]
PART = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
PATTERNS = st.lists(PART, min_size=2, max_size=5).map("/".join)


def by_wcmatch(pattern: str, path: str) -> bool:
    flags = wcmatch.GLOBSTAR | wcmatch.BRACE | wcmatch.DOTGLOB | wcmatch.FORCEUNIX
    with warnings.catch_warnings():
        # Its own regular expressions make Python warn about "[[".
        warnings.simplefilter("ignore", FutureWarning)
        return wcmatch.globmatch(path, pattern, flags=flags)


@given(PATTERNS, ANY_PATH)
def test_globs_agree_with_wcmatch_but_for_the_folder_itself(pattern: str, path: str) -> None:
    assume(".." not in re.split("[/{,}]", pattern) and pattern.count("{") < 5)
    alternatives = expand(pattern)
    # A component `.` is ours alone to interpret.
    assume(not any("." in alternative.split("/") for alternative in alternatives))
    folders = (re.sub(r"(/\*\*)+\Z", "", alternative) for alternative in alternatives)
    expected = any(by_wcmatch(form, path) for form in (*alternatives, *folders))
    assert matcher(pattern)(path) is expected


def by_definition(pattern: list[str], path: list[str]) -> bool:
    """The textbook reading of a list of components, exponential and obviously right."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(by_definition(pattern[1:], path[skipped:]) for skipped in range(len(path) + 1))
    return bool(path) and component(pattern[0], path[0]) and by_definition(pattern[1:], path[1:])


def component(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(component(pattern[1:], text[skipped:]) for skipped in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and component(pattern[1:], text[1:])


STARRY = st.lists(
    st.one_of(
        st.just("**"), st.text(alphabet="ab*?", min_size=1, max_size=6).filter(lambda t: "**" not in t)
    ),
    min_size=2,
    max_size=6,
)


@given(STARRY, st.lists(st.text(alphabet="ab", min_size=1, max_size=6), min_size=1, max_size=6))
def test_globs_agree_with_their_definition(pattern: list[str], path: list[str]) -> None:
    assert matcher("/".join(pattern))("/".join(path)) is by_definition(pattern, path)


def test_globs_agree_with_their_definition_on_every_short_text() -> None:
    paths = ["/".join(path) for n in (1, 2, 3) for path in product(("a", "b", "ab"), repeat=n)]
    for parts in product(("**", "a", "*", "?b", "*b*"), repeat=3):
        matches = matcher("/".join(parts))
        for path in paths:
            assert matches(path) is by_definition(list(parts), path.split("/")), (parts, path)


@given(st.text(alphabet="ab*", max_size=8), st.text(alphabet="ab/\n", max_size=12))
def test_wildcards_agree_with_a_regular_expression(pattern: str, text: str) -> None:
    expected = re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text, re.DOTALL)
    assert wildcard(pattern)(text) is (expected is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        pytest.param("git log *", "git log a/b\nc", True, id="slashes and lines"),
        pytest.param("git log *", "git logs", False, id="the rest counts"),
        pytest.param("ab*ba", "aba", False, id="head and tail do not overlap"),
        pytest.param("a?[b]", "a?[b]", True, id="only a star is special"),
        pytest.param("*", "", True, id="a star is also nothing"),
        pytest.param("", "", True, id="nothing is nothing"),
    ],
)
def test_a_wildcard_matches(pattern: str, text: str, expected: bool) -> None:
    assert wildcard(pattern)(text) is expected


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        pytest.param("src/app/*.py", "src/app", id="folders"),
        pytest.param("*.py", "", id="none"),
        pytest.param("/*", "/", id="the top"),
        pytest.param("/etc/pass*", "/etc", id="a started component"),
        pytest.param("a/b", "a/b", id="all of it"),
        pytest.param("a/{b/c,d}/e", "a", id="a brace over a slash"),
        pytest.param(r"a/b\*/c", "a", id="an escape"),
    ],
)
def test_the_literal_prefix_ends_before_the_first_wildcard(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        pytest.param("*.key", ("",), id="any depth"),
        pytest.param("secrets", ("",), id="a name"),
        pytest.param("secrets/", ("",), id="a name of a folder"),
        pytest.param("secrets/**", ("secrets",), id="a folder"),
        pytest.param("./secrets", ("secrets",), id="a path in the root"),
        pytest.param("./a//b/./c*", ("a/b",), id="slashes and dots"),
        pytest.param("a/b/", ("a/b",), id="a slash at the end"),
        pytest.param("{a/b,*.x,/c/d?}", ("a/b", "", "/c"), id="alternatives"),
        pytest.param("**/a/b", ("",), id="any folder"),
        pytest.param("/etc//x/*", ("/etc/x",), id="absolute"),
        pytest.param("/**/x", ("/",), id="anywhere"),
        pytest.param("/", ("/",), id="the top"),
    ],
)
def test_a_search_starts_from_what_is_plain_text(pattern: str, found: tuple[str, ...]) -> None:
    assert starts(pattern) == found


@pytest.mark.parametrize(
    ("pattern", "folder", "rest"),
    [
        pytest.param("/ws/src/*.py", "/ws/src", "./*.py", id="a pattern in a folder"),
        pytest.param("/ws/src/a.py", "/ws/src", "./a.py", id="a file"),
        pytest.param("/ws/src/", "/ws/src", "./", id="all below a folder"),
        pytest.param("/ws//src//*.py", "/ws//src", "./*.py", id="slashes together"),
        pytest.param("/*", "/", "./*", id="the top"),
        pytest.param("/", "/", "./", id="all"),
    ],
)
def test_an_absolute_pattern_is_a_folder_and_a_pattern_below_it(pattern: str, folder: str, rest: str) -> None:
    assert rooted(pattern) == (folder, rest)
