"""Rules and the check of dangerous commands, as a whole server applies them."""

from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from tests.support.cases import collected, table
from tests.support.processes import call
from tests.support.workbench import Person, dispatcher, machine
from tests.support.workshop import workshop


@pytest.mark.requirement("DA-59")
async def test_a_rule_stops_a_command_and_every_tool_that_needs_what_it_denies(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "secrets").mkdir(parents=True)
    for name in ("a.lock", "a.txt", "secrets/key"):
        (root / name).write_text("before\n", encoding="utf-8")
    (root / "a.key").write_text("the key\n", encoding="utf-8")
    edit = {"old_string": "before", "new_string": "after"}
    deny = ("Bash(git push:*)", "capability:fs_write(*.lock)", "capability:fs_read(secrets/**)", "*(*.key)")
    async with workshop(tmp_path, Permission.WORKSPACE_WRITE, deny=deny) as server:

        async def said(tool: str, **arguments: str) -> str:
            return (await call(server, tool, **arguments)).text

        assert "denied here by the rule Bash(git push:*)" in await said("bash", command="git -C x push")
        assert await said("bash", command="echo git push") == "git push\n"
        assert "denied here by the rule" in await said("read_file", path="a.key")
        # A rule on paths is about no text of a command.
        shown = await said("bash", command="echo item.key; cat a.key")
        assert shown.startswith("item.key\n")
        assert "the key" not in shown
        code = "class Item:\n    key = 1\nprint(Item.key)\nItem.key"
        assert (await said("REPL", language="python", code=code)).startswith("1\n")

        for name, arguments in (
            ("edit_file", {"path": "a.lock", **edit}),
            ("write_file", {"path": "a.lock", "content": "after"}),
            ("write_file", {"path": "new.lock", "content": "after"}),
            ("read_file", {"path": "secrets/key"}),
        ):
            assert "denied here by the rule capability:" in await said(name, **arguments)
        assert "secrets" not in await said("grep_search", pattern="before")
        await said("read_file", path="a.txt")
        assert (await call(server, "edit_file", path="a.txt", **edit)).error is None
    assert (root / "a.lock").read_text(encoding="utf-8") == "before\n"


def commands(part: str) -> list[str]:
    rows = table(Path(__file__).with_name("dangerous_commands.txt"), part, 1)
    return [row[0].replace("⏎", "\n") for row in rows]


@pytest.mark.requirement("DA-46")
async def test_catastrophic_commands_are_refused_and_their_neighbours_run_in_every_mode(
    tmp_path: Path,
) -> None:
    with collected() as case:
        for mode in Permission:
            (tmp_path / mode.flag).mkdir()
            # The check does not know the mode, so one mode gets the whole table.
            step = 1 if mode is Permission.WORKSPACE_WRITE else 10
            async with workshop(tmp_path / mode.flag, mode) as server:
                # Nothing starts in a folder that does not exist, whatever the check overlooks.
                for part, kind in (("refused", "denied"), ("harmless", "not_found")):
                    for command in commands(part)[::step]:
                        with case(f"{mode.flag}: {command}"):
                            result = await call(server, "bash", command=command, cwd="missing")
                            assert result.error == kind, result.text
                            assert ("safety check" in result.text) == (part == "refused")
                for command in commands("harmless")[::10] if step == 1 else ():
                    with case(f"{mode.flag}, run: {command}"):
                        assert (await call(server, "bash", command=command)).error is None


@pytest.mark.requirement("DA-46")
async def test_whatever_takes_a_shell_script_refuses_catastrophic_ones(tmp_path: Path) -> None:
    # A host that can run no command.
    server = dispatcher(machine(tmp_path))
    schedule = {"schedule": "@daily"}
    for script, refuses in (("cd /x && rm -rf /", True), ("reboot_later = 1\necho reboot", False)):
        for name, arguments in (
            *((name, {"command": script}) for name in ("bash", "PowerShell", "container_shell")),
            ("REPL", {"language": "shell", "code": script}),
            ("CronCreate", {"command": script, **schedule}),
            ("CallTool", {"name": "bash", "arguments": {"command": script}}),
        ):
            result = await server.call(name, arguments, Person())
            assert ("safety check" in result.text) is refuses, (name, result.text)
    for name, arguments in (
        ("REPL", {"language": "python", "code": "shutdown = 1\nreboot"}),
        ("CronCreate", {"prompt": "reboot", **schedule}),
    ):
        assert (await server.call(name, arguments, Person())).error == "unavailable"
    async with workshop(tmp_path, Permission.READ_ONLY) as served:
        for message, kind in (("rm -rf /\n", "denied"), ("ls\n", "not_found")):
            assert (await call(served, "SendMessage", to="bg_000000", message=message)).error == kind
