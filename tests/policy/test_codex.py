"""A client that says how it is sandboxed itself gets no more than that, nor more than the server gives."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult

from mcp_toolserver.app.serve import mcp_server
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.policy.client_restrictions import ClientRestrictions, stricter
from mcp_toolserver.protocol.codex_sandbox_state import KEY, UNREADABLE, restrictions
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer, sandbox_state
from mcp_toolserver.runtime.host_services import HostServices
from mcp_toolserver.text.file_names import lies_in
from tests.protocol.resource_clients import place
from tests.support.confinement import git
from tests.support.families import lines
from tests.support.live import ERAS, Setup, SharedServers, text
from tests.support.workbench import Person, dispatcher, machine, required

# One server for each mode.
pytestmark = pytest.mark.xdist_group("test_codex")
in_session = pytest.mark.asyncio(loop_scope="session")

WORKSPACE = "workspace-write"
FULL = {"sandboxPolicy": {"type": "danger-full-access"}, "sandboxCwd": "/w"}


def read(state: Any) -> ClientRestrictions:
    found = restrictions({"name": "x", "_meta": {KEY: state}})
    assert found is not None
    return found


def policy(kind: str, **fields: Any) -> dict[str, Any]:
    return {"sandboxPolicy": {"type": kind, **fields}, "sandboxCwd": "/w"}


def managed(files: dict[str, Any], network: str = "restricted") -> dict[str, Any]:
    found = {"type": "managed", "file_system": files, "network": network}
    return {"permissionProfile": found, "sandboxCwd": "file:///w%20x"}


def profile(*entries: tuple[Any, str], network: str = "restricted") -> dict[str, Any]:
    listed = [{"path": path, "access": access} for path, access in entries]
    return managed({"type": "restricted", "entries": listed}, network)


def special(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "special", "value": {"kind": kind, **fields}}


def at(path: str) -> dict[str, Any]:
    return {"type": "path", "path": path}


ROOT = (special("root"), "read")
PROJECT = (special("project_roots"), "write")


def test_a_client_that_says_nothing_is_not_narrowed() -> None:
    for params in (None, {}, {"_meta": None}, {"_meta": {"progressToken": 1}}):
        assert restrictions(params) is None


POLICIES: Mapping[str, tuple[Any, str]] = {
    "full": (FULL, "danger-full-access network"),
    "read-only": (policy("read-only"), "read-only"),
    "read-only-with-network": (
        policy("read-only", network_access=True, access={"type": "full-access"}),
        "read-only network",
    ),
    "partly-readable": (policy("read-only", access={"type": "restricted"}), "read-only hides"),
    "external": (policy("external-sandbox", network_access="enabled"), "read-only network"),
    "workspace-write": (policy("workspace-write"), "workspace-write"),
    "no-boolean": (policy("workspace-write", network_access="yes"), "workspace-write"),
    "off": ({"permissionProfile": {"type": "disabled"}}, "danger-full-access network"),
    "external-profile": (
        {"permissionProfile": {"type": "external", "network": "enabled"}},
        "read-only network",
    ),
    "all-files-no-network": (managed({"type": "unrestricted"}), "danger-full-access"),
    "profile-that-reads": (profile(ROOT), "read-only"),
    "profile-that-writes": (profile(ROOT, PROJECT, network="enabled"), "workspace-write network"),
    "profile-for-all": (profile((special("root"), "write")), "danger-full-access"),
    "places-nobody-knows": (
        profile(ROOT, (special("unheard_of"), "write"), ({"type": "glob_pattern"}, "write")),
        "read-only",
    ),
    "nothing-else-readable": (profile(PROJECT), "workspace-write hides"),
    "hides-by-pattern": (
        profile(ROOT, ({"type": "glob_pattern", "pattern": "**/.env"}, "deny")),
        "read-only hides",
    ),
    "hides-a-folder": (profile(ROOT, (at("/w/secret"), "none")), "read-only hides"),
    "the-stricter-of-two": ({**FULL, **profile(ROOT)}, "read-only"),
}
"""Each with the mode that it amounts to, whether it has a network, and whether it hides files."""


def test_a_policy_is_read() -> None:
    found = {name: read(state) for name, (state, _) in POLICIES.items()}
    shown = {
        name: one.ceiling.flag + " network" * one.network + " hides" * one.hides
        for name, one in found.items()
    }
    assert shown == {name: expected for name, (_, expected) in POLICIES.items()}


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"type": [value]}
    return value


NONSENSE: dict[str, Any] = {
    "null": None,
    "text": "danger-full-access",
    "list": [FULL],
    "empty": {},
    "only-a-folder": {"sandboxCwd": "/w"},
    "policy-as-text": {"sandboxPolicy": "danger-full-access"},
    "unknown-kind": policy("danger-full-access-and-more"),
    "kind-of-another-type": {"sandboxPolicy": {"type": ["danger-full-access"]}},
    "kind-in-other-letters": policy("Danger-Full-Access"),
    "nested": {"sandboxPolicy": nested(80)},
    "roots-as-text": policy("workspace-write", writable_roots="/"),
    "root-as-number": policy("workspace-write", writable_roots=[1]),
    "root-that-is-relative": policy("workspace-write", writable_roots=["w"]),
    "root-with-nul": policy("workspace-write", writable_roots=["/w\0/x"]),
    "too-many-roots": policy("workspace-write", writable_roots=["/w"] * 1000),
    "too-long-a-root": policy("workspace-write", writable_roots=["/w" * 5000]),
    "folder-elsewhere": {**FULL, "sandboxCwd": "file://elsewhere/w"},
    "folder-as-number": {**FULL, "sandboxCwd": 7},
    "profile-as-text": {**FULL, "permissionProfile": "workspace-write"},
    "profile-without-network": {"permissionProfile": {"type": "external"}},
    "profile-with-a-new-network": profile(ROOT, network="unrestricted"),
    "too-many-entries": profile(*[ROOT] * 1000),
    "entry-as-text": managed({"type": "restricted", "entries": ["/"]}, "enabled"),
    "new-kind-of-access": profile((at("/"), "own")),
    "new-kind-of-place": profile(({"type": "everywhere"}, "write")),
    "one-good-one-bad": {**FULL, "permissionProfile": {"type": "managed"}},
}


def test_what_cannot_be_read_counts_as_read_only() -> None:
    assert [name for name, state in NONSENSE.items() if read(state) != UNREADABLE] == []
    assert (UNREADABLE.ceiling, UNREADABLE.network) == (Permission.READ_ONLY, False)


WRITABLE: Mapping[str, tuple[Any, str, bool]] = {
    "in-the-folder": (policy("workspace-write"), "/w/a", True),
    "the-folder": (policy("workspace-write"), "/w", True),
    "sibling": (policy("workspace-write"), "/wx/a", False),
    "git": (policy("workspace-write"), "/w/.git/config", False),
    "not-git": (policy("workspace-write"), "/w/.gitignore", True),
    "tmp": (policy("workspace-write"), "/tmp/a", True),
    "no-tmp": (policy("workspace-write", exclude_slash_tmp=True), "/tmp/a", False),
    "no-boolean": (policy("workspace-write", exclude_slash_tmp="no"), "/tmp/a", False),
    "another-root": (policy("workspace-write", writable_roots=["/v"]), "/v/a", True),
    "project": (profile(ROOT, PROJECT), "/w x/a", True),
    "part": (profile(ROOT, (special("project_roots", subpath="out"), "write")), "/w x/a", False),
    "in-part": (profile(ROOT, (special("project_roots", subpath="out"), "write")), "/w x/out/a", True),
    "carved-out": (profile(ROOT, PROJECT, (at("/w x/.git"), "read")), "/w x/.git/a", False),
    "write-beats-read": (profile(ROOT, (at("/v"), "read"), (at("/v"), "write")), "/v/a", True),
    "deny-beats-write": (profile(ROOT, (at("/v"), "write"), (at("/v"), "deny")), "/v/a", False),
    "tmp-of-a-profile": (profile(ROOT, (special("slash_tmp"), "write")), "/tmp/a", True),
    "both-must": ({**policy("workspace-write"), **profile(ROOT, PROJECT)}, "/w/a", False),
}


def test_where_may_be_written() -> None:
    found = {name: read(state).writes(path) for name, (state, path, _) in WRITABLE.items()}
    assert found == {name: writable for name, (_, _, writable) in WRITABLE.items()}


def test_the_stricter_of_two_allows_nothing_that_one_does_not() -> None:
    wide, tight = read(FULL), read(policy("read-only"))
    assert stricter(wide, tight) == stricter(tight, wide) == tight
    assert lies_in("/", "/a")
    # Two folders that are one are as strict as the stricter.
    found = ClientRestrictions(named="x", areas=({"/a": True, "/b": False},)).resolved(lambda _: "/c")
    assert found.areas == ({"/c": False},)


def removed(host: HostServices) -> set[Capability]:
    """The capabilities that the client's own policy takes away."""
    return {need for need, why in host.unavailable.items() if why.kind == "client"}


async def test_a_policy_that_hides_files_leaves_only_what_reads_none(tmp_path: Path) -> None:
    host = machine(tmp_path, required(Capability.FS_READ, Capability.TODOS, Capability.CLOCK))
    found = host.under(ClientRestrictions(named="x", network=True, hides=True))
    assert removed(found) == {Capability.FS_READ}
    target = dispatcher(host)
    caller = Person(confines_itself_to=ClientRestrictions(named="x", network=True, hides=True))
    answer = await target.call("read_file", {"path": "a"}, caller)
    assert answer.error == "denied"
    assert "hides files" in answer.text
    assert (await target.call("calculator", {"expression": "6 * 7"}, caller)).text == "42"


async def test_what_the_sandbox_cannot_enforce_is_not_offered(tmp_path: Path) -> None:
    permissions = {
        Capability.FS_WRITE: Permission.WORKSPACE_WRITE,
        Capability.PROCESS: Permission.WORKSPACE_WRITE,
        Capability.SEARCH: Permission.READ_ONLY,
    }
    host = machine(tmp_path, permissions)
    root = str(tmp_path / "root")
    whole = ClientRestrictions(named="x", network=True, areas=({os.path.realpath(root): True},))
    part = ClientRestrictions(named="x", network=True, areas=({f"{root}/part": True},))
    hole = ClientRestrictions(named="x", network=True, areas=({root: True, f"{root}/kept": False},))
    assert removed(host.under(whole)) == set()
    assert removed(host.under(part)) == {Capability.PROCESS}
    assert removed(host.under(hole)) == {Capability.PROCESS}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Setup]:
    modes = ("read-only", WORKSPACE)
    made = {mode: Setup.below(tmp_path_factory.mktemp(mode), mode) for mode in modes}
    for setup in made.values():
        (setup.root / "part").mkdir()
    return made


BASH = ("bash", {"command": "echo ran; echo x > from-bash"})
WRITE = ("write_file", {"path": "a.txt", "content": "x"})
INNER = ("write_file", {"path": "part/a.txt", "content": "x"})
READ = ("ls", {})
FETCH = ("WebFetch", {"url": "http://127.0.0.1:1/"})
COMMIT = ("git_commit", {"all": True, "message": "m"})
THROUGH = ("CallTool", {"name": "write_file", "arguments": {"path": "b.txt", "content": "x"}})


def workspace(root: Path) -> dict[str, Any]:
    return {"sandboxPolicy": {"type": "workspace-write", "exclude_slash_tmp": True}, "sandboxCwd": str(root)}


def part(root: Path) -> dict[str, Any]:
    return workspace(root / "part")


def of(state: Any) -> Any:
    return lambda _: state


STRICTER: Mapping[str, tuple[str, Any, tuple[str, dict[str, Any]], str | None]] = {
    "the-same-mode": ("workspace-write", workspace, WRITE, None),
    "the-same-mode-commands": ("workspace-write", workspace, BASH, None),
    "inside-the-part": ("workspace-write", part, INNER, None),
    "outside-the-part": ("workspace-write", part, WRITE, "elsewhere only"),
    "commands-in-a-part": ("workspace-write", part, BASH, "the sandbox of commands"),
    "read-only": ("workspace-write", of(policy("read-only")), WRITE, "(read-only)"),
    "through-another": ("workspace-write", of(policy("read-only")), THROUGH, "(read-only)"),
    "read-only-commands": ("workspace-write", of(policy("read-only")), BASH, None),
    "read-only-profile": ("workspace-write", of({**policy("read-only"), **profile(ROOT)}), BASH, None),
    "read-only-reads": ("workspace-write", of(policy("read-only")), READ, None),
    "protected-git": ("workspace-write", workspace, COMMIT, "protects .git"),
    "no-network": ("workspace-write", of(policy("read-only")), FETCH, "no network"),
    "nonsense": ("workspace-write", of("nonsense"), WRITE, "cannot be read"),
    "nested": ("workspace-write", of(nested(80)), BASH, None),
    "ATTACK-full-on-read-only": ("read-only", of(FULL), WRITE, "--permission-mode"),
    "ATTACK-full-on-read-only-commands": ("read-only", of(FULL), BASH, None),
    "ATTACK-workspace-on-read-only": ("read-only", workspace, WRITE, "--permission-mode"),
}


@in_session
@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
async def test_the_stricter_of_server_and_client_counts(
    mode: str, places: dict[str, Setup], shared: SharedServers
) -> None:
    setup = places[mode]
    client = await shared.client(setup)
    for name, (_, state, call, denied) in STRICTER.items():
        if STRICTER[name][0] != mode:
            continue
        for path in setup.root.rglob("*.txt"):
            path.unlink()
        (setup.root / "from-bash").unlink(missing_ok=True)
        result: CallToolResult = await client.call_tool(*call, meta={KEY: state(setup.root)})
        said = text(result)
        assert bool(result.is_error) == (denied is not None), (name, said)
        assert (denied or "") in said, (name, said)
        assert ("ran" in said) == (call is BASH and denied is None), (name, said)
        changed = any(setup.root.rglob("*.txt")) or (setup.root / "from-bash").exists()
        writes = mode == "workspace-write" and state in (workspace, part)
        assert changed == (denied is None and writes), name
        line = lines(setup.home)[-1]
        assert line["mode"] == (mode if state in (workspace, part) else "read-only"), name
        assert (line["outcome"] == "denied") == (denied is not None), name


@in_session
async def test_commands_leave_a_repository_alone_where_the_client_protects_it(
    places: dict[str, Setup], shared: SharedServers
) -> None:
    setup = places["workspace-write"]
    git(setup.root, "init", "-q")
    client = await shared.client(setup)
    commit = "git -c user.name=A -c user.email=a@b commit -q --allow-empty -m x && echo committed"
    for kept in (True, False):
        meta: Any = {KEY: workspace(setup.root)} if kept else None
        for call in (("bash", {"command": commit}), ("REPL", {"language": "shell", "code": commit})):
            said = text(await client.call_tool(*call, meta=meta))
            assert ("committed" in said) == (not kept), said
    shutil.rmtree(setup.root / ".git")


async def test_a_server_that_is_to_ignore_it_asks_for_none_and_still_applies_one(tmp_path: Path) -> None:
    async with (
        place(tmp_path, permission_mode=Permission.WORKSPACE_WRITE, client_sandbox="ignore") as made,
        Client(mcp_server(made.app), mode="legacy") as client,
    ):
        assert client.server_capabilities is not None
        assert not client.server_capabilities.experimental
        assert (await client.call_tool(*WRITE, meta={KEY: policy("read-only")})).is_error
        assert not (await client.call_tool(*WRITE)).is_error


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_carries_it_from_the_protocol_to_the_dispatcher(era: str, tmp_path: Path) -> None:
    served = Handlers(dispatcher=dispatcher(machine(tmp_path)), ask_seconds=5)
    async with Client(ToolServer(served, "", [sandbox_state]), mode=era) as client:
        assert client.server_capabilities is not None
        assert client.server_capabilities.experimental == {KEY: {}}
        refused = await client.call_tool(*WRITE, meta={KEY: policy("read-only")})
        assert "(read-only)" in text(refused)
        assert not (await client.call_tool(*WRITE)).is_error
