"""Web addresses: one spelling for each, and patterns that match part by part."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolserver.text.web.urls import canonical_url, joined, parse_url, url_matcher
from tests.support.cases import table
from tests.support.extent import rounds

TABLES = Path(__file__).with_name("urls.txt")


def test_an_address_has_one_spelling() -> None:
    rows = table(TABLES, "spellings")
    assert [[name, text, canonical_url(text)] for name, text, _ in rows] == rows
    assert [[name, text, canonical_url(spelt)] for name, text, spelt in rows] == rows


TOO_LONG = (f"http://{'a' * 64}.example/", f"http://{'a.' * 130}example/", f"http://example.com/{'a' * 9000}")


def test_what_could_be_read_in_two_ways_is_refused() -> None:
    ambiguous = [text for _, text in table(TABLES, "ambiguous")]
    others = ("", "http://a\u200bb.example/", *TOO_LONG)
    assert [text for text in (*ambiguous, *others) if accepted(canonical_url, text)] == []


def accepted(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError as error:
        return not str(error)
    return True


def test_a_reference_takes_what_it_leaves_out_from_its_base() -> None:
    base = parse_url("https://e.example:8443/a/b?p")
    rows = table(TABLES, "references")
    assert [[name, reference, str(joined(base, reference))] for name, reference, _ in rows] == rows


@pytest.mark.rounds
@settings(max_examples=rounds(25, 100))
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


def test_a_pattern_matches_each_part_by_itself() -> None:
    rows = table(TABLES, "patterns")
    assert [row for row in rows if url_matcher(row[2])(row[3]) is not (row[1] == "yes")] == []


def test_a_pattern_of_another_form_is_refused() -> None:
    others = ("", "a*.example", "a.*.example", "user@a.example", "ftp://a", "a:b", "a b")
    assert [pattern for pattern in others if accepted(url_matcher, pattern)] == []
