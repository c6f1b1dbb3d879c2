"""Rules of a config file, as a real server holds to them."""

from pathlib import Path

import pytest

from tests.support.live import Setup, connected, text

RULES = """
[rules]
deny = ["Bash(git push:*)", "capability:fs_write(*.lock)", "capability:fs_read(secrets/**)", "*(*.key)"]
"""


SPELLINGS = ("git push", "git  push", "git\tpush", "git 'push'", "env X=1 git push", "git -C x push")


@pytest.mark.requirement("DA-59")
async def test_a_rule_stops_every_spelling_of_a_command_and_every_tool_that_needs_what_it_denies(
    tmp_path: Path,
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(RULES, encoding="utf-8")
    setup = Setup.below(tmp_path, "workspace-write", "--config", str(config))
    (setup.root / "secrets").mkdir()
    for name in ("a.lock", "a.txt", "secrets/key"):
        (setup.root / name).write_text("before\n", encoding="utf-8")
    (setup.root / "a.key").write_text("the key\n", encoding="utf-8")
    edit = {"old_string": "before", "new_string": "after"}
    async with connected(setup) as client:
        for command in SPELLINGS:
            assert "denied here by the rule Bash(git push:*)" in text(
                await client.call_tool("bash", {"command": command})
            )
        assert text(await client.call_tool("bash", {"command": "echo git push"})) == "git push\n"
        assert "denied here by the rule" in text(await client.call_tool("read_file", {"path": "a.key"}))
        # A rule on paths is about no text of a command.
        said = await client.call_tool("bash", {"command": "echo item.key; cat a.key"})
        assert text(said).startswith("item.key\n")
        assert "the key" not in text(said)
        code = {"language": "python", "code": "class Item:\n    key = 1\nprint(Item.key)\nItem.key"}
        assert text(await client.call_tool("REPL", code)).startswith("1\n")

        for name, arguments in (
            ("edit_file", {"path": "a.lock", **edit}),
            ("write_file", {"path": "a.lock", "content": "after"}),
            ("write_file", {"path": "new.lock", "content": "after"}),
            ("read_file", {"path": "secrets/key"}),
        ):
            assert "denied here by the rule capability:" in text(await client.call_tool(name, arguments))
        assert "secrets" not in text(await client.call_tool("grep_search", {"pattern": "before"}))
        assert not (await client.call_tool("edit_file", {"path": "a.txt", **edit})).is_error
    assert (setup.root / "a.lock").read_text(encoding="utf-8") == "before\n"
