"""Pure parts of the web tools: addresses, robots.txt, parts of a page, unpacking, headers, what is kept."""

import gzip
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import anyio
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolserver.capabilities.web import WebAnswer
from mcp_toolserver.runtime.web.calls import SearchBudget
from mcp_toolserver.runtime.web.client import Cache, HttpClient, read_body
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.runtime.web.robots import allows, parse_robots
from mcp_toolserver.text.web.urls import canonical_url, joined, parse_url, url_matcher
from mcp_toolserver.tools.web.web_fetch import joined_parts, relevant
from tests.support.cases import table
from tests.support.extent import rounds
from tests.web.web import Internet, site

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


RULES = """
# of a site
User-agent: other
Disallow: /

User-agent: one
User-Agent: Mine/2.0   # both
Disallow: /private
Allow: /private/open
Disallow: /*.pdf$
Disallow: /a%3cb
Disallow:

User-agent: *
Disallow: /all
Sitemap: https://a.example/map
"""


def test_a_sites_rules_are_kept() -> None:
    agents = table(Path(__file__).with_name("robots.txt"))
    assert [
        row for row in agents if allows(parse_robots(RULES, row[1]), row[2]) is not (row[3] == "yes")
    ] == []
    # Of two rules that are as specific the one that allows wins.
    assert allows(parse_robots("User-agent: *\nDisallow: /a\nAllow: /a", "x"), "/a")


def test_rules_for_nobody_or_of_no_path_allow_everything() -> None:
    nobody = ("", "nonsense", "Disallow: /", "\ufeffUser-agent: y\nDisallow: /", "User-agent: *")
    for text in (*nobody, "User-agent: *\nDisallow: a b\nDisallow: /\\"):
        assert allows(parse_robots(text, "x"), "/"), text
    # A mark of byte order does not hide the first line.
    assert not allows(parse_robots("\ufeffUser-agent: *\nDisallow: /", "x"), "/")


@given(st.text(max_size=200), st.text(max_size=20))
def test_no_file_of_rules_breaks_its_reader(text: str, target: str) -> None:
    allows(parse_robots(text, "x"), f"/{target}")


@given(st.text(max_size=400), st.text(max_size=40), st.integers(0, 500))
def test_parts_are_of_the_text_in_order_and_do_not_overlap(text: str, question: str, most: int) -> None:
    parts = relevant(text, question, most)
    places = [place for part in parts for place in part]
    assert places == sorted(places)
    assert all(0 <= start < end <= len(text) for start, end in parts)
    assert joined_parts(text, parts).count("[characters ") >= len(parts)


def test_the_best_parts_are_chosen_and_shown_in_their_order() -> None:
    texts = [f"# Part {number}\n\n{'zebra ' * number}{'filler ' * 50}\n\n" for number in range(5)]
    whole = "".join(texts)
    # The plural is the same word.
    parts = relevant(whole, "Where are the ZEBRAS?", sum(map(len, texts[3:])))
    assert [whole[start:end] for start, end in parts] == texts[3:]


def test_a_text_without_headings_is_taken_apart_between_paragraphs_or_anywhere() -> None:
    paragraphs = "".join(f"{'words ' * 100}\n\n" for _ in range(40))
    solid = "x" * 50_000
    text = f"{paragraphs}needle\n\n{solid} needle"
    parts = relevant(text, "needle", 100_000)
    assert len(parts) == 2
    assert all(end - start <= 6_100 for start, end in parts)


@given(st.binary(max_size=2_000), st.integers(1, 700), st.integers(0, 2_500), st.booleans())
def test_a_body_is_unpacked_up_to_the_limit_however_it_comes(
    content: bytes, size: int, most: int, packed: bool
) -> None:
    half = len(content) // 2
    sent = gzip.compress(content[:half]) + gzip.compress(content[half:]) if packed else content
    pieces = [sent[start : start + size] for start in range(0, len(sent), size)]
    found, is_whole = unpacked(pieces, "gzip" if packed else "", most)
    assert content.startswith(found)
    assert len(found) <= most
    if len(sent) <= most:
        assert (found, is_whole) == (content[:most], len(content) <= most)


def unpacked(pieces: Sequence[bytes], encoding: str, most: int) -> tuple[bytes, bool]:
    async def chunks() -> AsyncGenerator[bytes]:
        for piece in pieces:
            yield piece

    return anyio.run(read_body, chunks(), encoding, most)


def test_what_unpacks_to_nothing_is_bounded_too() -> None:
    assert unpacked([gzip.compress(b"")] * 1_000, "gzip", 10_000) == (b"", False)


def answer(url: str, size: int) -> WebAnswer:
    return WebAnswer(url=url, status=200, reason="", headers={}, body=b"x" * size, complete=True, mark="")


def test_the_least_used_answers_make_room() -> None:
    cache = Cache(most=10)
    cache.put(answer("a", 5))
    cache.put(answer("b", 5))
    assert cache.get("a")[1] is not None
    cache.put(answer("c", 5))
    assert [cache.get(key)[1] is not None for key in "abc"] == [True, False, True]
    cache.put(answer("d", 11))
    assert cache.get("d")[1] is None


def test_sessions_are_counted_apart_until_they_are_old_or_too_many() -> None:
    budget = SearchBudget(25)
    budget.take("a")
    for number in range(10_000):
        budget.take(str(number))
    assert budget.take("a") == 24
    times = iter([0.0, 86_400.0, 86_401.0])
    budget = SearchBudget(25, clock=lambda: next(times))
    assert [budget.take("a") for _ in range(3)] == [24, 23, 24]


async def test_of_many_sites_the_oldest_is_asked_again() -> None:
    hosts = [f"93.184.0.{number}" for number in range(130)]
    with site() as made:
        client = HttpClient(Guard(), Internet(sites=dict.fromkeys(hosts, made)))
        for host in (*hosts, hosts[0], hosts[129]):
            await client.check_robots(parse_url(f"http://{host}/"))
    asked = [one.headers["host"] for one in made.asked]
    assert asked.count(hosts[0]) == 2
    assert asked.count(hosts[129]) == 1
