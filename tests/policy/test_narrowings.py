"""Rights taken from calls: by narrowings of an owner, and from the calls that the server makes itself."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_toolserver.app.policy import lenient_rules
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import NobodyToAsk, Unavailable
from mcp_toolserver.pipeline import stored_rights
from mcp_toolserver.pipeline.call import Rights
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.narrowings import Narrowings
from mcp_toolserver.pipeline.nested_calls import NestedCalls, ServerCaller, calls_without_client
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.policy.rules import Narrowing
from mcp_toolserver.runtime.host_services import Available, ServiceRequest
from mcp_toolserver.tool_spec import Args, Output, Runtime
from tests.support.workbench import FILES, Person, dispatcher, machine, real_tools, required, tool

READ, WRITE, DANGER = Permission

READS = Narrowing(source="plan mode", ceiling=READ, advice="Leave it first.")


def server(folder: Path, *, ceiling: Permission = WRITE) -> Dispatcher:
    """The real file tools on `folder/root`; commands do not run."""
    host = replace(machine(folder), in_mode=lambda _: Available(permissions=FILES))
    entries = real_tools().entries
    made = dispatcher(host, *(entries[name] for name in ("read_file", "write_file", "ls")), ceiling=ceiling)
    return replace(made, rules=lenient_rules(made.registry))


def calls(at: Dispatcher, *narrowings: Narrowing, owner: str = "somebody") -> NestedCalls:
    return calls_without_client(at, Rights(narrowings=narrowings), owner=owner, name="a task")


async def test_what_is_in_force_for_an_owner_binds_every_call_of_it_and_of_nobody_else(
    tmp_path: Path,
) -> None:
    at = server(tmp_path)
    at.narrowings.put("local", "plan", READS)
    written = {"path": "a", "content": "x"}
    refused = await at.call("write_file", written, Person())
    assert refused.error == "denied"
    assert refused.text == (
        "write_file requires workspace-write permission; plan mode allows this call no more than read-only. "
        "Leave it first."
    )
    assert (await at.call("ls", {}, Person())).error is None
    assert (await at.call("write_file", written, Person(owner="another"))).error is None
    at.narrowings.remove("local", "plan")
    at.narrowings.remove("local", "plan")
    assert (await at.call("write_file", {**written, "path": "b"}, Person())).error is None


@pytest.mark.requirement("GR-63")
def test_the_workspace_refuses_to_write_too(tmp_path: Path) -> None:
    host = server(tmp_path).host
    lowered = host.lowered(READ, "plan mode").workspace
    assert lowered.is_read_only
    assert lowered.is_protected(str(tmp_path / "root" / "a"))
    kept = replace(host, in_mode=lambda _: Available(permissions={}, protects=lambda path: path)).lowered(
        WRITE, "x"
    )
    assert kept.workspace.is_protected("/a")
    assert not kept.workspace.is_read_only


async def test_only_what_a_rule_of_a_narrowing_allows_runs(tmp_path: Path) -> None:
    at = server(tmp_path)
    (tmp_path / "root" / "a.txt").write_text("x", encoding="utf-8")
    narrow = calls(at).limited(
        source="the skill 'x'", advice="End it.", tools=("Read(*.txt)", "NoSuchTool", "Read(", "ls")
    )
    assert (await narrow.call("read_file", {"path": "a.txt"})).error is None
    refused = await narrow.call("Read", {"file_path": "b.py"})
    assert refused.text == (
        "the skill 'x' allows only Read(*.txt), ls, and not this call of read_file. End it."
    )
    assert (await narrow.call("write_file", {"path": "a.txt", "content": ""})).error == "denied"
    assert {entry.spec.name for entry in narrow.entries()} == {"ls", "read_file"}
    nothing = narrow.limited(source="nothing", tools=())
    assert (await nothing.call("ls", {})).text == "nothing allows only no tool, and not this call of ls."
    assert nothing.entries() == ()
    many = calls(at).limited(source="many", tools=[f"Read({n})" for n in range(30)])
    assert ", Read(19), ..., and not" in (await many.call("ls", {})).text


async def test_calls_for_an_agent_have_no_more_rights_than_the_call_that_started_it(tmp_path: Path) -> None:
    at = server(tmp_path)
    first = calls(at, READS, owner="parent")
    agent = first.detached(owner="agent_1", name="agent 1")
    assert agent.rights.depth == 1
    assert (await agent.call("write_file", {"path": "a", "content": ""})).error == "denied"
    assert {entry.spec.name for entry in agent.entries()} == {"ls", "read_file"}
    free = calls(at, owner="parent").detached(owner="agent_2", name="agent 2")
    assert (await free.call("write_file", {"path": "a", "content": ""})).error is None
    at.narrowings.put("parent", "plan", READS)
    assert (await free.call("write_file", {"path": "a", "content": "y"})).error == "denied"
    deeper = free.detached(owner="agent_3", name="agent 3")
    assert deeper.rights.depth == 2
    assert (await deeper.call("write_file", {"path": "a", "content": "y"})).error == "denied"


async def test_nobody_is_asked_for_calls_without_a_client() -> None:
    caller = ServerCaller(name="a task", owner="x")
    assert not await caller.ask("May I?")
    await caller.tell("Hello")
    with pytest.raises(NobodyToAsk):
        await caller.elicit(())
    assert await caller.roots() == ()
    assert await replace(caller, folders=("/a",)).roots() == (("/a",),)
    assert await replace(caller, folders=()).roots() == ((),)


async def test_a_tool_gets_the_rights_of_its_call_in_a_form_that_can_be_stored(tmp_path: Path) -> None:
    at = server(tmp_path)
    taken: list[NestedCalls] = []

    def provide(request: ServiceRequest) -> object:
        taken.append(request.calls)
        return None

    async def nothing(_: Args, rt: Runtime) -> Output:
        return Output("")

    host = replace(machine(tmp_path, required(Capability.CLOCK)), providers={Capability.CLOCK: provide})
    at = dispatcher(host, tool(nothing, needs=(Capability.CLOCK,)), ceiling=WRITE)
    at = replace(at, rules=lenient_rules(at.registry))
    client = ClientRestrictions(named="x", ceiling=READ, network=True, areas=({"/a": True},))
    person = Person(works_in=(str(tmp_path / "root"),), confines_itself_to=client)
    at.narrowings.put("local", "skill", Narrowing(source="a skill", tools=at.rules(("probe",))))
    assert (await at.call("probe", {}, person)).error is None
    rights = taken[0].rights
    assert rights.ceiling is WRITE
    assert taken[0].parent_id
    stored = stored_rights.from_json(stored_rights.to_json(rights), at.rules)
    assert stored.folders == (str(tmp_path / "root"),)
    assert stored.confined_to == client
    assert [one.source for one in stored.narrowings] == [
        "the permission mode under which it was created",
        "a skill",
    ]
    assert [rule.text for rule in stored.narrowings[1].tools or ()] == ["probe"]
    assert stored.depth == 0
    assert stored_rights.from_json(stored_rights.to_json(Rights()), at.rules) == Rights()


@pytest.mark.parametrize(
    "damaged",
    ["", "{}", stored_rights.to_json(Rights(narrowings=(READS,))).replace("read-only", "everything")],
)
def test_damaged_rights_let_nothing_run(damaged: str) -> None:
    def no_rules(_: Sequence[str]) -> tuple[()]:
        return ()

    with pytest.raises(Unavailable, match="damaged"):
        stored_rights.from_json(damaged, no_rules)


def test_the_end_of_an_owner_gives_no_rights_back_to_what_it_started() -> None:
    known = Narrowings()
    known.put("parent", "plan", READS)
    known.adopt("child", "parent")
    known.adopt("grandchild", "child")
    known.adopt("parent", "grandchild")
    assert known.of("grandchild") == (READS,)
    known.forget("parent")
    known.forget("child")
    assert known.of("grandchild") == (READS,)
    known.forget("grandchild")
    assert known.of("parent") == known.of("child") == ()
    assert known.get("parent", "plan") is None


async def test_a_call_that_touches_the_exempt_file_alone_keeps_its_rights(tmp_path: Path) -> None:
    at = server(tmp_path)
    plan = tmp_path / "root" / "plan.md"
    at.narrowings.put("local", "plan", replace(READS, exempt=str(plan)))
    assert (await at.call("write_file", {"path": "plan.md", "content": "1."}, Person())).error is None
    assert (await at.call("write_file", {"path": "plan.txt", "content": "1."}, Person())).error == "denied"
    assert plan.read_text(encoding="utf-8") == "1."
