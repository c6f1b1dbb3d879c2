"""Searching the web: each engine's real form of answer, domains, and what a session may have."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.runtime.web.options import Provider
from mcp_toolserver.text.web.urls import parse_url
from tests.support.workbench import Person
from tests.web.web import PUBLIC, Bench, Internet, Reply, Site, bench, inside, page, site, to

ITEMS = [
    ("First & best", "https://www.example.org/one", "About the first."),
    ("Second", "https://docs.example.com/two?x=1", "About the second."),
    ("Second again", "https://docs.example.com/two?x=1#part", "The same page."),
    ("Third", "https://example.net/three", "About the third."),
]


def brave(reply: Reply) -> None:
    results = [
        {
            "title": title.replace("&", "&amp;"),
            "url": url,
            "description": f"<strong>{text}</strong>",
            "profile": {"name": "x", "url": url},
            "type": "search_result",
            "meta_url": {"scheme": "https", "netloc": "x"},
        }
        for title, url, text in ITEMS
    ]
    web = {"type": "search", "results": results, "family_friendly": True}
    body: dict[str, Any] = {
        "query": {"original": "words"},
        "mixed": {"main": []},
        "type": "search",
        "web": web,
    }
    reply.say(json.dumps(body), kind="application/json")


def flat(reply: Reply) -> None:
    """Tavily and SearXNG."""
    results = [
        {"title": title, "url": url, "content": text, "score": 0.9, "publishedDate": None, "engines": ["x"]}
        for title, url, text in ITEMS
    ]
    body: dict[str, Any] = {"query": "words", "answer": None, "answers": [], "results": results}
    reply.say(json.dumps(body), kind="application/json")


def duckduckgo(reply: Reply) -> None:
    def escaped(url: str) -> str:
        return "".join(c if c.isalnum() else f"%{ord(c):02X}" for c in url)

    def result(title: str, link: str, text: str, kind: str = "") -> str:
        return f"""
        <div class="result results_links results_links_deep web-result {kind}">
          <div class="links_main links_deep result__body">
            <h2 class="result__title"><a rel="nofollow" class="result__a" href="{link}">{title}</a></h2>
            <div class="result__extras"><a class="result__url" href="{link}">www.example.org</a></div>
            <a class="result__snippet" href="{link}"><b>About</b> {text}</a>
          </div>
        </div>"""

    found = [result("Buy", "https://duckduckgo.com/y.js?ad_domain=shop.example", "ads.", "result--ad")]
    for title, url, text in ITEMS[:-1]:
        link = f"//duckduckgo.com/l/?uddg={escaped(url)}&amp;rut=0123456789abcdef"
        found.append(result(title.replace("&", "&amp;"), link, text.removeprefix("About ")))
    found.append(result(ITEMS[-1][0], ITEMS[-1][1], "the third."))
    reply.say(f'<!DOCTYPE html><html><body><div id="links">{"".join(found)}</div></body></html>')


PATHS = {"brave": "/res/v1/web/search", "tavily": "/search", "searxng": "/search", "duckduckgo": "/html/"}
SPEAKERS: dict[str, Callable[[Reply], None]] = {
    "brave": brave,
    "tavily": flat,
    "searxng": flat,
    "duckduckgo": duckduckgo,
}
every_engine = pytest.mark.parametrize("engine", SPEAKERS)


def provider(engine: str, service: Site, key: str = "the-key") -> Provider:
    return Provider(engine=engine, base=parse_url(service.url), key=key, is_named=True)


def searching(
    folder: Path, service: Site, *engines: str, person: Person | None = None, **policy: Any
) -> Bench:
    """The engines of the test, all at one loopback address that the operator named."""
    providers = [provider(engine, service) for engine in engines]
    return bench(folder, providers=providers, person=person, **policy)


@pytest.mark.requirement("GR-33")
@every_engine
async def test_an_engines_answer_becomes_titles_addresses_and_snippets(engine: str, tmp_path: Path) -> None:
    with site({PATHS[engine]: SPEAKERS[engine]}) as service:
        result = await searching(tmp_path, service, engine).call("WebSearch", query="a&b=c ü #1")
    text = result.text
    assert result.data == {
        "results": [
            {"title": "First & best", "url": "https://www.example.org/one", "snippet": "About the first."},
            {"title": "Second", "url": "https://docs.example.com/two?x=1", "snippet": "About the second."},
            {"title": "Third", "url": "https://example.net/three", "snippet": "About the third."},
        ],
        "provider": engine,
        "searches_left": 24,
    }
    assert inside(text) == (
        "1. First & best\n   https://www.example.org/one\n   About the first.\n"
        "2. Second\n   https://docs.example.com/two?x=1\n   About the second.\n"
        "3. Third\n   https://example.net/three\n   About the third."
    )
    assert f"[{engine}; 24 searches left in this session]" in text
    # What was asked of it reached it whole.
    asked = service.asked[0]
    if asked.method == "POST":
        assert json.loads(asked.body)["query"] == "a&b=c ü #1"
    else:
        assert "q=a%26b%3Dc%20%C3%BC%20%231" in asked.path
    sent = json.dumps(dict(asked.headers))
    assert ("the-key" in sent) is (engine != "duckduckgo")


@every_engine
async def test_domains_are_kept_to_whatever_the_engine_answers(engine: str, tmp_path: Path) -> None:
    with site({PATHS[engine]: SPEAKERS[engine]}) as service:
        made = searching(tmp_path, service, engine)
        allowed = await made.text("WebSearch", query="words", allowed_domains=["Example.com", "example.net"])
        blocked = await made.text(
            "WebSearch", query="words", blocked_domains=["*.example.com", "example.net"]
        )
    places = ("www.example.org", "docs.example.com", "example.net/three")
    assert [place in allowed for place in places] == [False, True, True]
    assert [place in blocked for place in places] == [True, False, False]
    first, second = service.asked
    if engine == "tavily":
        assert json.loads(first.body)["include_domains"] == ["example.com", "example.net"]
        assert json.loads(second.body)["exclude_domains"] == ["example.com", "example.net"]
    else:
        assert "%28site%3Aexample.com%20OR%20site%3Aexample.net%29" in first.path
        assert "-site%3Aexample.com%20-site%3Aexample.net" in second.path


async def test_as_many_results_are_shown_as_were_asked_for_and_only_of_domains(tmp_path: Path) -> None:
    with site({PATHS["searxng"]: flat}) as service:
        made = searching(tmp_path, service, "searxng")
        assert "2. " not in await made.text("web_search", query="words", num_results=1)
        for domain in ("a b", "*", "http://a.example", ""):
            result = await made.call("WebSearch", query="words", allowed_domains=[domain])
            assert result.error == "invalid_input", domain


async def test_a_result_that_leads_out_of_the_web_is_left_out_and_none_is_no_error(
    tmp_path: Path,
) -> None:
    results = [
        {"title": "x", "url": url, "content": "y"} for url in ("javascript:alert(1)", "file:///etc/passwd")
    ]
    body = json.dumps({"query": "words", "results": results})
    nothing = '<div id="links"><div class="result"><div class="no-results">No results.</div></div></div>'
    routes = {"/search": page(body, kind="application/json"), "/html/": page(nothing)}
    with site(routes) as service:
        for engine in ("searxng", "duckduckgo"):
            text = await searching(tmp_path, service, engine).text("WebSearch", query="words")
            assert text.startswith("Nothing was found"), engine


@every_engine
async def test_an_engine_that_does_not_answer_with_results_is_an_error(engine: str, tmp_path: Path) -> None:
    question = "<div class=anomaly-modal>Are you a human?</div>"
    answers = [(401, "{}"), (429, "{}"), (202, question), (200, question), (200, "not what was asked for")]
    with site({}) as service:
        for status, body in answers:
            service.routes[PATHS[engine]] = page(body, status=status)
            result = await searching(tmp_path, service, engine).call("WebSearch", query="words")
            assert result.error == "unavailable", (status, body)
            assert engine in result.text
            assert "the-key" not in result.text


@pytest.mark.requirement("GR-35", "GR-37")
async def test_a_session_has_only_so_many_searches(tmp_path: Path) -> None:
    quota = 2
    with site({"/search": flat}) as service:
        person = Person(name="one")
        engine = provider("searxng", service)
        made = bench(tmp_path, providers=[engine], searches=quota, person=person)
        results = [await made.call("WebSearch", query="words") for _ in range(quota + 1)]
        person.name = "another"
        other = await made.call("WebSearch", query="words")
    assert [result.error for result in results] == [None] * quota + ["denied"]
    assert other.error is None
    assert len(service.asked) == quota + 1


@pytest.mark.requirement("GR-36", "GR-37")
async def test_a_search_takes_only_so_long(tmp_path: Path) -> None:
    with site({"/search": lambda reply: reply.site.closing.wait(30)}) as service:
        engine = replace(provider("searxng", service), seconds=0.2)
        assert (
            await bench(tmp_path, providers=[engine]).call("WebSearch", query="words")
        ).error == "timed_out"


@pytest.mark.requirement("GR-34")
async def test_a_session_keeps_to_one_engine_and_sessions_differ(tmp_path: Path) -> None:
    with site({path: SPEAKERS[engine] for engine, path in PATHS.items() if engine != "tavily"}) as service:
        person = Person()
        made = searching(tmp_path, service, "brave", "searxng", "duckduckgo", person=person)

        async def engine_of(session: str) -> str:
            person.name = session
            text = await made.text("WebSearch", query="words")
            return text.rpartition("[")[2].split(";")[0]

        engines = {
            f"session {number}": [await engine_of(f"session {number}") for _ in range(3)]
            for number in range(20)
        }
    assert all(len(set(found)) == 1 for found in engines.values())
    assert {found[0] for found in engines.values()} == {"brave", "searxng", "duckduckgo"}


async def test_an_engine_on_this_machine_is_open_to_searches_alone(tmp_path: Path) -> None:
    with site({"/search": flat, "/": page("inside")}) as service:
        made = searching(tmp_path, service, "searxng")
        await made.text("WebSearch", query="words")
        result = await made.call("WebFetch", url=service.url)
        assert result.error == "denied"
        assert service.pages == ["/search?q=words&format=json"]
        # Nor can it lead one elsewhere inside.
        service.routes["/search"] = to("http://169.254.169.254/latest")
        assert (await made.call("WebSearch", query="words")).error == "denied"


async def test_a_key_is_not_handed_on_by_a_redirect(tmp_path: Path) -> None:
    with site({"/search": flat}) as other:
        away = f"http://localhost:{other.port}/search"
        with site({"/search": to(away)}) as service:
            made = bench(
                tmp_path, providers=[provider("searxng", service)], private=[f"localhost:{other.port}"]
            )
            await made.text("WebSearch", query="words")
    assert "authorization" in service.asked[0].headers
    assert "authorization" not in other.asked[0].headers


async def test_without_a_choice_duckduckgo_is_asked_if_it_is_among_the_hosts(tmp_path: Path) -> None:
    internet = Internet(names={"html.duckduckgo.com": lambda: [PUBLIC]})
    result = await bench(tmp_path, internet=internet).call("WebSearch", query="words")
    assert result.error == "unavailable"
    assert internet.dialled == [(PUBLIC, 443)]
    closed = bench(tmp_path, internet=internet, hosts=["docs.example"])
    assert (await closed.call("WebSearch", query="words")).error == "denied"
    assert internet.dialled == [(PUBLIC, 443)]


async def test_rules_see_the_words_of_a_search(tmp_path: Path) -> None:
    with site({"/search": flat}) as service:
        made = searching(tmp_path, service, "searxng", deny=["WebSearch(*password*)"])
        assert (await made.call("WebSearch", query="my password/x is")).error == "denied"
        await made.text("WebSearch", query="words")
    assert len(service.asked) == 1
