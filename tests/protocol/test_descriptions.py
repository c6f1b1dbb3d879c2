"""What a real server says about itself reads well where only the first line, or one line each, is shown."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import Setup, connected

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


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "root").mkdir()
    return Setup(root=tmp_path / "root", home=tmp_path, mode="danger-full-access")


async def test_no_text_for_clients_breaks_a_line_within_a_sentence(setup: Setup) -> None:
    async with connected(setup) as client:
        tools = (await client.list_tools()).tools
        prompts = (await client.list_prompts()).prompts
        resources = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        instructions = client.instructions or ""
    shown = {"instructions": [instructions.strip()]}
    shown |= {tool.name: [tool.description or "", *descriptions(tool.input_schema)] for tool in tools}
    shown |= {
        thing.name: list(descriptions(thing.model_dump())) for thing in (*prompts, *resources, *templates)
    }
    assert len(shown) > 40
    for name, texts in shown.items():
        for text in texts:
            assert not BREAK_IN_A_SENTENCE.search(text), name


async def test_the_first_line_of_a_tool_says_what_it_does(setup: Setup) -> None:
    async with connected(setup) as client:
        for tool in (await client.list_tools()).tools:
            first = (tool.description or "").partition("\n")[0]
            assert re.match(r"[A-Z][a-z]+\b.{10,}[.]$", first), tool.name


def test_a_break_within_a_sentence_would_be_found() -> None:
    assert BREAK_IN_A_SENTENCE.search("Read a\nfile.")
    assert not BREAK_IN_A_SENTENCE.search("Read:\n- a\n- b\n\nWrite.")
