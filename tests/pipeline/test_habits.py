"""Calls as models write them who know other servers: accepted, or refused with the right form."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue

from benchmarks.agent.first_calls import recorded, replay
from mcp_toolserver.capabilities.permissions import Permission
from tests.support.cases import table
from tests.support.workbench import Person
from tests.support.workshop import workshop

CODE = b"one\ntwo\n"


async def test_habits_of_other_tools_work_or_are_put_right_without_a_word_of_what_is_hidden(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    for name in ("a.js", "b.ts", "src/deep/c.js", "secret/d.js"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(CODE)
    (root / "link.js").symlink_to("secret/d.js")
    faults: list[str] = []
    chosen = {"deny": ("Read(secret/**)",), "git": "protected"}
    async with workshop(tmp_path, Permission.DANGER_FULL_ACCESS, **chosen) as server:

        async def said(name: str, **arguments: JsonValue) -> tuple[bool, str]:
            result = await server.call(name, arguments, Person())
            return result.error is not None, result.text

        for part in ("accepted", "refused"):
            for name, arguments, expected in table(Path(__file__).with_name("habits.txt"), part):
                fails, answer = await said(name, **json.loads(arguments))
                if fails is not (part == "refused") or json.loads(f'"{expected}"') not in answer:
                    faults.append(f"{name} {arguments}: {answer}")
        for path in ("elsewhere/d.js", "elsewhere/link.js"):
            _, answer = await said("read_file", path=path)
            if "secret" in answer or "Did you mean" in answer:
                faults.append(f"{path}: {answer}")
    assert faults == []


EXPECTED: Mapping[str, float] = {"claude-code": 0.93, "listed": 0.96, "other-servers": 0.78}
"""By style the share of calls that do what was asked."""


@pytest.mark.long
@pytest.mark.parametrize("style", EXPECTED)
def test_first_calls_do_what_was_asked(style: str, tmp_path: Path) -> None:
    outcomes = replay(recorded()[style], tmp_path)
    failed = [f"{one.call.task}: {one.call.tool} {one.answer[:200]}" for one in outcomes if not one.done]
    assert len(failed) <= (1 - EXPECTED[style]) * len(outcomes), "\n".join(failed)
