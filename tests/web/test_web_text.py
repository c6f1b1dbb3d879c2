"""Pure parts of the web tools: robots.txt, parts of a page, unpacking, headers, what is kept."""

import gzip
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.runtime.web.body import BodyDecoder
from mcp_toolserver.runtime.web.cache import Cache, CacheEntry, freshness_seconds
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.runtime.web.robots import RobotsChecker
from mcp_toolserver.runtime.web.search_client import SearchBudget
from mcp_toolserver.runtime.web.transport import GuardedNetwork
from mcp_toolserver.text.documents.relevant_sections import joined_parts, relevant
from mcp_toolserver.text.web.headers import sendable
from mcp_toolserver.text.web.robots import parse_robots
from mcp_toolserver.text.web.urls import Url, parse_url
from tests.web.web import Internet

# --- robots.txt ------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("agent", "target", "allowed"),
    [
        pytest.param("mine", "/", True, id="not mentioned"),
        pytest.param("mine", "/private", False, id="refused"),
        pytest.param("mine", "/private/x?y", False, id="below what is refused"),
        pytest.param("mine", "/privately", False, id="what starts the same"),
        pytest.param("mine", "/private/open/x", True, id="a more specific allowance"),
        pytest.param("mine", "/x/y.pdf", False, id="by its end"),
        pytest.param("mine", "/x/y.pdf?z", True, id="not at its end"),
        pytest.param("mine", "/a%3Cb", False, id="escapes in other letters"),
        pytest.param("mine", "/all", True, id="who is named is not everybody"),
        pytest.param("ONE", "/private", False, id="another name of the group"),
        pytest.param("nobody", "/all", False, id="everybody"),
        pytest.param("nobody", "/private", True, id="rules for others"),
        pytest.param("other", "/", False, id="all refused"),
    ],
)
def test_a_sites_rules_are_kept(agent: str, target: str, allowed: bool) -> None:
    assert parse_robots(RULES, agent).allows(target) is allowed


def test_of_two_rules_that_are_as_specific_the_one_that_allows_wins() -> None:
    assert parse_robots("User-agent: *\nDisallow: /a\nAllow: /a", "x").allows("/a")


@pytest.mark.parametrize(
    "text", ["", "nonsense", "Disallow: /", "\ufeffUser-agent: y\nDisallow: /", "User-agent: *"]
)
def test_rules_for_nobody_allow_everything(text: str) -> None:
    assert parse_robots(text, "x").allows("/")


def test_a_mark_of_byte_order_does_not_hide_the_first_line() -> None:
    assert not parse_robots("\ufeffUser-agent: *\nDisallow: /", "x").allows("/")


def test_a_rule_that_is_no_path_does_no_harm() -> None:
    assert parse_robots("User-agent: *\nDisallow: a b\nDisallow: /\\", "x").allows("/")


@given(st.text(max_size=200), st.text(max_size=20))
def test_no_file_of_rules_breaks_its_reader(text: str, target: str) -> None:
    parse_robots(text, "x").allows(f"/{target}")


# --- the parts that a question is about ------------------------------------------------------------------


@given(st.text(max_size=400), st.text(max_size=40), st.integers(0, 500))
def test_parts_are_of_the_text_in_order_and_do_not_overlap(text: str, question: str, most: int) -> None:
    parts = relevant(text, question, most)
    places = [place for part in parts for place in (part.start, part.end)]
    assert places == sorted(places)
    assert all(0 <= part.start < part.end <= len(text) for part in parts)
    assert joined_parts(text, parts).count("[characters ") >= len(parts)


def test_the_best_parts_are_chosen_and_shown_in_their_order() -> None:
    texts = [f"# Part {number}\n\n{'zebra ' * number}{'filler ' * 50}\n\n" for number in range(5)]
    whole = "".join(texts)
    parts = relevant(whole, "Where is the zebra?", sum(map(len, texts[3:])))
    assert [whole[part.start : part.end] for part in parts] == texts[3:]


def test_a_text_without_headings_is_taken_apart_between_paragraphs_or_anywhere() -> None:
    paragraphs = "".join(f"{'words ' * 100}\n\n" for _ in range(40))
    solid = "x" * 50_000
    text = f"{paragraphs}needle\n\n{solid} needle"
    parts = relevant(text, "needle", 100_000)
    assert len(parts) == 2
    assert all(part.end - part.start <= 6_100 for part in parts)


def test_the_plural_is_the_same_word() -> None:
    assert relevant("about gates", "a GATE", 100)


# --- unpacking -------------------------------------------------------------------------------------------


@given(st.binary(max_size=2_000), st.integers(1, 700), st.integers(0, 2_500), st.booleans())
def test_a_body_is_unpacked_up_to_the_limit_however_it_comes(
    content: bytes, size: int, most: int, packed: bool
) -> None:
    half = len(content) // 2
    sent = gzip.compress(content[:half]) + gzip.compress(content[half:]) if packed else content
    body = BodyDecoder("gzip" if packed else "", most)
    for start in range(0, len(sent), size):
        if not body.is_truncated:
            body.add(sent[start : start + size])
    assert content.startswith(body.content())
    assert len(body.content()) <= most
    if len(sent) <= most:
        assert (body.content(), body.is_truncated) == (content[:most], len(content) > most)


def test_what_unpacks_to_nothing_is_bounded_too() -> None:
    nothing = gzip.compress(b"")
    body = BodyDecoder("gzip", 10_000)
    for _ in range(1_000):
        if not body.is_truncated:
            body.add(nothing)
    assert body.is_truncated
    assert body.content() == b""


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip"])
def test_an_encoding_that_was_not_asked_for_is_refused(encoding: str) -> None:
    with pytest.raises(Unavailable):
        BodyDecoder(encoding, 10)


def test_what_is_not_packed_as_it_says_is_refused() -> None:
    with pytest.raises(Unavailable):
        BodyDecoder("gzip", 100).add(zlib.compress(b"x"))


# --- headers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({f"a{n}": "b" for n in range(33)}, id="many"),
        pytest.param({"a": "b" * 9_000}, id="long value"),
        pytest.param({"a" * 200: "b"}, id="long name"),
        pytest.param({"a": " b"}, id="space first"),
        pytest.param({"a": "ü"}, id="not ASCII"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        sendable(headers)


def test_headers_are_sent_under_one_spelling() -> None:
    assert sendable({"X-Key": "a b", "Accept": ""}) == {"x-key": "a b", "accept": ""}


# --- what is kept ----------------------------------------------------------------------------------------


def entry(body: bytes) -> CacheEntry:
    return CacheEntry(headers={}, body=body, complete=True, fresh_until=0)


def test_the_least_used_answers_make_room() -> None:
    cache = Cache(most=10)
    cache.put("a", entry(b"12345"))
    cache.put("b", entry(b"12345"))
    assert cache.get("a") is not None
    cache.put("c", entry(b"12345"))
    assert [cache.get(key) is not None for key in "abc"] == [True, False, True]
    cache.put("d", replace(entry(b"1"), body=b"x" * 11))
    assert cache.get("d") is None


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        pytest.param("max-age=5", 5.0, id="seconds"),
        pytest.param('private, Max-Age="7"', 7.0, id="quoted"),
        pytest.param("max-age=999999", 900.0, id="longer than anything is kept"),
        pytest.param("s-maxage=5", 120.0, id="of others"),
        pytest.param("no-cache, max-age=5", 0.0, id="only if asked again"),
        pytest.param("no-store, max-age=5", None, id="never"),
    ],
)
def test_an_answer_is_fresh_for_as_long_as_it_says(said: str, seconds: float | None) -> None:
    assert freshness_seconds({"cache-control": said}) == seconds


def test_sessions_are_counted_apart_and_the_oldest_is_forgotten() -> None:
    budget = SearchBudget()
    assert [budget.take("a") for _ in range(3)] == [24, 23, 22]
    for number in range(10_000):
        budget.take(str(number))
    assert budget.take("a") == 24


def test_a_session_that_nobody_ended_begins_anew_a_day_later() -> None:
    times = iter([0.0, 86_400.0, 86_401.0])
    budget = SearchBudget(clock=lambda: next(times))
    assert [budget.take("a") for _ in range(3)] == [24, 23, 24]


async def test_of_many_sites_the_oldest_is_asked_again() -> None:
    asked: list[str] = []

    async def read(url: Url) -> tuple[int, bytes]:
        asked.append(url.host)
        return 404, b""

    courtesy = RobotsChecker(read=read)
    for number in (*range(130), 0, 129):
        await courtesy.check(parse_url(f"http://n{number}.example/"))
    assert asked.count("n0.example") == 2
    assert asked.count("n129.example") == 1


async def test_the_guarded_network_opens_no_local_socket() -> None:
    network = GuardedNetwork(Guard(), Internet())
    await network.sleep(0)
    with pytest.raises(Denied):
        await network.connect_unix_socket("/run/docker.sock")
