"""Calls as models write them who know other servers: accepted, or refused with the right form."""

import json
from pathlib import Path

from tests.support.cases import table
from tests.support.live import Setup, connected, text

CODE = b"one\ntwo\n"


async def test_habits_of_other_tools_work_or_are_put_right_without_a_word_of_what_is_hidden(
    tmp_path: Path,
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[rules]\ndeny = ["Read(secret/**)"]\n', encoding="utf-8")
    setup = Setup.below(tmp_path, "danger-full-access", "--git", "protected", "--config", str(config))
    for name in ("a.js", "b.ts", "src/deep/c.js", "secret/d.js"):
        (setup.root / name).parent.mkdir(parents=True, exist_ok=True)
        (setup.root / name).write_bytes(CODE)
    (setup.root / "link.js").symlink_to("secret/d.js")
    faults: list[str] = []
    async with connected(setup) as client:
        for part in ("accepted", "refused"):
            for name, arguments, expected in table(Path(__file__).with_name("habits.txt"), part):
                result = await client.call_tool(name, json.loads(arguments))
                fails = bool(result.is_error)
                if fails is not (part == "refused") or json.loads(f'"{expected}"') not in text(result):
                    faults.append(f"{name} {arguments}: {text(result)}")
        for path in ("elsewhere/d.js", "elsewhere/link.js"):
            said = text(await client.call_tool("read_file", {"path": path}))
            if "secret" in said or "Did you mean" in said:
                faults.append(f"{path}: {said}")
    assert faults == []
