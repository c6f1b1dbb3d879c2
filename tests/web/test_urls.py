"""Web addresses: one spelling for each, and patterns that match part by part."""

from collections.abc import Callable, Mapping

import httpx
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.web.urls import canonical_url, joined, parse_url, url_matcher

SPELLINGS: Mapping[str, tuple[str, str]] = {
    "case and no path": ("HTTP://Example.COM", "http://example.com/"),
    "usual port": ("https://example.com:443/a", "https://example.com/a"),
    "other port": ("https://example.com:80/a", "https://example.com:80/a"),
    "dot at the end": ("https://example.com./a", "https://example.com/a"),
    "fragment": ("https://example.com/a#b", "https://example.com/a"),
    "query alone": ("https://example.com?q=1", "https://example.com/?q=1"),
    "needless escapes": ("https://example.com/%61%2e%7E", "https://example.com/a.~"),
    "needed escapes": ("https://example.com/a%2fb%zz", "https://example.com/a%2Fb%25zz"),
    "not ASCII": ("https://example.com/ü|", "https://example.com/%C3%BC%7C"),
    "dots": ("https://example.com/a/./b/../c", "https://example.com/a/c"),
    "dots above the host": ("https://example.com/%2e%2e/../a/..", "https://example.com/"),
    "dot last": ("https://example.com/a/b/.", "https://example.com/a/b/"),
    "international": ("https://bücher.example/", "https://xn--bcher-kva.example/"),
    "version 6": ("http://[2001:DB8:0::1]:8080/", "http://[2001:db8::1]:8080/"),
    "version 4": ("http://1.2.3.4/", "http://1.2.3.4/"),
}


def test_an_address_has_one_spelling() -> None:
    found = {name: (canonical_url(text), canonical_url(spelt)) for name, (text, spelt) in SPELLINGS.items()}
    assert found == {name: (spelt, spelt) for name, (_, spelt) in SPELLINGS.items()}


AMBIGUOUS: Mapping[str, str] = {
    "nothing": "",
    "no scheme": "example.com",
    "no slashes": "http:example.com",
    "no host": "http:///path",
    "invisible": "http://a\u200bb.example/",
    "empty port": "http://example.com:/",
    "port in letters": "http://example.com:x/",
    "port with zeros": "http://example.com:000080/",
    "hyphen first": "http://-a.example/",
    "empty label": "http://a..b/",
    "escape in the host": "http://%61.example/",
    "long label": "http://" + "a" * 64 + ".example/",
    "long name": "http://" + "a." * 130 + "example/",
    "long": "http://example.com/" + "a" * 9000,
    "three numbers": "http://1.2.3/",
    "leading zero": "http://1.2.3.04/",
    "hexadecimal": "http://0x1/",
    "zone": "http://[::1%25eth0]/",
    "no address in brackets": "http://[nonsense]/",
    "wide digit": "http://１.example/",
}


def test_what_could_be_read_in_two_ways_is_refused() -> None:
    assert [name for name, text in AMBIGUOUS.items() if accepted(canonical_url, text)] == []


def accepted(read: Callable[[str], object], text: str) -> bool:
    """Whether `read` takes `text`; if not, it says why."""
    try:
        read(text)
    except ValueError as error:
        return not str(error)
    return True


REFERENCES: Mapping[str, tuple[str, str]] = {
    "whole": ("https://o.example/x", "https://o.example/x"),
    "without scheme": ("//o.example/x", "https://o.example/x"),
    "from the root": ("/x", "https://e.example:8443/x"),
    "sibling": ("x", "https://e.example:8443/a/x"),
    "above": ("../x", "https://e.example:8443/x"),
    "query": ("?q", "https://e.example:8443/a/b?q"),
    "fragment": ("#f", "https://e.example:8443/a/b?p"),
    "nothing": ("", "https://e.example:8443/a/b?p"),
}


def test_a_reference_takes_what_it_leaves_out_from_its_base() -> None:
    base = parse_url("https://e.example:8443/a/b?p")
    for name, (reference, leads_to) in REFERENCES.items():
        assert str(joined(base, reference)) == leads_to, name


@given(st.text(max_size=40), st.text(max_size=40))
def test_the_http_client_reads_every_address_as_it_was_read_here(path: str, query: str) -> None:
    try:
        url = parse_url(f"https://h.example/{path}?{query}")
    except ValueError:
        return
    other = httpx.URL(str(url))
    assert other.raw_host.decode() == url.host
    assert other.raw_path.decode() == url.target
    assert canonical_url(str(url)) == str(url)


PATTERNS: Mapping[str, tuple[str, str, bool]] = {
    "everything": ("*", "https://a.example/x", True),
    "host": ("a.example", "https://a.example/x", True),
    "host by its other form": ("domain:a.example", "https://a.example/x", True),
    "host in capitals": ("A.example", "https://a.example/x", True),
    "not what is below it": ("a.example", "https://b.a.example/x", False),
    "below": ("*.a.example", "https://b.a.example/x", True),
    "not the host itself": ("*.a.example", "https://a.example/x", False),
    "not a path that looks so": ("*.a.example", "https://evil.example/x.a.example", False),
    "nor with a scheme": ("https://*.a.example/*", "https://evil.example/b.a.example/", False),
    "not a longer name": ("a.example", "https://a.example.evil.example/", False),
    "scheme": ("http://a.example", "https://a.example/", False),
    "port": ("a.example:8443", "https://a.example:8443/", True),
    "other port": ("a.example:8443", "https://a.example/", False),
    "path": ("a.example/docs/*", "https://a.example/docs/x/y", True),
    "other path": ("a.example/docs/*", "https://a.example/other", False),
    "path whatever the query": ("a.example/docs", "https://a.example/docs?x=1", True),
    "query": ("a.example/x?y=1", "https://a.example/x?y=1", True),
    "version 6": ("[::1]", "http://[::1]/", True),
    "what is no address": ("a.example", "no address", False),
}


def test_a_pattern_matches_each_part_by_itself() -> None:
    found = {name: url_matcher(pattern)(url) for name, (pattern, url, _) in PATTERNS.items()}
    assert found == {name: matches for name, (_, _, matches) in PATTERNS.items()}


def test_a_pattern_of_another_form_is_refused() -> None:
    others = ("", "a*.example", "a.*.example", "user@a.example", "ftp://a", "a:b", "a b")
    assert [pattern for pattern in others if accepted(url_matcher, pattern)] == []
