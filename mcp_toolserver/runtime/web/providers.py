"""Search engines: how each is asked, and what reads its answer."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mcp_toolserver.capabilities.web import WebHit, WebQuery
from mcp_toolserver.runtime.web.client import Ask
from mcp_toolserver.text.urls import Url, parse_url
from mcp_toolserver.text.web_search import brave, duckduckgo, flat, with_sites

_MOST = 2 * 1024 * 1024
"""Bytes of an answer."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A kind of search engine."""

    ask: Callable[[Url, str, WebQuery], Ask]
    """The request for its base address and the operator's key."""
    read: Callable[[bytes], list[WebHit]]


def _brave(base: Url, key: str, query: WebQuery) -> Ask:
    words = {"q": with_sites(query), "count": "20", "text_decorations": "false"}
    headers = {"x-subscription-token": key, "accept": "application/json"}
    return Ask(url=_below(base, "/res/v1/web/search", words), headers=headers, most=_MOST)


def _tavily(base: Url, key: str, query: WebQuery) -> Ask:
    asked = {
        "query": query.text,
        "max_results": 20,
        "include_domains": query.allowed_domains,
        "exclude_domains": query.blocked_domains,
    }
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    return Ask(
        url=_below(base, "/search"),
        method="POST",
        headers=headers,
        body=json.dumps(asked).encode(),
        most=_MOST,
    )


def _searxng(base: Url, key: str, query: WebQuery) -> Ask:
    words = {"q": with_sites(query), "format": "json"}
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return Ask(url=_below(base, "/search", words), headers=headers, most=_MOST)


def _duckduckgo(base: Url, key: str, query: WebQuery) -> Ask:
    return Ask(url=_below(base, "/html/", {"q": with_sites(query)}), most=_MOST)


def _below(base: Url, path: str, words: Mapping[str, str] | None = None) -> Url:
    query = "&".join(f"{name}={_escaped(value)}" for name, value in (words or {}).items())
    target = base.path.rstrip("/") + path
    return parse_url(f"{base.origin}{target}{'?' if query else ''}{query}")


def _escaped(text: str) -> str:
    return "".join(
        character
        if character.isascii() and character.isalnum()
        else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in text
    )


ENGINES: Mapping[str, Engine] = {
    "brave": Engine(ask=_brave, read=brave),
    "tavily": Engine(ask=_tavily, read=flat),
    "searxng": Engine(ask=_searxng, read=flat),
    "duckduckgo": Engine(ask=_duckduckgo, read=duckduckgo),
}
