"""The resources and prompts that the suite reads and gets by name."""

import json
import re
from collections.abc import Mapping, Sequence

import mcp_types as mcp

from mcp_toolserver.protocol.resources.source import Source, Visitor
from tests.conformance import asking
from tests.conformance.asking import IMAGE, PNG, Asked, embedded, words

TEXT, BINARY, WATCHED = "test://static-text", "test://static-binary", "test://watched-resource"

_CONTENT: Mapping[str, mcp.TextResourceContents | mcp.BlobResourceContents] = {
    TEXT: mcp.TextResourceContents(uri=TEXT, mime_type="text/plain", text="What a text resource holds."),
    BINARY: mcp.BlobResourceContents(uri=BINARY, mime_type="image/png", blob=PNG),
    WATCHED: mcp.TextResourceContents(uri=WATCHED, mime_type="text/plain", text="As it is now."),
}

RESOURCES = tuple(
    mcp.Resource(uri=uri, name=uri, description="For the suite.", mime_type=found.mime_type)
    for uri, found in _CONTENT.items()
)
TEMPLATE = mcp.ResourceTemplate(
    uri_template="test://template/{id}/data", name="data", description="Data by id.", mime_type="text/plain"
)


class SuiteResources(Source):
    async def listed(self, visitor: Visitor) -> Sequence[mcp.Resource]:
        return RESOURCES

    async def templates(self, visitor: Visitor) -> Sequence[mcp.ResourceTemplate]:
        return (TEMPLATE,)

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        if (found := _CONTENT.get(uri)) is not None:
            return mcp.ReadResourceResult(contents=[found])
        if (named := re.fullmatch(r"test://template/([^/]+)/data", uri)) is None:
            return None
        data = json.dumps({"id": named[1], "templateTest": True, "data": f"Data of {named[1]}"})
        return mcp.ReadResourceResult(
            contents=[mcp.TextResourceContents(uri=uri, mime_type="text/plain", text=data)]
        )

    async def watch(self, uri: str, visitor: Visitor) -> bool:
        return uri == WATCHED


def _prompt(name: str, *arguments: str) -> mcp.Prompt:
    return mcp.Prompt(
        name=name,
        description="For the suite.",
        arguments=[mcp.PromptArgument(name=one, description="A value.", required=True) for one in arguments],
    )


PROMPTS = (
    _prompt("test_simple_prompt"),
    _prompt("test_prompt_with_arguments", "arg1", "arg2"),
    _prompt("test_prompt_with_embedded_resource", "resourceUri"),
    _prompt("test_prompt_with_image"),
    _prompt("test_input_required_result_prompt"),
)


class SuitePrompts(Source):
    def prompts(self) -> Sequence[mcp.Prompt]:
        return PROMPTS

    async def get_prompt(
        self, params: mcp.GetPromptRequestParams, visitor: Visitor
    ) -> mcp.GetPromptResult | Asked | None:
        if params.name in asking.ROUNDS and (asked := asking.asked(params.name, params)) is not None:
            return asked
        given = params.arguments or {}
        said: Mapping[str, tuple[mcp.ContentBlock, ...]] = {
            "test_simple_prompt": (words("A simple prompt."),),
            "test_prompt_with_arguments": (words(f"{given.get('arg1')} and {given.get('arg2')}"),),
            "test_prompt_with_embedded_resource": (
                embedded(given.get("resourceUri", ""), "What the prompt embeds."),
                words("Work on the resource above."),
            ),
            "test_prompt_with_image": (IMAGE, words("Look at the picture above.")),
            "test_input_required_result_prompt": (words("With the context that you gave."),),
        }
        if params.name not in said:
            return None
        return mcp.GetPromptResult(
            messages=[mcp.PromptMessage(role="user", content=content) for content in said[params.name]]
        )

    async def complete(self, name: str, argument: str, value: str, visitor: Visitor) -> Sequence[str] | None:
        return None if name not in {one.name for one in PROMPTS} else [f"{value} one", f"{value} two"]
