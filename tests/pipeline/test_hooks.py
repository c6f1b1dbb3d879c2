"""Hooks deny calls, have the user asked and change arguments, and never turn a refusal into a run."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import JsonValue

from mcp_toolserver.app.policy import build_hooks
from mcp_toolserver.capabilities.call_scope import HookEvent
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.pipeline.call import Rights
from mcp_toolserver.pipeline.hooks import Hook
from mcp_toolserver.pipeline.nested_calls import calls_without_client
from mcp_toolserver.pipeline.validation import as_sent, checked
from mcp_toolserver.settings import HookSetting, HookSettings, Settings
from mcp_toolserver.tool import Field, WorkspacePath
from tests.support.cases import collected, table
from tests.support.extent import rounds
from tests.support.families import Family, lines
from tests.support.live import Setup, connected, text
from tests.support.processes import broker, call, until
from tests.support.workbench import Args, Output, Person, Runtime, dispatcher, machine, real_tools, tool
from tests.support.workshop import program, workshop


def setting(command: str, *matcher: str, event: HookEvent = "PreToolUse", timeout: float = 60) -> HookSetting:
    return HookSetting(event=event, command=(command,), matcher=matcher or ("*",), timeout=timeout)


def answer(**specific: Any) -> str:
    return f"printf %s '{json.dumps({'hookSpecificOutput': specific})}'"


WAITS = "exec sleep 1000"

SCRIPTS = {
    # The script, the kind of error, and what the answer says.
    "deny": (answer(permissionDecision="deny", permissionDecisionReason="too bold"), "denied", "too bold"),
    "block": ("""echo '{"decision": "block", "reason": "as before"}'""", "denied", "as before"),
    "stop": ("""echo '{"continue": false, "stopReason": "enough"}'""", "denied", "enough"),
    "two": ("echo because >&2; exit 2", "denied", "because"),
    "one": ("exit 1", "denied", "failed"),
    "crash": ("kill -SEGV $$", "denied", "failed"),
    "garbage": ("""echo '{"decision": '""", "denied", "failed"),
    "prose": ("echo fine", "denied", "failed"),
    "list": ("echo '[]'", "denied", "failed"),
    "misspelt": (answer(permisionDecision="deny"), "denied", "failed"),
    "unknown": (answer(permissionDecision="defer"), "denied", "failed"),
    "event": (answer(hookEventName="PostToolUse"), "denied", "failed"),
    "flood": ("head -c 10000000 /dev/zero | tr '\\0' ' '", "denied", "failed"),
    "forever": (WAITS, "denied", "failed"),
    "held": ('touch "$PWD/planted" "{root}/planted" || exit 2', "denied", "Read-only file system"),
    "asks": (answer(permissionDecision="ask", permissionDecisionReason="odd"), "denied", "odd"),
    "secret": (answer(updatedInput={"path": "secret.txt", "content": "x"}), "denied", "by the rule"),
    "outside": (answer(updatedInput={"path": "../x", "content": "x"}), "denied", "outside the workspace"),
    "invalid": (answer(updatedInput={"path": "a", "nope": "x"}), "invalid_input", "nope"),
    "quiet": ("true", None, "Created quiet.txt"),
    "empty": ("echo '{}'", None, "Created"),
    "allow": (answer(permissionDecision="allow", additionalContext="noted"), None, "[noted]"),
    "reads": ("""grep -q '"tool_input":{"path":"reads.txt","content":"old"}' || exit 2""", None, "Created"),
    "changed": (answer(updatedInput={"file_path": "changed.txt", "content": "new"}), None, "changed.txt"),
}  # fmt: skip


@pytest.mark.requirement("GR-61", "SW-51")
async def test_commands_decide_on_calls_and_whatever_fails_denies(tmp_path: Path) -> None:
    hooks = [
        setting(
            program(tmp_path / "hooks", name, script.replace("{root}", f"{tmp_path}/root")),
            f"Write({name}.txt)",
            timeout=0.5 if script == WAITS else 60,
        )
        for name, (script, _, _) in SCRIPTS.items()
    ]
    hooks += [
        setting(program(tmp_path / "hooks", f"turn {one}", answer(updatedInput=changed)), "Write(turn*)")
        for one in ("a", "b")
        for changed in [{"path": "turn.txt", "content": one}]
    ]
    rules = {"deny": ("Write(secret*)",), "ask": ("Write(allow.txt)",), "hooks": HookSettings(tuple(hooks))}
    async with workshop(tmp_path, Permission.WORKSPACE_WRITE, **rules) as server:
        with collected() as case:
            for name, (_, error, says) in SCRIPTS.items():
                with case(name):
                    person = Person(says=name == "allow")
                    result = await call(server, "write_file", person, path=f"{name}.txt", content="old")
                    assert (result.error, says in result.text) == (error, True), result.text
                    # An allowing hook spares no question.
                    assert len(person.asked) == (name in ("asks", "allow")), person.asked
            with case("two hooks that change what the other did"):
                result = await call(server, "write_file", path="turn.txt", content="old")
                assert (result.error, "in turn" in result.text) == ("denied", True), result.text
            with case("what nobody granted"):
                result = await call(server, "write_file", Person(says=True), path="asks.txt", content="old")
                assert result.error is None, result.text
            with case("forwarded and nested calls"):
                sent: dict[str, JsonValue] = {"path": "deny.txt", "content": "old"}
                result = await server.call("CallTool", {"name": "Write", "arguments": sent}, Person())
                assert "too bold" in result.text
                nested = calls_without_client(server, Rights(), owner="a schedule", name="a schedule")
                assert "too bold" in (await nested.call("write_file", sent)).text
    found = {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "root").iterdir()}
    runs = {name for name, (_, error, _) in SCRIPTS.items() if error is None}
    assert found == dict.fromkeys(runs | {"asks"}, "old") | {"changed": "new"}


async def test_hooks_of_the_end_add_notes_and_change_no_outcome(tmp_path: Path) -> None:
    events: dict[HookEvent, str] = {
        "PostToolUse": """grep -q '"tool_response":"1.tone' && echo 'look again' >&2; exit 2""",
        "PostToolUseFailure": answer(additionalContext="it is in the cellar", permissionDecision="allow"),
    }
    hooks = [
        setting(program(tmp_path / "hooks", event, script), "Read", event=event)
        for event, script in events.items()
    ]
    hooks += [
        setting(program(tmp_path / "hooks", f"no {one}", "exit 1"), "Read", event=one) for one in events
    ]
    async with workshop(
        tmp_path, Permission.READ_ONLY, hooks=HookSettings(tuple(hooks)), deny=("Read(b*)",)
    ) as server:
        (tmp_path / "root/a").write_text("one\n", encoding="utf-8")
        result = await call(server, "read_file", path="a")
        assert result.error is None
        assert result.text.splitlines() == [
            "1\tone", "[hook 1: look again]", "[hook 3: it failed; the result is as it was]"
        ]  # fmt: skip
        result = await call(server, "read_file", path="c")
        assert result.error == "not_found"
        assert result.text.endswith("\n[it is in the cellar]\n[hook 4: it failed; the result is as it was]")
        # What is refused has not failed.
        assert "[" not in (await call(server, "read_file", path="b")).text


async def test_a_hook_sees_no_program_of_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"{tmp_path}/root/bin"
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", f"{tmp_path}/root")
    program(Path(place), "guard", "exit 0")
    script = program(tmp_path / "hooks", "hook", 'guard || { echo "$HOME $PWD" >&2; exit 2; }')
    for mode in (Permission.READ_ONLY, Permission.DANGER_FULL_ACCESS):
        async with workshop(tmp_path, mode, hooks=HookSettings((setting(script),))) as server:
            result = await call(server, "ls")
            assert (result.error, result.text.endswith("\n/ /")) == ("denied", True), result.text


async def test_a_cancelled_call_kills_its_hook(tmp_path: Path) -> None:
    family = Family()
    hook = setting(program(tmp_path / "hooks", "hook", family.command))
    async with workshop(tmp_path, Permission.READ_ONLY, hooks=HookSettings((hook,))) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.call, "ls", {}, Person())
            await until(lambda: family.runs)
            tasks.cancel_scope.cancel()
        await until(lambda: family.is_gone)


class Somewhere(Args):
    path: WorkspacePath = Field(description="A path.")


ANSWERS: tuple[dict[str, JsonValue], ...] = (
    {},
    *({"permissionDecision": decision} for decision in ("allow", "ask", "deny")),
    *({"permissionDecision": "allow", "updatedInput": {"path": path}} for path in "abc"),
    {"updatedInput": {"path": "../b"}},
    {"updatedInput": {}},
)


@pytest.mark.rounds
@pytest.mark.requirement("GR-62")
async def test_no_hook_turns_a_refusal_into_a_run(tmp_path: Path) -> None:
    ran: list[str] = []

    async def run(args: Somewhere, _: Runtime) -> Output:
        ran.append(args.path)
        return Output("ran")

    def hook(specific: dict[str, JsonValue]) -> Hook:
        async def function(_: object) -> JsonValue:
            return {"hookSpecificOutput": specific}

        return Hook(name="a hook", event="PreToolUse", run=function, timeout=5)

    level = Permission.WORKSPACE_WRITE
    entry = tool(run, Somewhere, permission=level, subjects=lambda args: (args.path,))
    policies: tuple[dict[str, Any], ...] = (
        *({"deny": [f"probe({path})"]} for path in "ab"),
        *({"ask": [f"probe({path})"]} for path in "ab"),
        {"granted": Permission.READ_ONLY, "allow": ["probe(b)"]},
        {"ceiling": Permission.READ_ONLY},
    )
    count = 0
    for policy, says in product(policies, (False, True)):
        bare = dispatcher(machine(tmp_path), entry, **policy)
        alone = {}
        for path in "abc":
            person = Person(says=says)
            alone[path] = await bare.call("probe", {"path": path}, person), bool(person.asked)
        # Five has no divisor in common with what the lists have, so each entry of each comes in turn.
        for answers, path in [*product(product(ANSWERS, repeat=2), "abc")][:: rounds(5, 1)]:
            server = replace(bare, hooks=tuple(map(hook, answers)))
            ran.clear()
            person = Person(says=says)
            result = await server.call("probe", {"path": path}, person)
            count += 1
            expected, is_asked = alone[path]
            refused = expected.error is not None and not is_asked
            assert bool(ran) == (result.error is None), (policy, answers, path)
            assert not (ran and refused), (policy, answers, path)
            # What ran may run without hooks too, and was asked about where that would be.
            assert all(alone[one][0].error is None for one in ran), (policy, answers, path)
            assert not ran or bool(person.asked) >= alone[ran[0]][1], (policy, answers, path)
    assert count > rounds(500, 2_000)


async def test_a_trial_asks_nobody_and_runs_no_hook(tmp_path: Path) -> None:
    seen, person = list[object](), Person(says=True)

    async def see(given: object) -> None:
        seen.append(given)

    hook = Hook(name="a hook", event="PreToolUse", run=see, timeout=5)
    server = replace(dispatcher(machine(tmp_path), ask=["mkdir"]), hooks=(hook,))
    trial, error = await server.decide("mkdir", {"path": "x"}, person)
    assert (trial.decision and trial.decision.action, error) == ("ask", "")
    assert (seen, person.asked, server.clients, list((tmp_path / "root").iterdir())) == ([], [], {}, [])
    assert (await server.call("mkdir", {"path": "x"}, person)).error is None
    assert (len(seen), len(person.asked), [*server.clients]) == (1, 1, [person.owner])


def test_the_arguments_that_hooks_see_make_the_same_call_again() -> None:
    registry, folder = real_tools(), Path(__file__).parent
    calls = [(row[0], json.loads(row[2])) for row in table(folder / "arguments.txt", "taken", 3)]
    calls.append(("apply_patch", {"patch": "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"}))
    calls.append(
        ("AskUserQuestion", {"questions": [{"question": "Q", "options": [{"label": "a"}, {"label": "b"}]}]})
    )
    count = 0
    for name, sent in calls:
        entry = registry.find(name)
        whole = {"path": "a", "command": "a", "pattern": "a", "content": "a", **sent}
        sent = {key: value for key, value in whole.items() if key in entry.spec.argument_names}
        try:
            args = checked(entry, sent)
        except Exception:  # noqa: BLE001  # the table has parts of calls
            continue
        count += 1
        assert checked(entry, as_sent(entry.spec, args, sent)) == args, name
    assert count > 20


def test_a_wrong_or_reachable_hook_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    good = {"event": "PreToolUse", "command": ["/bin/true"]}
    config, inside = tmp_path / "config.toml", f"{tmp_path}/root/hook"
    (tmp_path / "link").symlink_to(inside)
    wrong: tuple[tuple[dict[str, Any], tuple[str, ...], str], ...] = (
        ({"event": "PreTool"}, (), "PreToolUse, PostToolUse"),
        ({"command": "/bin/true"}, (), "a list"),
        ({"command": ["true"]}, (), "absolute path"),
        ({"command": []}, (), "a list"),
        ({"timeout": 0}, (), "600 s"),
        ({"nope": 1}, (), "each"),
        ({"command": [inside]}, (), "lies inside the root"),
        ({"command": ["/bin/sh", inside]}, (), "lies inside the root"),
        ({"command": ["/bin/sh", f"--rcfile={inside}"]}, (), "lies inside the root"),
        ({"command": ["/bin/sh", inside[1:]]}, (), "lies inside the root"),
        ({"command": [f"{tmp_path}/link"]}, (), "lies inside the root"),
        ({}, ("wrap", "--", "x"), "wrap runs no hooks"),
        ({}, ("wrap", "--dry-run", "--", "x"), "serve and call"),
        ({}, ("cron", "run", "--dry-run"), "serve and call"),
    )
    with collected() as case:
        for changes, argv, says in wrong:
            pairs = [f"{key} = {json.dumps(value)}" for key, value in {**good, **changes}.items()]
            config.write_text("\n".join(("[[hooks]]", *pairs)), encoding="utf-8")
            flags = ("--root", f"{tmp_path}/root", "--config", str(config))
            with case(f"{changes} {argv}"), pytest.raises(SettingsError, match=says):
                load([*argv[:1], *flags, *argv[1:]], {})


def test_a_hook_that_cannot_run_or_names_no_tool_stops_the_start(tmp_path: Path) -> None:
    chosen = Settings(root=(str(tmp_path),), permission_mode=Permission.DANGER_FULL_ACCESS)
    with broker() as started:
        for hook, here, says in (
            (setting("/bin/true", "nope"), started, "nope"),
            (setting("/nonexistent"), started, "not an executable"),
            (setting("/bin/true"), None, "cannot be confined"),
        ):
            with pytest.raises(SettingsError, match=says):
                build_hooks(replace(chosen, hooks=HookSettings((hook,))), real_tools(), here)


async def test_a_server_runs_the_hooks_of_its_config_file_and_nothing_in_a_dry_run(tmp_path: Path) -> None:
    script = program(tmp_path / "hooks", "hook", answer(updatedInput={"path": "b", "content": "changed"}))
    config = tmp_path / "config.toml"
    hook = f'[[hooks]]\nevent = "PreToolUse"\nmatcher = "Write"\ncommand = ["{script}"]\n'
    config.write_text(hook, encoding="utf-8")
    setup = Setup.below(tmp_path, "workspace-write", "--config", str(config), "--dry-run")
    write: tuple[str, dict[str, JsonValue]] = ("write_file", {"path": "a", "content": "x"})
    hooks = load(["--config", str(config), "--root", str(setup.root)], {}).settings.hooks
    async with workshop(tmp_path, Permission.WORKSPACE_WRITE, hooks=hooks) as server:
        result = await server.call(*write, Person())
        assert (result.error, result.text) == (None, "Created b (7 bytes).")
    async with connected(setup) as client:
        for name, arguments in (write, ("read_file", {"path": "b"}), ("bash", {"command": "touch c"})):
            result = await client.call_tool(name, arguments)
            assert (result.is_error, "Nothing was done" in text(result)) == (True, True), text(result)
        refused = text(await client.call_tool("write_file", {"path": "../c", "content": "x"}))
        assert "outside the workspace" in refused
        assert "hook 1" in text(await client.call_tool(*write))
    assert [path.name for path in setup.root.iterdir()] == ["b"]
    verdicts = [line["verdict"] for line in lines(setup.home)]
    assert verdicts == [*["dry-run"] * 3, "refused-path", "dry-run"]
