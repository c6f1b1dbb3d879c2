"""The files of skills, as the skills extension of MCP (SEP-2640) addresses them.

Served are the skills for models whose front matter has a name that the extension allows and a description.
Clients verify what they read by the digests of `skills/list`, so these are of the text as it is sent, in
which invisible characters are escaped.
"""

import base64
import hashlib
import json
import mimetypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from mcp_toolserver.capabilities.skills import SKILL_FILE
from mcp_toolserver.errors import NotFound, ToolError
from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.resources.skill_prompts import TOOL
from mcp_toolserver.protocol.resources.source import LARGEST, Refused, UnaskedCaller, Visitor, text
from mcp_toolserver.tool_spec import Image, Output, Runtime

TEMPLATE = "skill://{name}/{+path}"

PAGE = 20
"""Skills of one page; the server reads all their files."""

MAX_FILES = 512
"""Files of a skill, and below the bytes of them together: what every client accepts."""

MAX_BYTES = 16 * 1024 * 1024

_URI = re.compile(r"skill://(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)/(?P<path>[^?#]+)")

_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")

_BINARY = "application/octet-stream"

_ESCAPES = 10
"""Factor by which a text grows if all of it is escaped."""

_Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, kw_only=True)
class SkillFiles:
    """Implements `Source`, and answers the requests of the extension."""

    handlers: Handlers
    is_offered: bool
    """Whether the server has the tool."""

    def listed(self, _: str) -> Sequence[mcp.Resource]:
        """None; `skills/list` lists them."""
        return ()

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        """See `Source.templates`."""
        if not self.is_offered:
            return ()
        description = f"A file of a skill; {SKILL_FILE} is the skill itself."
        return [mcp.ResourceTemplate(name="skill", uri_template=TEMPLATE, description=description)]

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        """See `Source.read`."""
        if (found := _address(uri)) is None or not self.is_offered:
            return None
        name, path = found
        override = OutputOverride(run=_content, output_bytes=LARGEST * _ESCAPES)
        result = await visitor.call(TOOL, {"skill": name, "file": path}, override)
        mime_type = _mime_type(path)
        for image in result.images:
            blob = mcp.BlobResourceContents(
                uri=uri, blob=base64.b64encode(image.data).decode(), mime_type=mime_type or _BINARY
            )
            return mcp.ReadResourceResult(contents=[blob], ttl_ms=0, cache_scope="private")
        return text(uri, result.text, mime_type=mime_type or "text/plain")

    def watched(self, _: str, __: str) -> bool:
        """They are not watched."""
        return False

    async def complete(self, _: str, __: str, ___: str, ____: Visitor) -> Sequence[str]:
        """Nothing is proposed."""
        return ()

    async def list_skills(
        self, context: _Context, params: mcp.PaginatedRequestParams
    ) -> dict[str, JsonValue]:
        """Answer `skills/list`. The cursor is the last name of the page before."""
        shown = self.handlers.dispatcher.shown
        after = params.cursor or ""

        async def page(_: Any, rt: Runtime) -> Output:
            names = await _names(rt)
            if after and after not in names:
                raise NotFound("Invalid cursor")
            start = names.index(after) + 1 if after else 0
            chosen = names[start : start + PAGE]
            entries = [entry for name in chosen if (entry := await _entry(rt, name, shown)) is not None]
            found: dict[str, JsonValue] = {"skills": [*entries]}
            if start + PAGE < len(names):
                found["nextCursor"] = chosen[-1]
            return Output(json.dumps(found))

        return await self._answer(context, {}, page)

    async def get_skill(
        self, context: _Context, params: mcp.ReadResourceRequestParams
    ) -> dict[str, JsonValue]:
        """Answer `skills/get`."""
        name, path = _address(params.uri) or ("", "")
        missing = NotFound("No skill is served at this URI.")
        shown = self.handlers.dispatcher.shown

        async def one(_: Any, rt: Runtime) -> Output:
            is_served = path == SKILL_FILE and name in await _names(rt)
            entry = await _entry(rt, name, shown) if is_served else None
            if entry is None:
                raise missing
            return Output(json.dumps({"skill": entry}))

        return await self._answer(context, {}, one)

    async def _answer(
        self, context: _Context, arguments: dict[str, JsonValue], run: Callable[[Any, Runtime], Any]
    ) -> dict[str, JsonValue]:
        caller, _ = self.handlers.caller(context, mcp.InputResponseRequestParams())
        visitor = Visitor(
            context=context,
            owner=self.handlers.client_ids.id_for(context),
            dispatcher=self.handlers.dispatcher,
            caller=UnaskedCaller(caller),
        )
        try:
            found = await visitor.call(TOOL, arguments, OutputOverride(run=run, output_bytes=LARGEST))
        except Refused as refused:
            raise MCPError(mcp.INVALID_PARAMS, str(refused)) from None
        return {"resultType": "complete", **json.loads(found.text), "ttlMs": 0, "cacheScope": "private"}


async def _names(rt: Runtime) -> list[str]:
    """The skills that the extension can serve, except for their files."""
    cards = (await rt.skills.index()).cards
    return sorted(
        card.name
        for card in cards
        if _NAME.fullmatch(card.name) and card.model_invocable and (card.has_folder or not card.path)
    )


async def _entry(rt: Runtime, name: str, shown: Callable[[str], str]) -> dict[str, JsonValue] | None:
    """The entry of a skill; None if it cannot be served."""
    try:
        skill = await rt.skills.open(name)
        paths = (SKILL_FILE, *skill.files)
        if skill.fields.get("name") != name or not skill.fields.get("description") or len(paths) > MAX_FILES:
            return None
        files: list[JsonValue] = []
        total = 0
        for path in paths:
            content = _sent(await rt.skills.read(name, path), shown)
            total += len(content)
            if total > MAX_BYTES:
                return None
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            files.append({"uri": _uri(name, path), "digest": digest, "size": len(content)})
    except ToolError:
        return None
    return {
        "uri": _uri(name, SKILL_FILE),
        "frontmatter": _escaped(dict(skill.fields), shown),
        "resources": files,
    }


def _uri(name: str, path: str) -> str:
    return f"skill://{name}/{quote(path)}"


def _address(uri: str) -> tuple[str, str] | None:
    """The name and the path in an address; None for that of another source."""
    found = _URI.fullmatch(uri)
    try:
        return None if found is None else (found["name"], unquote(found["path"], errors="strict"))
    except ValueError:
        return None


def _escaped(value: JsonValue, shown: Callable[[str], str]) -> JsonValue:
    if isinstance(value, dict):
        return {shown(name): _escaped(one, shown) for name, one in value.items()}
    if isinstance(value, list):
        return [_escaped(one, shown) for one in value]
    return shown(value) if isinstance(value, str) else value


def _sent(content: bytes, shown: Callable[[str], str]) -> bytes:
    """The bytes of a file as a client reads them."""
    decoded = _decoded(content)
    return content if decoded is None else shown(decoded).encode()


def _decoded(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


async def _content(args: Any, rt: Runtime) -> Output:
    content = await rt.skills.read(args.skill, args.file)
    decoded = _decoded(content)
    if decoded is None:
        return Output("", images=(Image(data=content, mime_type=_BINARY),))
    return Output(decoded)


def _mime_type(path: str) -> str | None:
    return "text/markdown" if path.endswith(".md") else mimetypes.guess_type(path)[0]
