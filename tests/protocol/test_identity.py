"""How the server presents itself: whole, short, readable, and the same every time."""

import base64
import json
import re
import struct
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import mcp_types as mcp
import pytest

from mcp_toolserver import __version__
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.protocol.instructions import LONGEST, EnforcementStatus, instructions
from mcp_toolserver.protocol.mcp_server import WEBSITE
from mcp_toolserver.text import enforcement_summary
from tests.protocol.lines import ENVELOPE, spoken
from tests.protocol.resource_clients import ERAS, place
from tests.support.live import Setup

METHODS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_learns_what_the_server_is(era: str, tmp_path: Path) -> None:
    async with place(tmp_path) as made, made.client(era) as client:
        info = client.server_info
        assert info is not None
        assert (info.name, info.title, info.version) == ("mcp-toolserver", "MCP toolserver", __version__)
        assert info.description
        assert info.website_url == WEBSITE
        assert info.icons is not None
        assert {(icon.theme, icon.mime_type) for icon in info.icons} == {
            (theme, kind) for theme in ("light", "dark") for kind in ("image/png", "image/svg+xml")
        }
        assert all(is_drawn(icon) for icon in info.icons)
        assert sum(len(icon.src) for icon in info.icons) < 3_000


def is_drawn(icon: mcp.Icon) -> bool:
    """Whether the data of an icon is a picture of its type and size."""
    head, _, data = icon.src.partition(",")
    assert head == f"data:{icon.mime_type};base64"
    picture = base64.b64decode(data)
    if icon.mime_type == "image/svg+xml":
        return icon.sizes == ["any"] and ET.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    start, width, height = struct.unpack(">8s8xII", picture[:24])
    return start == b"\x89PNG\r\n\x1a\n" and icon.sizes == [f"{width}x{height}"]


async def test_an_ordinary_answer_does_not_repeat_the_icon(tmp_path: Path) -> None:
    async with place(tmp_path) as made, made.client("auto") as client:
        result = await client.call_tool("current_datetime", {})
        assert (result.meta or {})[mcp.SERVER_INFO_META_KEY] == {
            "name": "mcp-toolserver",
            "version": __version__,
        }


ROOTS: Sequence[Sequence[str]] = (
    ["/short"],
    [f"/{number}" for number in range(300)],
    ["/" + "x" * 4_000] * 3,
    ["/short", "/" + "x" * 4_000],
    ["/" + "\u202e" * 100] * 9,
)


def test_nothing_is_cut_from_the_instructions_but_whole_roots() -> None:
    summary = "y" * enforcement_summary.LONGEST
    for mode, roots in product(Permission, ROOTS):
        status = EnforcementStatus(mode=mode, commands=True, network=False, summary=summary, is_weakened=True)
        said = instructions(status, roots)
        assert len(said) <= LONGEST
        start, _, named = said.partition("Roots (relative paths start at the first):\n")
        assert mode.flag in start
        assert f"enforced here: {summary}." in start
        assert "says how to get the rest" in start
        shown = [line for line in named.splitlines() if not line.startswith("- and ")]
        assert all(
            len(line) - 2 in {len(root), 8 * 100 + 1} for line, root in zip(shown, roots, strict=False)
        )
        left = len(roots) - len(shown)
        assert (f"- and {left} more" in named) is (left > 0)


def test_the_instructions_say_how_to_commit_install_and_wait_and_nothing_of_the_kernel() -> None:
    def said(mode: Permission, **more: Any) -> str:
        asked = {"commands": True, "network": False, "summary": "Landlock", **more}
        return instructions(EnforcementStatus(mode=mode, **asked), ["/r"])

    write, read, full = Permission.WORKSPACE_WRITE, Permission.READ_ONLY, Permission.DANGER_FULL_ACCESS
    assert "Commit with git in bash" in said(write)
    assert "to install packages, ask the user" in said(write)
    assert "to install" not in said(full, network=True)
    assert "ommit" not in said(read)
    assert all("TaskOutput waits" in said(mode) for mode in Permission)
    assert "TaskOutput" not in said(write, commands=False)
    assert "Landlock" not in said(write)


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


def test_two_servers_say_the_same_byte_by_byte_in_sentences_without_breaks(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "danger-full-access")
    messages = [
        {"jsonrpc": "2.0", "id": n, "method": method, "params": ENVELOPE}
        for n, method in enumerate(("server/discover", *METHODS))
    ]
    first, second = (sorted(spoken(setup, *messages)) for _ in range(2))
    assert first == second
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, first)}
    assert sorted(answers) == [0, 1, 2, 3, 4]
    tools = answers[1]["tools"]
    shown = {"instructions": [answers[0]["instructions"].strip()]}
    shown |= {thing["name"]: list(descriptions(thing)) for thing in tools}
    for number, key in enumerate(("prompts", "resources", "resourceTemplates"), 2):
        shown |= {thing["name"]: list(descriptions(thing)) for thing in answers[number][key]}
    assert len(shown) > 40
    broken = {name for name, texts in shown.items() if any(map(BREAK_IN_A_SENTENCE.search, texts))}
    assert broken == set()
    first_lines = {tool["name"]: tool["description"].partition("\n")[0] for tool in tools}
    wrong = {name for name, line in first_lines.items() if not re.match(r"[A-Z][a-z]+\b.{10,}[.]$", line)}
    assert wrong == set()
