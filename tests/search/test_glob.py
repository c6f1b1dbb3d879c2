"""Globs: what they match, that they agree with an independent reading, and that nothing makes them slow."""

import re
import warnings
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from wcmatch import glob as wcmatch

from mcp_toolserver.text.search.glob import expand, literal_prefix, matcher, starts, wildcard
from tests.support.cases import table

LONG = 20_000


def test_a_glob_matches() -> None:
    rows = table(Path(__file__).with_name("glob.txt"))
    assert [row for row in rows if matcher(row[1])(row[2].replace("%", "\n")) is not (row[0] == "yes")] == []


def test_a_class_cannot_match_a_slash() -> None:
    matching = {"x[!]/]y": "x[!]/]y", "x[..]y": "x.y", "x[.-0]y": "x.y", "x[!a]y": "xby"}
    for pattern, text in matching.items():
        assert matcher(pattern)(text), pattern
        assert not matcher(pattern)("x/y"), pattern


def test_a_glob_is_refused() -> None:
    refused = (
        *("", "{,}", "../x", "a/../../x", "{..,.}/x", "{a,.}{b,.}/x", "{a,b}" * 20, "{1..1000000000}"),
        *("{" * 2_000, "a" * 4_097, "{1..999}" + "x" * 60),
    )
    for pattern in refused:
        with pytest.raises(ValueError, match=r"pattern"):
            matcher(pattern)


def test_as_many_alternatives_as_allowed_are_allowed() -> None:
    assert len(expand("{1..1000}")) == 1_000
    assert matcher("{1..1000}")("a/1000")


def test_no_glob_backtracks() -> None:
    """With backtracking, one of these takes longer than the age of the universe."""
    long = [
        ("*a" * 30 + "*b", "a" * LONG, False),
        ("*a" * 30 + "*", "a" * LONG, True),
        ("**/**/**/**/x", "a/" * LONG + "y", False),
        ("**/**/**/**/x", "a/" * LONG + "x", True),
        ("**/a/" * 10 + "**/x", "a/" * LONG + "y", False),
        ("**/*a*a*/" * 10 + "**/x", "aaaaaaaa/" * LONG + "y", False),
        ("**/" + "*/" * 10 + "x", "a/" * LONG + "y", False),
    ]
    for pattern, path, expected in long:
        matches = matcher(pattern)
        assert [matches(path) for _ in range(3)] == [expected] * 3, pattern


def test_no_wildcard_backtracks() -> None:
    assert not wildcard("*a" * 30 + "*b")("a" * LONG)
    assert wildcard("*a" * 30 + "*")("a" * LONG)


COMPONENTS = st.text(alphabet="ab.*[", min_size=1, max_size=4).filter(lambda text: text not in (".", ".."))
PATHS = st.lists(COMPONENTS, min_size=1, max_size=4).map("/".join)
ANY_PATH = st.one_of(PATHS, PATHS.map("/{}".format))
PIECES = [
    *("a", "b", ".", "*", "**", "?", "[ab]", "[!a]", "[a-b]", "[", "]", "!", "-", r"\*"),
    *("{a,b}", "{a,b/*}"),
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


@given(st.text(alphabet="ab*", max_size=8), st.text(alphabet="ab/\n", max_size=12))
def test_wildcards_agree_with_a_regular_expression(pattern: str, text: str) -> None:
    expected = re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text, re.DOTALL)
    assert wildcard(pattern)(text) is (expected is not None)


def test_a_wildcard_matches() -> None:
    assert wildcard("git log *")("git log a/b\nc")
    assert not wildcard("git log *")("git logs")
    assert not wildcard("ab*ba")("aba")
    assert wildcard("a?[b]")("a?[b]")
    assert wildcard("*")("")
    assert wildcard("")("")


def test_the_literal_prefix_ends_before_the_first_wildcard() -> None:
    prefixes = {
        "src/app/*.py": "src/app",
        "*.py": "",
        "/*": "/",
        "/etc/pass*": "/etc",
        "a/b": "a/b",
        "a/{b/c,d}/e": "a",
        r"a/b\*/c": "a",
    }
    assert {pattern: literal_prefix(pattern) for pattern in prefixes} == prefixes


def test_a_search_starts_from_what_is_plain_text() -> None:
    places = {
        "*.key": ("",),
        "secrets": ("",),
        "secrets/": ("",),
        "secrets/**": ("secrets",),
        "./secrets": ("secrets",),
        "./a//b/./c*": ("a/b",),
        "a/b/": ("a/b",),
        "{a/b,*.x,/c/d?}": ("a/b", "", "/c"),
        "**/a/b": ("",),
        "/etc//x/*": ("/etc/x",),
        "/**/x": ("/",),
        "/": ("/",),
    }
    assert {pattern: starts(pattern) for pattern in places} == places
