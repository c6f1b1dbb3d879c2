"""What a real server says about itself reads well where only the first line, or one line each, is shown."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.live import SharedServers

BREAK_IN_A_SENTENCE = re.compile(r"(?<![\n.:])\n(?!\n|[-*•] |\d+[.)] )")


def descriptions(value: Any) -> Iterator[str]:
    """Every description in a part of a schema."""
    if isinstance(value, dict):
        if isinstance(found := value.get("description"), str):
            yield found
        for part in value.values():
            yield from descriptions(part)
    elif isinstance(value, list):
        for part in value:
            yield from descriptions(part)


@pytest.mark.asyncio(loop_scope="session")
async def test_texts_for_clients_begin_with_a_sentence_and_break_no_line_within_one(
    shared: SharedServers,
) -> None:
    client = await shared.client(shared.setup("danger-full-access"))
    tools = (await client.list_tools()).tools
    prompts = (await client.list_prompts()).prompts
    resources = (await client.list_resources()).resources
    templates = (await client.list_resource_templates()).resource_templates
    shown = {"instructions": [(client.instructions or "").strip()]}
    shown |= {tool.name: [tool.description or "", *descriptions(tool.input_schema)] for tool in tools}
    shown |= {
        thing.name: list(descriptions(thing.model_dump())) for thing in (*prompts, *resources, *templates)
    }
    assert len(shown) > 40
    broken = {name for name, texts in shown.items() if any(map(BREAK_IN_A_SENTENCE.search, texts))}
    assert broken == set()
    first = {tool.name: (tool.description or "").partition("\n")[0] for tool in tools}
    assert {name for name, line in first.items() if not re.match(r"[A-Z][a-z]+\b.{10,}[.]$", line)} == set()
