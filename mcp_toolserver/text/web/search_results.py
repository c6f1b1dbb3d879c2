"""Parses the responses of search engines. An unknown format is an error, not an empty list."""

import re
from collections.abc import Iterable, Iterator
from html import unescape
from html.parser import HTMLParser
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from mcp_toolserver.capabilities.web import WebHit, WebQuery
from mcp_toolserver.text.web.urls import parse_url

_TAG = re.compile(r"<[^<>]*>")
_SPACE = re.compile(r"\s+")
_TARGET = re.compile(r"[?&]uddg=([^&#]*)")
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_TEXT_LIMIT = 1_000
"""Characters of a title or a snippet."""

Model = TypeVar("Model", bound=BaseModel)


class _Item(BaseModel):
    title: str = ""
    url: str = ""
    description: str | None = None
    content: str | None = None

    @property
    def hit(self) -> WebHit:
        return WebHit(
            title=plain(self.title), url=self.url, snippet=plain(self.description or self.content or "")
        )


class _Items(BaseModel):
    results: list[_Item] = []


class _Brave(BaseModel):
    type: str
    web: _Items = _Items()


class _Flat(BaseModel):
    query: str
    results: list[_Item]


def plain(text: str) -> str:
    """Remove tags and line ends, and decode entities."""
    return _SPACE.sub(" ", unescape(_TAG.sub("", text))).strip()[:_TEXT_LIMIT]


def brave(body: bytes) -> list[WebHit]:
    """Raises: ValueError: it is not what Brave answers."""
    return [item.hit for item in _read(_Brave, body).web.results]


def flat(body: bytes) -> list[WebHit]:
    """Raises: ValueError: it is not what Tavily and SearXNG answer."""
    return [item.hit for item in _read(_Flat, body).results]


def duckduckgo(body: bytes) -> list[WebHit]:
    """Raises: ValueError: it is not a page of results; such as the one that asks for a human."""
    page = _Page()
    page.feed(body.decode(errors="replace"))
    page.close()
    if not page.hits and not page.is_empty:
        raise ValueError("not a page of results")
    return page.hits


def _read(model: type[Model], body: bytes) -> Model:
    try:
        return model.model_validate_json(body)
    except ValidationError:
        raise ValueError("not the answer of a search") from None


class _Page(HTMLParser):
    """The page without scripts: per result a link of class `result__a` and one of `result__snippet`."""

    def __init__(self) -> None:
        super().__init__()
        self.hits: list[WebHit] = []
        self.is_empty = False
        self._part = ""
        self._text: list[str] = []
        self._url = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        self.is_empty = self.is_empty or "no-results" in classes
        part = next((name for name in ("result__a", "result__snippet") if name in classes), "")
        if part:
            self._part, self._text = part, []
        if part == "result__a":
            self._url = _target(given.get("href") or "")

    def handle_data(self, data: str) -> None:
        if self._part:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("a", "div") or not self._part:
            return
        text = plain("".join(self._text))
        if self._part == "result__a" and self._url:
            self.hits.append(WebHit(title=text, url=self._url, snippet=""))
        elif self._part == "result__snippet" and self._url and self.hits:
            last = self.hits[-1]
            self.hits[-1] = WebHit(title=last.title, url=last.url, snippet=text)
        self._part = ""


def _target(link: str) -> str:
    """Return the target URL behind the search engine's redirect; none for advertisements."""
    found = _TARGET.search(link)
    if found is None:
        return "" if "duckduckgo.com/" in link else link
    return _PERCENT.sub(lambda m: bytes([int(m[1], 16)]), found[1].encode()).decode(errors="replace")


def with_sites(query: WebQuery) -> str:
    """Return the query with its domains as `site:` operators."""
    wanted = " OR ".join(f"site:{domain}" for domain in query.allowed_domains)
    unwanted = " ".join(f"-site:{domain}" for domain in query.blocked_domains)
    return " ".join(filter(None, (query.text, f"({wanted})" if wanted else "", unwanted)))


def chosen(hits: Iterable[WebHit], query: WebQuery) -> tuple[WebHit, ...]:
    """Return the results within the domains of the query, each address once, up to the number asked for."""
    kept = {hit.url: hit for hit in reversed([*_within(hits, query)])}
    return tuple(reversed(kept.values()))[: query.most]


def _within(hits: Iterable[WebHit], query: WebQuery) -> Iterator[WebHit]:
    for hit in hits:
        try:
            url = parse_url(hit.url)
        except ValueError:
            continue
        allowed = not query.allowed_domains or _below(url.host, query.allowed_domains)
        if allowed and not _below(url.host, query.blocked_domains):
            yield WebHit(title=hit.title, url=str(url), snippet=hit.snippet)


def _below(host: str, domains: Iterable[str]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)
