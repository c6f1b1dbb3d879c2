"""Rules and the check of dangerous commands, as a whole server applies them."""

from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from tests.support.cases import collected, table
from tests.support.processes import call
from tests.support.workbench import Person, dispatcher, machine
from tests.support.workshop import workshop


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
                for message, kind in (("rm -rf /\n", "denied"), ("ls\n", "not_found")):
                    with case(f"{mode.flag}, message: {message}"):
                        sent = await call(server, "SendMessage", to="bg_000000", message=message)
                        assert sent.error == kind


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
