"""Skills of a real server, confined as it is for users; `long` has every transport."""

from pathlib import Path

import pytest

from tests.skills.skilled import RELEASE, skill
from tests.support.live import Setup, connected, text


@pytest.mark.long
@pytest.mark.parametrize(("transport", "era"), [("stdio", "auto"), ("http", "legacy"), ("sse", "legacy")])
async def test_a_confined_server_loads_saves_and_narrows(transport: str, era: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine/own/SKILL.md"
    mine.parent.mkdir(parents=True)
    mine.write_text(skill("Mine."), encoding="utf-8")
    setup = Setup.below(tmp_path, "workspace-write", "--skills", str(tmp_path / "mine"))
    file = setup.root / RELEASE
    file.parent.mkdir(parents=True)
    file.write_text(skill("Cut $ARGUMENTS.", allowed_tools="Read"), encoding="utf-8")
    async with connected(setup, transport, era) as client:
        before = await client.list_tools(cache_mode="bypass")
        saved = {"name": "tidy", "description": "Tidy", "prompt": "Tidy $ARGUMENTS."}
        assert not (await client.call_tool("save_skill", saved)).is_error
        listed = text(await client.call_tool("Skill", {}))
        assert [line.partition(":")[0] for line in listed.splitlines()] == ["release", "own", "tidy"]
        assert "Mine." in text(await client.call_tool("skill", {"skill": "own"}))
        assert "Tidy up." in text(await client.call_tool("Skill", {"skill": "tidy", "args": "up"}))
        assert "Cut v1." in text(await client.call_tool("Skill", {"skill": "release", "args": "v1"}))
        write = {"path": "a.txt", "content": "x"}
        assert (await client.call_tool("write_file", write)).is_error
        assert (await client.call_tool("bash", {"command": "touch b.txt"})).is_error
        assert await client.list_tools(cache_mode="bypass") == before
        assert not (await client.call_tool("Skill", {"end": True})).is_error
        assert not (await client.call_tool("write_file", write)).is_error
        # Only the user changes a skill.
        assert (await client.call_tool("write_file", {**write, "path": RELEASE})).is_error
    assert sorted(path.name for path in setup.root.iterdir()) == [".agents", "a.txt"]
