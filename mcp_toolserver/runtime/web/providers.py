"""Builds the request for each search engine and parses its response."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mcp_toolserver.capabilities.web import WebHit, WebQuery
from mcp_toolserver.runtime.web.client import Request
from mcp_toolserver.text.web.search_results import brave, duckduckgo, flat, with_sites
from mcp_toolserver.text.web.urls import Url, parse_url

_MOST = 2 * 1024 * 1024
"""Bytes of a response."""


@dataclass(frozen=True, kw_only=True)
class SearchEngine:
    """A supported search engine."""

    request: Callable[[Url, str, WebQuery], Request]
    """Builds the request from base address, key and query."""
    read: Callable[[bytes], list[WebHit]]


def _brave(base: Url, key: str, query: WebQuery) -> Request:
    parameters = {"q": with_sites(query), "count": "20", "text_decorations": "false"}
    headers = {"x-subscription-token": key, "accept": "application/json"}
    return Request(url=_url_below(base, "/res/v1/web/search", parameters), headers=headers, most=_MOST)


def _tavily(base: Url, key: str, query: WebQuery) -> Request:
    body = {
        "query": query.text,
        "max_results": 20,
        "include_domains": query.allowed_domains,
        "exclude_domains": query.blocked_domains,
    }
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    return Request(
        url=_url_below(base, "/search"),
        method="POST",
        headers=headers,
        body=json.dumps(body).encode(),
        most=_MOST,
    )


def _searxng(base: Url, key: str, query: WebQuery) -> Request:
    parameters = {"q": with_sites(query), "format": "json"}
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return Request(url=_url_below(base, "/search", parameters), headers=headers, most=_MOST)


def _duckduckgo(base: Url, key: str, query: WebQuery) -> Request:
    return Request(url=_url_below(base, "/html/", {"q": with_sites(query)}), most=_MOST)


def _url_below(base: Url, path: str, parameters: Mapping[str, str] | None = None) -> Url:
    query = "&".join(f"{name}={_escaped(value)}" for name, value in (parameters or {}).items())
    target = base.path.rstrip("/") + path
    return parse_url(f"{base.origin}{target}{'?' if query else ''}{query}")


def _escaped(text: str) -> str:
    return "".join(
        character
        if character.isascii() and character.isalnum()
        else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in text
    )


ENGINES: Mapping[str, SearchEngine] = {
    "brave": SearchEngine(request=_brave, read=brave),
    "tavily": SearchEngine(request=_tavily, read=flat),
    "searxng": SearchEngine(request=_searxng, read=flat),
    "duckduckgo": SearchEngine(request=_duckduckgo, read=duckduckgo),
}
