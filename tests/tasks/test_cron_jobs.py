"""What CronCreate, CronList and CronDelete answer; the jobs of schedules: what they may do, what is stored of
them; and `cron run` and `cron list`.
"""

import json
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.app.compose import Application, application_of
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.commands.cron import list_schedules
from mcp_toolserver.commands.doctor import facts
from mcp_toolserver.policy.rules import Narrowing
from mcp_toolserver.protocol.http.tokens import GrantFile, ServerLimits
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.board import StoredBoard
from mcp_toolserver.stores.cron import StoredRun, StoredSchedule, StoredSchedules
from mcp_toolserver.stores.database import Database
from tests.protocol.resource_clients import place, read
from tests.support.families import lines
from tests.support.live import Messages, Setup, connected
from tests.support.named import Names, file_of_tokens
from tests.support.processes import until
from tests.support.workbench import Person
from tests.tasks.schedules import (
    application,
    at_next,
    call,
    call_by,
    create,
    run_due,
    run_next,
    schedules_of,
)

READ_ONLY, WORKSPACE_WRITE, DANGER = Permission

WRITES = "echo written > file"


async def last_run(app: Application) -> StoredRun:
    (schedule,) = await schedules_of(app).all()
    return schedule.runs[0]


async def test_what_a_command_prints_and_how_it_ends_is_stored(tmp_path: Path) -> None:
    async with application(tmp_path) as app:
        handle = await create(app, command=f"{WRITES}; cat file; echo 'and more' >&2")
        await run_next(app)
        run = await last_run(app)
        assert (run.outcome, run.output) == ("succeeded", "written\nand more")
        assert (tmp_path / "root/file").read_text(encoding="utf-8") == "written\n"
        shown = await call(app, "CronList", cron_id=handle)
        assert "written\nand more" in shown.text
        assert '"last_outcome": "succeeded"' in json.dumps(shown.data)
        await call(app, "CronDelete", cron_id=handle)
        failing = await create(app, command="echo begin; seq 100000; echo end; exit 3")
        await run_next(app)
        run = await last_run(app)
        assert run.outcome == "failed"
        assert re.match(r"\[\d+ bytes before are not kept\]\n", run.output)
        assert run.output.endswith("100000\nend\nexit status 3."), run.output[-100:]
        assert "read_file" not in run.output
    # The audit log names the schedule of a call.
    entries = lines(tmp_path)
    sessions = [one["session"] for one in entries if one.get("tool") == "bash" and one["outcome"] == "output"]
    assert sessions == [f"schedule {one[:12]}" for one in (handle, failing)]
    assert handle not in str(entries)


async def test_a_schedule_waits_for_the_end_of_plan_mode_and_a_run_is_suspended(tmp_path: Path) -> None:
    asked = Person(answers=(("Approve",),))
    ticks = tmp_path / "root/ticks"
    async with application(tmp_path) as app:
        await create(app, command="until [ -e go ]; do echo x >> ticks; sleep 0.02; done; echo x > done")
        server = await at_next(app)
        await call_by(asked, app, "EnterPlanMode")
        await server.look()
        assert "waits" in (await call(app, "CronList")).text
        # By now it would be missed.
        server.clock.moment += 1_000
        await server.look()
        assert not ticks.exists()
        await call_by(asked, app, "ExitPlanMode", plan="a plan")
        await until(ticks.exists)
        await call_by(asked, app, "EnterPlanMode")
        (tmp_path / "root/go").touch()
        before = ticks.stat().st_size
        await call(app, "bash", command="sleep 0.5")
        assert ticks.stat().st_size == before
        await call_by(asked, app, "ExitPlanMode", plan="a plan")
        await run_due(server)
        assert (await last_run(app)).outcome == "succeeded"
        assert (tmp_path / "root/done").exists()


@pytest.mark.parametrize(
    ("created", "fires", "writes"),
    [
        pytest.param(READ_ONLY, DANGER, [], id="the mode was lower when it was created"),
        pytest.param(WORKSPACE_WRITE, DANGER, ["file"], id="the mode allows everything now"),
    ],
)
async def test_a_job_has_the_lower_of_the_two_modes(
    tmp_path: Path, created: Permission, fires: Permission, writes: list[str]
) -> None:
    async with application(tmp_path, created) as app:
        await create(app, command=f"{WRITES}; cat hidden; echo no > ../outside; ls ../secret")
    (tmp_path / "secret").touch()
    (tmp_path / "root/hidden").write_text("hush", encoding="utf-8")
    async with application(tmp_path, fires, deny=("Read(hidden)",)) as app:
        await run_next(app)
        run = await last_run(app)
        assert (run.outcome, "No such file" in run.output) == ("failed", True), run.output
        assert "hush" not in run.output
    assert {file.name for file in (tmp_path / "root").iterdir()} == {"hidden", *writes}
    assert not (tmp_path / "outside").exists()


async def test_what_this_server_cannot_run_waits_with_a_reason_and_is_not_run(tmp_path: Path) -> None:
    """It is neither failed nor missed: another server may run it."""
    async with application(tmp_path) as app:
        await create(app, command=WRITES, catch_up=True)
    lacking: dict[str, tuple[Permission, dict[str, tuple[str, ...]]]] = {
        "the permission mode workspace-write; this server has read-only": (READ_ONLY, {}),
        "may not use bash here": (WORKSPACE_WRITE, {"exclude_tools": ("bash",)}),
    }
    for why, (mode, settings) in lacking.items():
        async with application(tmp_path, mode, **settings) as app:
            (before,) = await schedules_of(app).all()
            said: list[str] = []
            server = await at_next(app, announce=said.append)
            for _ in range(2):
                await server.look()
            assert await schedules_of(app).all() == (before,)
            assert [why in one for one in said] == [True]
            set_next = "UPDATE cron_schedules SET next = ? RETURNING id"
            await app.shared.database.rows(set_next, (0,))
            assert why in (await call(app, "CronList")).text
            # `doctor` says so, too.
            own = Settings(root=(str(tmp_path / "root"),), state_dir=str(tmp_path / "state"))
            found = await anyio.to_thread.run_sync(facts._waiting, own)
            assert [*found.values()] == ["needs workspace-write"]
            await app.shared.database.rows(set_next, (before.next,))
    async with application(tmp_path) as app:
        await run_next(app)
        assert (await last_run(app)).outcome == "succeeded"


async def test_a_job_keeps_what_was_taken_from_the_call_that_created_it_and_damaged_rights_run_nothing(
    tmp_path: Path,
) -> None:
    async with application(tmp_path) as app:
        rule = Narrowing(source="plan mode", ceiling=READ_ONLY)
        app.dispatcher.narrowings.put(LOCAL, "plan", rule)
        await create(app, command=WRITES)
        app.dispatcher.narrowings.remove(LOCAL, "plan")
        await run_next(app)
        assert (await last_run(app)).outcome == "failed"
        await app.shared.database.run(
            lambda opened: opened.execute("UPDATE cron_schedules SET rights = '{}'") and None
        )
        await run_next(app)
        run = await last_run(app)
        assert (run.outcome, "rights are damaged" in run.output) == ("failed", True)
        assert list((tmp_path / "root").iterdir()) == []


async def test_a_job_reaches_no_folder_that_its_client_has_removed_and_is_left_to_others_without_any(
    tmp_path: Path,
) -> None:
    kept, removed, other = folders = [tmp_path / "root" / name for name in ("kept", "removed", "other")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "file").write_text(f"of {folder.name}", encoding="utf-8")
    async with application(tmp_path) as app:

        async def works_in(*places: Path) -> str:
            """Run what is due for a client that works in `places`; what the last run printed."""
            person = Person(works_in=[str(place) for place in places])
            await app.dispatcher.call("CronList", {}, person)
            await run_next(app)
            return (await last_run(app)).output

        both = Person(works_in=(str(kept), str(removed)))
        job = {"schedule": "@hourly", "time_zone": "UTC", "command": f"cat {kept}/file {removed}/file"}
        made = await app.dispatcher.call("CronCreate", job, both)
        delete = {"cron_id": made.text.partition(":")[0]}
        assert await works_in(kept, removed, other) == "of keptof removed"
        narrowed = await works_in(kept)
        assert ("of kept" in narrowed, "of removed" in narrowed) == (True, False)
        assert await works_in(other) == narrowed
        (schedule,) = await schedules_of(app).all()
        assert schedule.run_count == 2
        one = Person(works_in=(str(kept),))
        assert (await app.dispatcher.call("CronDelete", delete, one)).error == "denied"
        assert (await app.dispatcher.call("CronDelete", delete, both)).error is None


async def test_rules_and_tools_of_today_refuse_a_job_of_yesterday(tmp_path: Path) -> None:
    async with application(tmp_path) as app:
        await create(app, command=WRITES)
    for number, setting in enumerate(("deny", "ask"), 1):
        async with application(tmp_path, WORKSPACE_WRITE, **{setting: ("bash(echo *)",)}) as app:
            await run_next(app)
            (after,) = await schedules_of(app).all()
            assert (after.run_count, after.runs[0].outcome) == (number, "failed"), setting
    async with application(tmp_path, WORKSPACE_WRITE, exclude_tools=("bash",)) as app:
        result = await call(app, "CronCreate", schedule="@daily", time_zone="UTC", command="true")
        assert result.error == "unavailable"
    assert list((tmp_path / "root").iterdir()) == []


@dataclass(frozen=True, kw_only=True)
class Office:
    """A server with the named token of Ann, who has the folder `a`."""

    app: Application
    names: Names
    grants: GrantFile
    root: Path

    @property
    def own(self) -> Application:
        """Ann's part of the server."""
        return application_of(self.app, self.grants.grants()["ann"])


@pytest.fixture
async def office(tmp_path: Path) -> AsyncGenerator[Office]:
    root, home = tmp_path / "root", tmp_path / "home"
    for folder in (home, root, root / "a", root / "b"):
        folder.mkdir()
    (root / "b/secret").write_text("of Ben", encoding="utf-8")
    names = file_of_tokens(home, {"ann": {"roots": [str(root / "a")]}})
    async with application(tmp_path) as app:
        limits = ServerLimits(ceiling=WORKSPACE_WRITE, roots=app.roots)
        yield Office(app=app, names=names, grants=GrantFile.opened(str(names.file), limits), root=root)


async def test_the_schedule_of_a_name_runs_within_its_roots_and_its_mode_of_today(office: Office) -> None:
    await create(office.own, command=f"{WRITES}; cat {office.root}/b/secret")
    await run_next(office.app, office.grants)
    assert "of Ben" not in (await last_run(office.app)).output
    (office.root / "a/file").unlink()
    office.names.change("ann", **{"permission-mode": "read-only"})
    (schedule,) = await schedules_of(office.app).all()
    refused = await call(office.own, "CronDelete", cron_id=schedule.handle)
    assert (refused.error, "mode workspace-write" in refused.text) == ("denied", True)
    (before,) = await schedules_of(office.app).all()
    await (await at_next(office.app, office.grants)).look()
    assert await schedules_of(office.app).all() == (before,)


async def test_the_schedules_of_a_revoked_name_do_not_run(office: Office) -> None:
    """Nor do they run in a server without its tokens; a token that lasts longer stops nothing."""
    await create(office.own, command="touch began; sleep 100")
    (schedule,) = await schedules_of(office.app).all()
    await (await at_next(office.app)).look()
    assert await schedules_of(office.app).all() == (schedule,)
    server = await at_next(office.app, office.grants)
    await server.look()
    await until((office.root / "a/began").exists)
    office.names.change("ann", expires="2999-01-01T00:00:00+00:00")
    await server.look()
    assert (await last_run(office.app)).outcome == "running"
    office.names.change("ann")
    await server.look()
    assert (await last_run(office.app)).output == "It was stopped, because the rights of its owner changed."
    server.clock.moment += 3_600
    await server.look()
    (schedule,) = await schedules_of(office.app).all()
    assert schedule.run_count == 1


async def test_the_runs_of_a_name_end_with_the_server(office: Office) -> None:
    await create(office.own, command="touch began; sleep 100")
    server = await at_next(office.app, office.grants)
    async with anyio.create_task_group() as serving:
        serving.start_soon(server.serve)
        await until((office.root / "a/began").exists)
        serving.cancel_scope.cancel()
    assert (await last_run(office.app)).outcome == "interrupted"


async def test_deleting_a_schedule_stops_its_run(tmp_path: Path) -> None:
    alive = tmp_path / "root/alive"
    async with application(tmp_path) as app:
        handle = await create(app, command="while :; do date +%N > alive; sleep 0.05; done")
        await (await at_next(app)).look()
        await until(alive.exists)
        deleted = await call(app, "CronDelete", cron_id=handle)
        assert "its run is being stopped" in deleted.text
        with anyio.fail_after(20):
            before, now = None, ""
            while before != now:
                before = now
                await anyio.sleep(0.5)
                now = alive.read_text(encoding="utf-8")


async def test_schedules_are_those_of_a_name_or_of_the_user(office: Office) -> None:
    own = office.own
    handle = await create(own, command="true")
    assert handle not in (await call(office.app, "CronList")).text
    assert (await call(office.app, "CronDelete", cron_id=handle)).error == "not_found"
    assert handle in (await call(own, "CronList")).text
    assert (await call(own, "CronDelete", cron_id=handle)).error is None


SECONDS = 60.0


def stored(setup: Setup) -> Database:
    return Database(str(setup.home / "state"), [str(setup.root)])


async def only(setup: Setup) -> StoredSchedule:
    database = stored(setup)
    (found,) = await StoredSchedules(StoredBoard(database)).all()
    database.close()
    return found


async def ended(setup: Setup) -> StoredRun:
    """The first run, once it has ended."""
    with anyio.fail_after(SECONDS):
        while not (runs := (await only(setup)).runs) or runs[0].outcome in ("waiting", "running"):
            await anyio.sleep(0.1)
    return runs[0]


def cron(setup: Setup, *words: str) -> Sequence[str]:
    """The command line of `cron`."""
    program = setup.command.index("mcp_toolserver") + 1
    return [*setup.command[:program], "cron", *words, *setup.command[program:]]


@pytest.fixture
async def setup(tmp_path: Path) -> Setup:
    """How to start a server on a workspace with a schedule that missed an hour."""
    made = Setup(root=tmp_path / "root", home=tmp_path, mode="workspace-write")
    async with application(tmp_path) as app:
        await create(app, command="echo written > file; echo done", catch_up=True)
        await app.shared.database.run(
            lambda opened: opened.execute("UPDATE cron_schedules SET next = next - 3600") and None
        )
    return made


@pytest.mark.requirement("SW-69")
async def test_schedules_run_and_are_listed_without_a_client(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = (await only(setup)).handle
    server = subprocess.Popen(
        cron(setup, "run"), env=setup.environment, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        assert (await ended(setup)).outcome == "succeeded"
        server.send_signal(signal.SIGINT)
        _, log = server.communicate(timeout=SECONDS)
    finally:
        server.kill()
    assert server.returncode == 128 + signal.SIGINT
    assert log.splitlines() == [
        f"mcp-toolserver cron: runs the schedules of {setup.root}; Ctrl-C ends it",
        f"mcp-toolserver cron: {handle} starts",
        f"mcp-toolserver cron: {handle} succeeded",
    ]
    assert (setup.root / "file").exists()
    with anyio.fail_after(SECONDS):
        shown = (await anyio.run_process(cron(setup, "list"), env=setup.environment)).stdout.decode()
    assert handle in shown
    assert "succeeded after" in shown
    assert shown.endswith("  owner: local\n\n")

    async def status() -> int:
        async with place(setup.home) as made:
            return await anyio.to_thread.run_sync(partial(list_schedules, made.app, as_json=True))

    assert await status() == 0
    (schedule,) = json.loads(capsys.readouterr().out)
    assert (schedule["handle"], schedule["owner"]) == (handle, "local")
    assert schedule["runs"][0]["output"] == "done"
    Path(stored(setup).path).write_bytes(b"no database")
    assert await status() == 1
    assert "is damaged" in capsys.readouterr().err


async def test_a_client_hears_of_the_end_of_its_work_and_reads_what_became_of_it(setup: Setup) -> None:
    heard = Messages()
    async with connected(setup, era="legacy", logging_callback=heard.take) as client:
        await client.call_tool("TaskCreate", {"command": "exit 3", "subject": "check"})
        said = [re.sub("_[0-9a-f]+", "", await heard.message()) for _ in range(2)]
        assert sorted(said) == [
            "cron (echo written > file; echo done) succeeded",
            "task (check) failed: exit status 3.",
        ]
        (schedule,) = json.loads(await read(client, "toolserver://schedules"))
        assert [(run["outcome"], run["output"]) for run in schedule["runs"]] == [("succeeded", "done")]


HANDLE = re.compile(r"cron_[0-9a-f]{32}")


@pytest.fixture
async def app(tmp_path: Path) -> AsyncGenerator[Application]:
    async with application(tmp_path) as made:
        yield made


@pytest.mark.requirement("SW-69")
@pytest.mark.parametrize("mode", list(Permission), ids=lambda mode: mode.flag)
async def test_a_schedule_is_created_listed_and_deleted_in_every_mode(
    tmp_path: Path, mode: Permission
) -> None:
    async with application(tmp_path, mode) as app:
        arguments = {"schedule": "@daily", "command": "make test", "description": "tests"}
        created: Any = await call(app, "CronCreate", time_zone="Asia/Kathmandu", **arguments)
        handle = created.data["cron_id"]
        assert HANDLE.fullmatch(str(handle))
        following = datetime.fromisoformat(str(created.data["next_run_at"]))
        assert (following.hour, following.minute, following.utcoffset()) == (0, 0, timedelta(minutes=345))
        assert timedelta() < following - datetime.now(UTC) <= timedelta(days=1)
        shown: Any = await call(app, "CronList")
        assert shown.data["count"] == 1
        assert f"{handle}: tests\n  0 0 * * * in Asia/Kathmandu, next " in shown.text
        deleted = await call(app, "CronDelete", cron_id=handle)
        assert deleted.text == f"{handle} (0 0 * * *) is deleted."
        assert (await call(app, "CronDelete", cron_id=handle)).error == "not_found"
        assert (await call(app, "CronList", cron_id=handle)).error == "not_found"
        assert (await call(app, "CronList")).text == "There are no schedules."
        # The zone is that of the machine, and arguments of other servers are understood.
        created = await call(app, "CronCreate", name="nightly", schedule="@daily", command="true")
        following = datetime.fromisoformat(str(created.data["next_run_at"]))
        assert following.utcoffset() == following.astimezone().utcoffset()
        assert "nightly" in (await call(app, "CronList")).text
        assert (await call(app, "CronDelete", id=created.data["cron_id"])).error is None


REFUSED = (
    ("either a prompt or a command", {"schedule": "@daily"}),
    ("either a prompt or a command", {"schedule": "@daily", "command": " "}),
    ("either a prompt or a command", {"schedule": "@daily", "command": "a", "prompt": "b"}),
    ("five fields", {"schedule": "daily", "command": "a"}),
    ("day-of-month", {"schedule": "0 0 31 2 *", "command": "a"}),
    ("Europe/Paris", {"schedule": "@daily", "command": "a", "time_zone": "Europe/Pariss"}),
)


async def test_what_cannot_run_is_refused_or_stays_listed(app: Application) -> None:
    for says, arguments in REFUSED:
        result = await call(app, "CronCreate", **arguments)
        assert (result.error, says in result.text) == ("invalid_input", True), result.text
    # Nor is a prompt taken where there is no model.
    result = await call(app, "CronCreate", schedule="@daily", prompt="Look after the tests.", time_zone="UTC")
    assert result.error == "unavailable"
    assert "Give a command" in result.text
    handle = await create(app, command="true")
    await app.shared.database.run(
        lambda opened: opened.execute("UPDATE cron_schedules SET zone = 'Atlantis/Port', next = 0") and None
    )
    assert "in Atlantis/Port, next 1970-01-01T00:00+00:00" in (await call(app, "CronList")).text
    assert (await call(app, "CronDelete", cron_id=handle)).error is None


async def test_missed_times_are_reported_also_before_a_server_looks(tmp_path: Path) -> None:
    async with application(tmp_path) as app:
        handle = await create(app, command="true")
        caught_up = await create(app, command="true", catch_up=True)
        await app.shared.database.run(
            lambda opened: opened.execute("UPDATE cron_schedules SET next = next - 10 * 3600") and None
        )
        stored = {one.handle: one for one in await schedules_of(app).all()}
        shown: Any = await call(app, "CronList")
        missed = {one["cron_id"]: one["missed"] for one in shown.data["crons"]}
        # At the first minute of an hour, the last time is still to be run.
        assert missed[handle] in (9, 10)
        assert missed[caught_up] == 9
        assert {one.missed for one in stored.values()} == {0}
        assert "no server ran that could run it" in shown.text
