"""Globs: what they match, that they agree with an independent reading, and that nothing makes them slow."""

import re
import warnings

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from wcmatch import glob as wcmatch

from mcp_toolserver.text.search.glob import expand, literal_prefix, matcher, starts, wildcard

LONG = 100_000


MATCHES = {
    "star within a component": ("src/*.py", "src/a.py", True),
    "star stops at a slash": ("src/*.py", "src/x/a.py", False),
    "question mark is one character": ("src/?.py", "src/a.py", True),
    "question mark is no slash": ("a?b", "a/b", False),
    "star is at least one character of a component": ("src/*", "src/", False),
    "two stars span no folder": ("src/**/a.py", "src/a.py", True),
    "two stars span folders": ("src/**/a.py", "src/x/y/a.py", True),
    "two stars end at a component": ("src/**/a.py", "src/xa.py", False),
    "two stars at the end match the folder": ("src/**", "src", True),
    "two stars at the end keep the component": ("src/**", "src2/a", False),
    "two stars in front reach other roots": ("**/a.py", "/other/a.py", True),
    "two stars inside a component are one": ("a**b", "axxb", True),
    "two stars inside a component stop at a slash": ("a**b", "ax/xb", False),
    "two stars alone match everything": ("**", ".", True),
    "no slash means any depth": ("*.py", "x/y/a.py", True),
    "no slash means any root": ("*.py", "/other/a.py", True),
    "no slash means the last component": ("*.py", "a.py/b", False),
    "dot slash starts at the top": ("./*.py", "a.py", True),
    "dot slash is not any depth": ("./*.py", "x/a.py", False),
    "slash at the end is all below at any depth": ("build/", "x/build/y/z", True),
    "slash at the end is the folder too": ("build/", "build", True),
    "slash inside and at the end starts at the top": ("x/build/", "y/x/build/z", False),
    "dot slash alone is everything": ("./", "any/thing", True),
    "a dot is the root": (".", ".", True),
    "a dot is only the root": (".", "a", False),
    "absolute": ("/etc/*", "/etc/passwd", True),
    "absolute is not relative": ("/etc/*", "etc/passwd", False),
    "relative is not absolute": ("etc/*", "/etc/passwd", False),
    "a slash is everything absolute": ("/", "/etc/passwd", True),
    "slash dot is the top": ("/.", "/", True),
    "slashes together are one": ("a//b", "a/b", True),
    "dot files are like others": ("*", ".env", True),
    "a line end is a character": ("*", "a\nb", True),
    "a line end after the end counts": ("*.py", "a.py\n", False),
    "case counts": ("*.PY", "a.py", False),
    "braces": ("{a,b}.{py,js}", "b.js", True),
    "braces in braces": ("{a,{b,c}d}", "cd", True),
    "a range in braces": ("v{1..3}", "v2", True),
    "an unclosed brace is itself": ("{a,b", "{a,b", True),
    "a brace over a slash": ("{src,lib/**}/x.py", "lib/a/b/x.py", True),
    "a class": ("[abc]x", "bx", True),
    "a range": ("[a-c]x", "bx", True),
    "a negated class": ("[!a]x", "bx", True),
    "a class negated with a caret": ("[^a]x", "ax", False),
    "a bracket first in its class": ("[]a]x", "]x", True),
    "a bracket first in its negated class": ("[!]]x", "]x", False),
    "a minus last in its class": ("[a-]x", "-x", True),
    "an escaped bracket in a class": (r"[\]]x", "]x", True),
    "a range backwards is empty": ("[z-a]x", "bx", False),
    "nothing excluded": ("[!z-a]x", "bx", True),
    "an unclosed class is itself": ("[a", "[a", True),
    "an escaped star is itself": (r"\*.py", "*.py", True),
    "an escaped star is no star": (r"\*.py", "a.py", False),
    "an escaped brace is itself": (r"\{a,b}", "{a,b}", True),
    "a dot is itself": ("a.b", "axb", False),
}


def test_a_glob_matches() -> None:
    wrong = {
        name: (pattern, path)
        for name, (pattern, path, expected) in MATCHES.items()
        if matcher(pattern)(path) is not expected
    }
    assert not wrong


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
