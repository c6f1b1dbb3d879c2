"""Skills as resources and as prompts; the permission and the rules of the tool `Skill` apply to both.

The resources are the files of skills, as the skills extension of MCP (SEP-2640) addresses them. Served are
the skills for models whose front matter has a name that the extension allows and a description. Clients
verify what they read by the digests of `skills/list`, so these are of the text as it is sent, in which
invisible characters are escaped.
"""

import hashlib
import json
import mimetypes
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from mcp_toolserver.capabilities.skills import SKILL_FILE
from mcp_toolserver.errors import NotFound, ToolError
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.resources.source import (
    BINARY,
    ESCAPES,
    LARGEST,
    Refused,
    Source,
    UnaskedVisitor,
    Visitor,
    blob,
    decoded,
    text,
)
from mcp_toolserver.protocol.translate import Context
from mcp_toolserver.text.skills import skill_content
from mcp_toolserver.tool_spec import Image, Output, Runtime

TOOL = "Skill"

PAGE = 20
"""Skills of one page; the server reads all their files."""

MAX_FILES = 512
"""Files of a skill, and below the bytes of them together: what every client accepts."""

MAX_BYTES = 16 * 1024 * 1024

_ARGUMENT = "args"
"""The argument of every prompt."""

_URI = re.compile(r"skill://(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)/(?P<path>[^?#]+)")

_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True)
class Skills(Source):
    """The source of their files, the requests of the extension, and the prompts."""

    handlers: Handlers

    @property
    def is_offered(self) -> bool:
        return TOOL in self.handlers.offered

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        if not self.is_offered:
            return ()
        description = f"A file of a skill; {SKILL_FILE} is the skill itself."
        template = "skill://{name}/{+path}"
        return [mcp.ResourceTemplate(name="skill", uri_template=template, description=description)]

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        if (found := _address(uri)) is None or not self.is_offered:
            return None
        name, path = found
        result = await visitor.call(TOOL, {"skill": name, "file": path}, _content, LARGEST * ESCAPES)
        mime_type = _mime_type(path)
        for image in result.images:
            return blob(uri, image.data, mime_type or BINARY)
        return text(uri, result.text, mime_type=mime_type or "text/plain")

    async def list_skills(self, context: Context, params: mcp.PaginatedRequestParams) -> dict[str, JsonValue]:
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

        return await self._answer(context, page)

    async def get_skill(
        self, context: Context, params: mcp.ReadResourceRequestParams
    ) -> dict[str, JsonValue]:
        name, path = _address(params.uri) or ("", "")
        shown = self.handlers.dispatcher.shown

        async def one(_: Any, rt: Runtime) -> Output:
            is_served = path == SKILL_FILE and name in await _names(rt)
            entry = await _entry(rt, name, shown) if is_served else None
            if entry is None:
                raise NotFound("No skill is served at this URI.")
            return Output(json.dumps({"skill": entry}))

        return await self._answer(context, one)

    async def _answer(
        self, context: Context, run: Callable[[Any, Runtime], Awaitable[Output]]
    ) -> dict[str, JsonValue]:
        try:
            found = await UnaskedVisitor(self.handlers, context).call(TOOL, {}, run)
        except Refused as refused:
            raise MCPError(mcp.INVALID_PARAMS, str(refused)) from None
        return {"resultType": "complete", **json.loads(found.text), "ttlMs": 0, "cacheScope": "private"}

    async def prompts_for(self, context: Context, taken: Collection[str]) -> Sequence[mcp.Prompt]:
        """A prompt for each skill that users can call and whose name is not `taken`."""
        try:
            found = await UnaskedVisitor(self.handlers, context).call(TOOL, {}, _cards)
        except Refused:
            return ()
        cards: Sequence[dict[str, str]] = json.loads(found.text)
        shown = self.handlers.dispatcher.shown
        return [
            _prompt({key: shown(value) for key, value in card.items()})
            for card in cards
            if card["name"] not in taken
        ]

    async def get_prompt(
        self, params: mcp.GetPromptRequestParams, visitor: Visitor
    ) -> mcp.GetPromptResult | None:
        """The text of a skill, which is active from now on."""
        if not self.is_offered:
            return None
        given = params.arguments or {}
        if unknown := sorted(given.keys() - {_ARGUMENT}):
            raise MCPError(
                mcp.INVALID_PARAMS, f"A skill has no argument {unknown[0][:64]!r}; it takes {_ARGUMENT}."
            )
        call = {"skill": params.name, _ARGUMENT: given.get(_ARGUMENT, "")}
        try:
            with self.handlers.changes.on_behalf_of(visitor.owner):
                found = await visitor.call(TOOL, call, _text)
        except Refused as refused:
            if refused.kind == NotFound.kind:
                return None
            raise MCPError(mcp.INVALID_PARAMS, str(refused)) from None
        content = mcp.TextContent(type="text", text=found.text)
        return mcp.GetPromptResult(messages=[mcp.PromptMessage(role="user", content=content)])


def _prompt(card: dict[str, str]) -> mcp.Prompt:
    hint = card["hint"] or "What the skill is to work on"
    return mcp.Prompt(
        name=card["name"],
        description=card["description"],
        arguments=[mcp.PromptArgument(name=_ARGUMENT, description=hint, required=False)],
    )


async def _cards(_: Any, rt: Runtime) -> Output:
    index = await rt.skills.index()
    cards = [
        {"name": card.name, "description": card.description, "hint": card.argument_hint}
        for card in index.cards
        if card.user_invocable
    ]
    return Output(json.dumps(cards))


async def _text(args: Any, rt: Runtime) -> Output:
    skill = await rt.skills.open(args.skill)
    if not skill.card.user_invocable:
        raise NotFound("It is no prompt.")
    rt.skills.activate(skill, is_top_level=True)
    return Output(skill_content(skill, args.args))


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
    found = decoded(content)
    return content if found is None else shown(found).encode()


async def _content(args: Any, rt: Runtime) -> Output:
    content = await rt.skills.read(args.skill, args.file)
    if (found := decoded(content)) is not None:
        return Output(found)
    return Output("", images=(Image(data=content, mime_type=BINARY),))


def _mime_type(path: str) -> str | None:
    return "text/markdown" if path.endswith(".md") else mimetypes.guess_type(path)[0]
