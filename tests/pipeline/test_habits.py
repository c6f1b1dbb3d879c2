"""Calls as models write them who know other servers: accepted, or refused with the right form."""

import json
from pathlib import Path

from pydantic import JsonValue

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
