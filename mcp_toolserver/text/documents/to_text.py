"""Converts a response to readable text: HTML to Markdown, PDF to its text, other text unchanged."""

import codecs
import re
from dataclasses import dataclass
from html import unescape

from mcp_toolserver.errors import InvalidInput, ToolError
from mcp_toolserver.text.documents.documents import Wanted
from mcp_toolserver.text.documents.parsers import pages
from mcp_toolserver.text.lines.encoding import detect
from mcp_toolserver.text.web.urls import Url

HTML_BYTES = 2 * 1024 * 1024
"""Largest page to convert; the converter blocks all other work meanwhile."""

_PDF_TEXT = Wanted(skip=0, take=None, room=2 * 1024 * 1024)

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(
    r"text/.*|application/(?:json|xml|javascript|ecmascript|yaml|x-yaml|toml|sql|x-sh|x-ndjson|graphql|.*\+(?:json|xml|yaml))"
)
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_NOT_FOR_PAGES = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf_7"})
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_HEAD = 65_536
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, kw_only=True)
class Readable:
    """A page as text."""

    text: str
    title: str = ""
    complete: bool = True


def readable(content: bytes, content_type: str, url: Url) -> Readable:
    """Return the text of `content`, links in HTML made absolute.

    Raises:
        InvalidInput: it is not text.
        Unavailable: it is a PDF, and what reads those is not installed.
    """
    media = content_type.partition(";")[0].strip().lower()
    if media in _HTML or (
        not media and content.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))
    ):
        return _of_html(content, content_type, url)
    if media == "application/pdf" or content.startswith(b"%PDF-"):
        try:
            shown = pages(content, _PDF_TEXT)
        except ToolError as error:
            raise type(error)(f"{url} {error}.") from None
        return Readable(text=shown.text, complete=not shown.truncated)
    if not _TEXT.fullmatch(media) and (
        media not in ("", "application/octet-stream") or detect(content) is None
    ):
        # The server chose these words, so an error shows them only in the form of a type.
        is_type = re.fullmatch(r"[\w.+-]{1,64}/[\w.+-]{1,64}", media)
        what = media if is_type else "of an unknown type"
        raise InvalidInput(f"{url} is {what}, not text. Fetch a page about it, or save it with download.")
    return Readable(text=decoded(content, content_type))


def _of_html(content: bytes, content_type: str, url: Url) -> Readable:
    # Large, and needed for web pages only.
    from html_to_markdown import ConversionError, ConversionOptions, convert

    html = decoded(content[:HTML_BYTES], content_type)
    title = _TITLE.search(html[:_HEAD])
    options = ConversionOptions(
        extract_metadata=False, autolinks=False, base_url=str(url), inline_data_media="alt_text_only"
    )
    try:
        text = convert(html, options).content or ""
    except ConversionError:
        raise InvalidInput(f"{url} is not HTML that can be converted; try another page") from None
    return Readable(
        text=text,
        title=_SPACE.sub(" ", unescape(title[1])).strip()[:300] if title else "",
        complete=len(content) <= HTML_BYTES,
    )


def decoded(content: bytes, content_type: str) -> str:
    """Decode bytes with the charset of the server, else of the page, else the detected one."""
    named = _CHARSET.search(content_type)
    within = _META_CHARSET.search(content[:1024])
    for name in (named[1] if named else "", within[1].decode("ascii", "replace") if within else ""):
        if codec := _codec(name):
            return content.decode(codec, errors="replace").removeprefix("\ufeff")
    found = detect(content, complete=False)
    return found.decode(content) if found else content.decode(errors="replace")


def _codec(name: str) -> str | None:
    """Return the text codec with this name; None for codecs that a page must not choose."""
    try:
        found = codecs.lookup(name)
        "".encode(found.name)
    except (LookupError, ValueError):
        return None
    return None if found.name.replace("-", "_") in _NOT_FOR_PAGES else found.name
