"""Web addresses: one spelling for each, and patterns that match part by part."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.web.urls import canonical_url, joined, parse_url, url_matcher


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        pytest.param("HTTP://Example.COM", "http://example.com/", id="case and no path"),
        pytest.param("https://example.com:443/a", "https://example.com/a", id="usual port"),
        pytest.param("https://example.com:80/a", "https://example.com:80/a", id="other port"),
        pytest.param("https://example.com./a", "https://example.com/a", id="dot at the end"),
        pytest.param("https://example.com/a#b", "https://example.com/a", id="fragment"),
        pytest.param("https://example.com?q=1", "https://example.com/?q=1", id="query alone"),
        pytest.param("https://example.com/%61%2e%7E", "https://example.com/a.~", id="needless escapes"),
        pytest.param("https://example.com/a%2fb%zz", "https://example.com/a%2Fb%25zz", id="needed escapes"),
        pytest.param("https://example.com/ü|", "https://example.com/%C3%BC%7C", id="not ASCII"),
        pytest.param("https://example.com/a/./b/../c", "https://example.com/a/c", id="dots"),
        pytest.param("https://example.com/%2e%2e/../a/..", "https://example.com/", id="dots above the host"),
        pytest.param("https://example.com/a/b/.", "https://example.com/a/b/", id="dot last"),
        pytest.param("https://bücher.example/", "https://xn--bcher-kva.example/", id="international"),
        pytest.param("http://[2001:DB8:0::1]:8080/", "http://[2001:db8::1]:8080/", id="version 6"),
        pytest.param("http://1.2.3.4/", "http://1.2.3.4/", id="version 4"),
    ],
)
def test_an_address_has_one_spelling(text: str, spelt: str) -> None:
    assert canonical_url(text) == spelt
    assert canonical_url(spelt) == spelt


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("example.com", id="no scheme"),
        pytest.param("http:example.com", id="no slashes"),
        pytest.param("http:///path", id="no host"),
        pytest.param("ftp://example.com/", id="scheme"),
        pytest.param("http://a b/", id="space"),
        pytest.param("http://a\\b/", id="backslash"),
        pytest.param("http://a\u200bb.example/", id="invisible"),
        pytest.param("http://user@example.com/", id="user"),
        pytest.param("http://example.com:/", id="empty port"),
        pytest.param("http://example.com:x/", id="port in letters"),
        pytest.param("http://example.com:0/", id="port 0"),
        pytest.param("http://example.com:99999/", id="port too high"),
        pytest.param("http://example.com:000080/", id="port with zeros"),
        pytest.param("http://-a.example/", id="hyphen first"),
        pytest.param("http://a..b/", id="empty label"),
        pytest.param("http://%61.example/", id="escape in the host"),
        pytest.param("http://" + "a" * 64 + ".example/", id="long label"),
        pytest.param("http://" + "a." * 130 + "example/", id="long name"),
        pytest.param("http://example.com/" + "a" * 9000, id="long"),
        pytest.param("http://1.2.3/", id="three numbers"),
        pytest.param("http://1.2.3.04/", id="leading zero"),
        pytest.param("http://0x1/", id="hexadecimal"),
        pytest.param("http://[::1%25eth0]/", id="zone"),
        pytest.param("http://[nonsense]/", id="no address in brackets"),
        pytest.param("http://a\u3002example/", id="foreign dot"),
        pytest.param("http://１.example/", id="wide digit"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical_url(text)


@pytest.mark.parametrize(
    ("reference", "leads_to"),
    [
        pytest.param("https://o.example/x", "https://o.example/x", id="whole"),
        pytest.param("//o.example/x", "https://o.example/x", id="without scheme"),
        pytest.param("/x", "https://e.example:8443/x", id="from the root"),
        pytest.param("x", "https://e.example:8443/a/x", id="sibling"),
        pytest.param("../x", "https://e.example:8443/x", id="above"),
        pytest.param("?q", "https://e.example:8443/a/b?q", id="query"),
        pytest.param("#f", "https://e.example:8443/a/b?p", id="fragment"),
        pytest.param("", "https://e.example:8443/a/b?p", id="nothing"),
    ],
)
def test_a_reference_takes_what_it_leaves_out_from_its_base(reference: str, leads_to: str) -> None:
    assert str(joined(parse_url("https://e.example:8443/a/b?p"), reference)) == leads_to


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


@pytest.mark.parametrize(
    ("pattern", "url", "matches"),
    [
        pytest.param("*", "https://a.example/x", True, id="everything"),
        pytest.param("a.example", "https://a.example/x", True, id="host"),
        pytest.param("domain:a.example", "https://a.example/x", True, id="host by its other form"),
        pytest.param("A.example", "https://a.example/x", True, id="host in capitals"),
        pytest.param("a.example", "https://b.a.example/x", False, id="not what is below it"),
        pytest.param("*.a.example", "https://b.a.example/x", True, id="below"),
        pytest.param("*.a.example", "https://a.example/x", False, id="not the host itself"),
        pytest.param("*.a.example", "https://evil.example/x.a.example", False, id="not a path that looks so"),
        pytest.param(
            "https://*.a.example/*", "https://evil.example/b.a.example/", False, id="nor with a scheme"
        ),
        pytest.param("a.example", "https://a.example.evil.example/", False, id="not a longer name"),
        pytest.param("http://a.example", "https://a.example/", False, id="scheme"),
        pytest.param("a.example:8443", "https://a.example:8443/", True, id="port"),
        pytest.param("a.example:8443", "https://a.example/", False, id="other port"),
        pytest.param("a.example/docs/*", "https://a.example/docs/x/y", True, id="path"),
        pytest.param("a.example/docs/*", "https://a.example/other", False, id="other path"),
        pytest.param("a.example/docs", "https://a.example/docs?x=1", True, id="path whatever the query"),
        pytest.param("a.example/x?y=1", "https://a.example/x?y=1", True, id="query"),
        pytest.param("[::1]", "http://[::1]/", True, id="version 6"),
        pytest.param("a.example", "no address", False, id="what is no address"),
    ],
)
def test_a_pattern_matches_each_part_by_itself(pattern: str, url: str, matches: bool) -> None:
    assert url_matcher(pattern)(url) is matches


@pytest.mark.parametrize(
    "pattern", ["", "a*.example", "a.*.example", "user@a.example", "ftp://a", "a:b", "a b"]
)
def test_a_pattern_of_another_form_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        url_matcher(pattern)
