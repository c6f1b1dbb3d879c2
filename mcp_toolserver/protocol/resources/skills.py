"""Skills as resources and as prompts; the permission and the rules of the tool `Skill` apply to both.

The resources are the files of skills, as the skills extension of MCP (SEP-2640) addresses them. Served are
the skills for models whose front matter has a name that the extension allows and a description. Clients
verify what they read by the digests of `skills/list`, so these are of the text as it is sent, in which
invisible characters are escaped.
"""

import hashlib
import mimetypes
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from mcp_toolserver.capabilities.skills import SKILL_FILE, SkillCard
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
    decoded,
    file_output,
    file_resource,
)
from mcp_toolserver.protocol.translate import Context
from mcp_toolserver.text.lines.escape_invisible import visible_values
from mcp_toolserver.text.skills import skill_content
from mcp_toolserver.tool_spec import Output, Runtime

SKILL_TOOL = "Skill"

PAGE = 20
"""Skills of one page; the server reads all their files."""

MAX_FILES = 512
"""Files of a skill, and below the bytes of them together: what every client accepts."""

MAX_BYTES = 16 * 1024 * 1024

_ARGUMENT = "args"
"""The argument of every prompt."""

_TEMPLATE = "skill://{name}/{+path}"

_URI = re.compile(r"skill://(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)/(?P<path>[^?#]+)")

_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True)
class Skills(Source):
    """The source of their files, the requests of the extension, and the prompts."""

    handlers: Handlers

    async def templates(self, _: Visitor) -> Sequence[mcp.ResourceTemplate]:
        description = f"A file of a skill; {SKILL_FILE} is the skill itself."
        return [mcp.ResourceTemplate(name="skill", uri_template=_TEMPLATE, description=description)]

    async def complete(self, name: str, _: str, __: str, ___: Visitor) -> Sequence[str] | None:
        return () if name == _TEMPLATE else None

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        if (found := _address(uri)) is None:
            return None
        name, path = found
        result = await visitor.call(SKILL_TOOL, {"skill": name, "file": path}, _content, LARGEST * ESCAPES)
        is_markdown = path.endswith(".md")
        mime_type = "text/markdown" if is_markdown else mimetypes.guess_type(path)[0]
        return file_resource(uri, result, mime_type)

    async def list_skills(self, context: Context, params: mcp.PaginatedRequestParams) -> dict[str, JsonValue]:
        """Answer `skills/list`. The cursor is the last name of the page before."""
        after = params.cursor or ""

        async def page(rt: Runtime) -> dict[str, JsonValue]:
            names = await _names(rt)
            if after and after not in names:
                raise NotFound("Invalid cursor")
            start = names.index(after) + 1 if after else 0
            chosen = names[start : start + PAGE]
            entries = [entry for name in chosen if (entry := await self._entry(rt, name)) is not None]
            found: dict[str, JsonValue] = {"skills": [*entries]}
            if start + PAGE < len(names):
                found["nextCursor"] = chosen[-1]
            return found

        return await self._answer(context, page)

    async def get_skill(
        self, context: Context, params: mcp.ReadResourceRequestParams
    ) -> dict[str, JsonValue]:
        name, path = _address(params.uri) or ("", "")

        async def one(rt: Runtime) -> dict[str, JsonValue]:
            is_served = path == SKILL_FILE and name in await _names(rt)
            entry = await self._entry(rt, name) if is_served else None
            if entry is None:
                raise NotFound("No skill is served at this URI.")
            return {"skill": entry}

        return await self._answer(context, one)

    async def _answer(
        self, context: Context, find: Callable[[Runtime], Awaitable[dict[str, JsonValue]]]
    ) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {}

        async def run(_: Any, rt: Runtime) -> Output:
            found.update(await find(rt))
            return Output("")

        try:
            await UnaskedVisitor(self.handlers, context).call(SKILL_TOOL, {}, run)
        except Refused as refused:
            raise MCPError(mcp.INVALID_PARAMS, str(refused)) from None
        return {"resultType": "complete", **found, "ttlMs": 0, "cacheScope": "private"}

    async def _entry(self, rt: Runtime, name: str) -> dict[str, JsonValue] | None:
        """The entry of a skill; None if it cannot be served."""
        dispatcher = self.handlers.dispatcher
        try:
            skill = await rt.skills.open(name)
            paths, fields = (SKILL_FILE, *skill.files), dict(skill.fields)
            if fields.get("name") != name or not fields.get("description") or len(paths) > MAX_FILES:
                return None
            files: list[JsonValue] = []
            total = 0
            for path in paths:
                content = await rt.skills.read(name, path)
                if (sent := decoded(content)) is not None:
                    content = dispatcher.shown(sent).encode()
                total += len(content)
                if total > MAX_BYTES:
                    return None
                digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
                files.append({"uri": _uri(name, path), "digest": digest, "size": len(content)})
        except ToolError:
            return None
        front_matter = fields if dispatcher.raw else visible_values(fields)
        return {"uri": _uri(name, SKILL_FILE), "frontmatter": front_matter, "resources": files}

    async def prompts_for(self, context: Context, taken: Collection[str]) -> Sequence[mcp.Prompt]:
        """A prompt for each skill that users can call and whose name is not `taken`."""
        cards: list[SkillCard] = []

        async def run(_: Any, rt: Runtime) -> Output:
            cards.extend((await rt.skills.index()).cards)
            return Output("")

        with suppress(Refused):
            await UnaskedVisitor(self.handlers, context).call(SKILL_TOOL, {}, run)
        return [self._prompt(card) for card in cards if card.user_invocable and card.name not in taken]

    def _prompt(self, card: SkillCard) -> mcp.Prompt:
        shown = self.handlers.dispatcher.shown
        hint = shown(card.argument_hint) or "What the skill is to work on"
        return mcp.Prompt(
            name=shown(card.name),
            description=shown(card.description),
            arguments=[mcp.PromptArgument(name=_ARGUMENT, description=hint, required=False)],
        )

    async def get_prompt(
        self, params: mcp.GetPromptRequestParams, visitor: Visitor
    ) -> mcp.GetPromptResult | None:
        """The text of a skill. Getting it takes no rights."""
        given = params.arguments or {}
        if unknown := sorted(given.keys() - {_ARGUMENT}):
            raise MCPError(
                mcp.INVALID_PARAMS, f"A skill has no argument {unknown[0][:64]!r}; it takes {_ARGUMENT}."
            )
        call = {"skill": params.name, _ARGUMENT: given.get(_ARGUMENT, "")}
        try:
            found = await visitor.call(SKILL_TOOL, call, _text)
        except Refused as refused:
            if refused.kind == NotFound.kind:
                return None
            raise MCPError(mcp.INVALID_PARAMS, str(refused)) from None
        content = mcp.TextContent(type="text", text=found.text)
        return mcp.GetPromptResult(messages=[mcp.PromptMessage(role="user", content=content)])


async def _text(args: Any, rt: Runtime) -> Output:
    skill = await rt.skills.open(args.skill)
    if not skill.card.user_invocable:
        raise NotFound("It is no prompt.")
    return Output(skill_content(replace(skill, allowed_tools=None), args.args))


async def _names(rt: Runtime) -> list[str]:
    """The skills that the extension can serve, except for their files."""
    cards = (await rt.skills.index()).cards
    return sorted(
        card.name
        for card in cards
        if _NAME.fullmatch(card.name) and card.model_invocable and (card.has_folder or not card.path)
    )


def _uri(name: str, path: str) -> str:
    return f"skill://{name}/{quote(path)}"


def _address(uri: str) -> tuple[str, str] | None:
    """The name and the path in an address; None for that of another source."""
    found = _URI.fullmatch(uri)
    try:
        return None if found is None else (found["name"], unquote(found["path"], errors="strict"))
    except ValueError:
        return None


async def _content(args: Any, rt: Runtime) -> Output:
    return file_output(await rt.skills.read(args.skill, args.file), BINARY)
