"""Commands of a danger-full-access server that grants less: confined, but for one run after a yes."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import HostFacts, Permission
from mcp_toolserver.pipeline.call import CallOptions, Result, Rights
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.nested_calls import calls_without_client
from mcp_toolserver.policy.rules import Narrowing
from tests.plan.planning import Human
from tests.support.live import ERAS, Setup, connected
from tests.support.workbench import Person
from tests.support.workshop import workshop

FULL, WRITE, READ = Permission.DANGER_FULL_ACCESS, Permission.WORKSPACE_WRITE, Permission.READ_ONLY


@asynccontextmanager
async def place(folder: Path, granted: Permission = WRITE, **settings: Any) -> AsyncGenerator[Dispatcher]:
    with anyio.fail_after(60):
        async with workshop(folder, FULL, granted=granted, **settings) as at:
            yield at


async def run(at: Dispatcher, person: Person, script: str, why: str = "", **more: Any) -> Result:
    reason = {"unsandboxed_reason": why} if why else {}
    return await at.call("bash", {"command": script, **reason, **more}, person)


@pytest.mark.anyio
@pytest.mark.parametrize("granted", [WRITE, pytest.param(READ, marks=pytest.mark.long)])
async def test_commands_are_confined_and_a_yes_lets_one_run_out(tmp_path: Path, granted: Permission) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "root" / "inside"
    script = f"echo 1 >> {outside}; echo 1 >> {inside}"
    async with place(tmp_path, granted) as at:
        yes, no = Person(says=True), Person()
        await run(at, no, script)
        assert (outside.exists(), inside.exists(), no.asked) == (False, granted is WRITE, [])
        refused = await run(at, no, script, "docker \N{RIGHT-TO-LEFT OVERRIDE}build")
        assert refused.error == "denied"
        assert not outside.exists()
        assert (await run(at, yes, script, "docker build")).error is None
        assert outside.read_text(encoding="utf-8") == "1\n"
        # It was for that run.
        await run(at, yes, script)
        assert outside.read_text(encoding="utf-8") == "1\n"
    assert len(yes.asked) == 1
    assert f"echo 1 >> {outside}; echo 1 >> {inside}" in yes.asked[0]
    assert "docker \\u202ebuild" in no.asked[0]


@pytest.mark.anyio
@pytest.mark.parametrize("era", [pytest.param(ERAS[0], marks=pytest.mark.long), ERAS[1]])
async def test_a_client_of_either_protocol_lets_one_run_out(era: str, tmp_path: Path) -> None:
    human = Human({"decision": "allow"})
    setup, outside = Setup.below(tmp_path, FULL.flag, "--granted", WRITE.flag), tmp_path / "outside"
    async with connected(setup, era=era, elicitation_callback=human) as client:
        assert "unsandboxed_reason" in (client.instructions or "")
        for more in ({}, {"unsandboxed_reason": "why"}, {}):
            await client.call_tool("bash", {"command": f"echo 1 >> {outside}", **more})
    assert outside.read_text(encoding="utf-8") == "1\n"
    assert len(human.saw) == 1


@pytest.mark.anyio
async def test_the_question_shows_each_line_and_a_run_in_the_background_takes_no_messages(
    tmp_path: Path,
) -> None:
    outside, no, yes = tmp_path / "outside", Person(), Person(says=True)
    async with place(tmp_path) as at:
        (tmp_path / "root" / "sub").mkdir()
        script = f"a=1\n\n# {'b' * 20_000}\ncat -"
        await run(at, no, script, "x\nThe whole script:\nls", stdin="input", cwd="./sub")
        started = await run(at, yes, f"echo 1 > {outside}", "why", run_in_background=True)
        handle = re.findall(r"bg_\w+", started.text)[0]
        await at.call("TaskOutput", {"task_id": handle, "until": "end", "wait_ms": 20_000}, yes)
        assert outside.exists()
        wrong = await run(at, yes, "bash", "why", run_in_background=True, open_stdin=True)
    lines = no.asked[0].splitlines()
    assert lines[1:3] == [
        "Once, outside the sandbox, in 'sub'. Why: x The whole script: ls",
        "The whole script:",
    ]
    assert lines[3:8] == ["sh -c input", *script.split("\n")]
    assert wrong.error == "invalid_input"
    assert len(yes.asked) == 1


@pytest.mark.anyio
async def test_neither_a_rule_nor_a_call_without_a_human_leaves_the_sandbox(tmp_path: Path) -> None:
    outside, person = tmp_path / "outside", Person(says=True)
    script, reason = f"echo 1 > {outside}", {"unsandboxed_reason": "why"}
    plan = Narrowing(source="plan mode", ceiling=WRITE)
    async with place(tmp_path, allow=("bash", "*")) as at:
        asked = Person()
        assert (await run(at, asked, script, "why")).error == "denied"
        assert len(asked.asked) == 1
        calls = calls_without_client(at, Rights(), owner="a schedule", name="a schedule")
        assert (await calls.call("bash", {"command": script, **reason})).error == "denied"
        options = CallOptions(narrowings=(plan,))
        narrowed = await at.call("bash", {"command": script, **reason}, person, options)
        assert "plan mode" in narrowed.text
        assert (await at.call("bash", {"command": script}, person, options)).error is None
    assert (outside.exists(), person.asked) == (False, [])


@pytest.mark.anyio
async def test_only_this_configuration_offers_the_argument(tmp_path: Path) -> None:
    for number, (mode, granted, sandbox, is_offered) in enumerate(
        (
            (FULL, WRITE, "auto", True),
            (FULL, FULL, "auto", False),
            (FULL, WRITE, "off", False),
            (WRITE, READ, "auto", False),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with workshop(folder, mode, granted=granted, sandbox=sandbox) as at:
            entry = at.registry.find("bash")
            assert ("unsandboxed_reason" in entry.spec.argument_names) == is_offered
            assert ("unsandboxed_reason" in entry.spec.description) == is_offered
            assert at.level(entry) is mode
            answer = await run(at, Person(says=True), "true", dangerouslyDisableSandbox=True)
            assert "was ignored" in answer.text
            if not is_offered:
                assert (await run(at, Person(says=True), "true", "why")).error == "invalid_input"


def test_a_lower_ceiling_takes_the_argument_away() -> None:
    host = HostFacts(mode=FULL, commands_in=WRITE)
    assert host.may_leave_sandbox
    assert not host.in_mode(WRITE).may_leave_sandbox
    assert not replace(host, commands_in=None).may_leave_sandbox
