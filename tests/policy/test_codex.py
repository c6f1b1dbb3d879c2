"""A client that says how it is sandboxed itself gets no more than that, nor more than the server gives."""

import os
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.policy.client_restrictions import ClientRestrictions, stricter
from mcp_toolserver.protocol.build_server import build
from mcp_toolserver.protocol.codex_sandbox_state import KEY, UNREADABLE, SandboxState, restrictions
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.runtime.host_services import HostServices
from mcp_toolserver.text.path_syntax import lies_in
from tests.support.families import lines
from tests.support.live import ERAS, Setup, SharedServers, text
from tests.support.workbench import Person, dispatcher, machine, required

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # One server for each mode.
    pytest.mark.xdist_group("test_codex"),
]

FULL_ACCESS, WORKSPACE = "danger-full-access", "workspace-write"
FULL = {"sandboxPolicy": {"type": "danger-full-access"}, "sandboxCwd": "/w"}


def read(state: Any) -> ClientRestrictions:
    found = restrictions({"name": "x", "_meta": {KEY: state}})
    assert found is not None
    return found


def policy(kind: str, **fields: Any) -> dict[str, Any]:
    return {"sandboxPolicy": {"type": kind, **fields}, "sandboxCwd": "/w"}


def profile(*entries: tuple[Any, str], network: str = "restricted") -> dict[str, Any]:
    listed = [{"path": path, "access": access} for path, access in entries]
    system = {"type": "restricted", "entries": listed}
    return {
        "permissionProfile": {"type": "managed", "file_system": system, "network": network},
        "sandboxCwd": "file:///w%20x",
    }


def special(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "special", "value": {"kind": kind, **fields}}


def at(path: str) -> dict[str, Any]:
    return {"type": "path", "path": path}


ROOT = (special("root"), "read")
PROJECT = (special("project_roots"), "write")

# --- what is read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [None, {}, {"_meta": None}, {"_meta": {"progressToken": 1}}])
async def test_a_client_that_says_nothing_is_not_narrowed(params: Any) -> None:
    assert restrictions(params) is None


@pytest.mark.parametrize(
    ("state", "ceiling", "network", "hides"),
    [
        pytest.param(FULL, "danger-full-access", True, False, id="full"),
        pytest.param(policy("read-only"), "read-only", False, False, id="read-only"),
        pytest.param(
            policy("read-only", network_access=True, access={"type": "full-access"}),
            "read-only", True, False, id="read-only-with-network",
        ),
        pytest.param(
            policy("read-only", access={"type": "restricted"}), "read-only", False, True, id="partly-readable"
        ),
        pytest.param(
            policy("external-sandbox", network_access="enabled"), "read-only", True, False, id="external"
        ),
        pytest.param(policy("workspace-write"), "workspace-write", False, False, id="workspace-write"),
        pytest.param(
            policy("workspace-write", network_access="yes"), "workspace-write", False, False, id="no-boolean"
        ),
        pytest.param({"permissionProfile": {"type": "disabled"}}, FULL_ACCESS, True, False, id="off"),
        pytest.param(
            {"permissionProfile": {"type": "external", "network": "enabled"}},
            "read-only", True, False, id="external-profile",
        ),
        pytest.param(
            {
                "permissionProfile": {
                    "type": "managed", "file_system": {"type": "unrestricted"}, "network": "restricted",
                }
            },
            "danger-full-access", False, False, id="all-files-no-network",
        ),
        pytest.param(profile(ROOT), "read-only", False, False, id="profile-that-reads"),
        pytest.param(
            profile(ROOT, PROJECT, network="enabled"), WORKSPACE, True, False, id="profile-that-writes"
        ),
        pytest.param(
            profile((special("root"), "write")), "danger-full-access", False, False, id="profile-for-all"
        ),
        pytest.param(
            profile(ROOT, (special("unheard_of"), "write"), ({"type": "glob_pattern"}, "write")),
            "read-only", False, False, id="places-nobody-knows",
        ),
        pytest.param(profile(PROJECT), "workspace-write", False, True, id="nothing-else-readable"),
        pytest.param(
            profile(ROOT, ({"type": "glob_pattern", "pattern": "**/.env"}, "deny")),
            "read-only", False, True, id="hides-by-pattern",
        ),
        pytest.param(profile(ROOT, (at("/w/secret"), "none")), "read-only", False, True, id="hides-a-folder"),
        pytest.param({**FULL, **profile(ROOT)}, "read-only", False, False, id="the-stricter-of-two"),
    ],
)  # fmt: skip
async def test_a_policy_is_read(state: Any, ceiling: str, network: bool, hides: bool) -> None:
    found = read(state)
    assert (found.ceiling.flag, found.network, found.hides) == (ceiling, network, hides)


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
    "entry-as-text": {
        "permissionProfile": {
            "type": "managed",
            "file_system": {"type": "restricted", "entries": ["/"]},
            "network": "enabled",
        }
    },
    "new-kind-of-access": profile((at("/"), "own")),
    "new-kind-of-place": profile(({"type": "everywhere"}, "write")),
    "one-good-one-bad": {**FULL, "permissionProfile": {"type": "managed"}},
}


@pytest.mark.parametrize("state", NONSENSE.values(), ids=NONSENSE)
async def test_what_cannot_be_read_counts_as_read_only(state: Any) -> None:
    assert read(state) == UNREADABLE
    assert (UNREADABLE.ceiling, UNREADABLE.network) == (Permission.READ_ONLY, False)


@pytest.mark.parametrize(
    ("state", "path", "writable"),
    [
        pytest.param(policy("workspace-write"), "/w/a", True, id="in-the-folder"),
        pytest.param(policy("workspace-write"), "/w", True, id="the-folder"),
        pytest.param(policy("workspace-write"), "/wx/a", False, id="sibling"),
        pytest.param(policy("workspace-write"), "/w/.git/config", False, id="git"),
        pytest.param(policy("workspace-write"), "/w/.gitignore", True, id="not-git"),
        pytest.param(policy("workspace-write"), "/tmp/a", True, id="tmp"),
        pytest.param(policy("workspace-write", exclude_slash_tmp=True), "/tmp/a", False, id="no-tmp"),
        pytest.param(policy("workspace-write", exclude_slash_tmp="no"), "/tmp/a", False, id="no-boolean"),
        pytest.param(policy("workspace-write", writable_roots=["/v"]), "/v/a", True, id="another-root"),
        pytest.param(profile(ROOT, PROJECT), "/w x/a", True, id="project"),
        pytest.param(
            profile(ROOT, (special("project_roots", subpath="out"), "write")), "/w x/a", False, id="part"
        ),
        pytest.param(
            profile(ROOT, (special("project_roots", subpath="out"), "write")),
            "/w x/out/a",
            True,
            id="in-part",
        ),
        pytest.param(
            profile(ROOT, PROJECT, (at("/w x/.git"), "read")), "/w x/.git/a", False, id="carved-out"
        ),
        pytest.param(
            profile(ROOT, (at("/v"), "read"), (at("/v"), "write")), "/v/a", True, id="write-beats-read"
        ),
        pytest.param(
            profile(ROOT, (at("/v"), "write"), (at("/v"), "deny")), "/v/a", False, id="deny-beats-write"
        ),
        pytest.param(profile(ROOT, (special("slash_tmp"), "write")), "/tmp/a", True, id="tmp-of-a-profile"),
        pytest.param({**policy("workspace-write"), **profile(ROOT, PROJECT)}, "/w/a", False, id="both-must"),
    ],
)
async def test_where_may_be_written(state: Any, path: str, writable: bool) -> None:
    assert read(state).writes(path) is writable


async def test_two_folders_that_are_one_are_as_strict_as_the_stricter() -> None:
    found = ClientRestrictions(named="x", areas=({"/a": True, "/b": False},)).resolved(lambda _: "/c")
    assert found.areas == ({"/c": False},)


async def test_the_stricter_of_two_allows_nothing_that_one_does_not() -> None:
    wide, tight = read(FULL), read(policy("read-only"))
    assert stricter(wide, tight) == stricter(tight, wide) == tight
    assert lies_in("/", "/a")


def removed(host: HostServices) -> set[Capability]:
    """The capabilities that the client's own policy takes away."""
    return {need for need, why in host.unavailable.items() if why.kind == "client"}


# --- what is enforced ------------------------------------------------------------------------------------


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


# --- through a client ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Setup]:
    made: dict[str, Setup] = {}
    for mode in ("read-only", "workspace-write"):
        folder = tmp_path_factory.mktemp(mode)
        for name in ("root", "root/part", "home"):
            (folder / name).mkdir()
        made[mode] = Setup(root=folder / "root", home=folder / "home", mode=mode)
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


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("mode", "state", "call", "denied"),
    [
        pytest.param("workspace-write", workspace, WRITE, None, id="the-same-mode"),
        pytest.param("workspace-write", workspace, BASH, None, id="the-same-mode-commands"),
        pytest.param("workspace-write", part, INNER, None, id="inside-the-part"),
        pytest.param("workspace-write", part, WRITE, "elsewhere only", id="outside-the-part"),
        pytest.param("workspace-write", part, BASH, "the sandbox of commands", id="commands-in-a-part"),
        pytest.param("workspace-write", of(policy("read-only")), WRITE, "(read-only)", id="read-only"),
        pytest.param(
            "workspace-write", of(policy("read-only")), THROUGH, "(read-only)", id="through-another"
        ),
        pytest.param(
            "workspace-write", of(policy("read-only")), BASH, "(read-only)", id="read-only-commands"
        ),
        pytest.param("workspace-write", of(policy("read-only")), READ, None, id="read-only-reads"),
        pytest.param("workspace-write", workspace, COMMIT, "protects .git", id="protected-git"),
        pytest.param("workspace-write", of(policy("read-only")), FETCH, "no network", id="no-network"),
        pytest.param("workspace-write", of("nonsense"), WRITE, "cannot be read", id="nonsense"),
        pytest.param("workspace-write", of(nested(80)), BASH, "cannot be read", id="nested"),
        pytest.param("read-only", of(FULL), WRITE, "--permission-mode", id="ATTACK-full-on-read-only"),
        pytest.param("read-only", of(FULL), BASH, None, id="ATTACK-full-on-read-only-commands"),
        pytest.param("read-only", workspace, WRITE, "--permission-mode", id="ATTACK-workspace-on-read-only"),
    ],
)
async def test_the_stricter_of_server_and_client_counts(
    mode: str,
    state: Any,
    call: tuple[str, dict[str, Any]],
    denied: str | None,
    era: str,
    places: dict[str, Setup],
    shared: SharedServers,
) -> None:
    setup = places[mode]
    for path in setup.root.rglob("*.txt"):
        path.unlink()
    (setup.root / "from-bash").unlink(missing_ok=True)
    client = await shared.client(setup, era=era)
    result: CallToolResult = await client.call_tool(*call, meta={KEY: state(setup.root)})
    listed = text(result)
    if denied is None:
        assert not result.is_error, listed
    else:
        assert result.is_error
        assert denied in listed
    changed = any(setup.root.rglob("*.txt")) or (setup.root / "from-bash").exists()
    assert changed == (denied is None and mode == "workspace-write" and call is not READ)
    line = lines(setup.home)[-1]
    assert line["mode"] == (mode if state in (workspace, part) else "read-only")
    assert (line["outcome"] == "denied") == (denied is not None)


@pytest.mark.parametrize("era", ERAS)
async def test_the_next_call_is_as_free_as_the_server(
    era: str, places: dict[str, Setup], shared: SharedServers
) -> None:
    client = await shared.client(places["workspace-write"], era=era)
    assert (await client.call_tool(*WRITE, meta={KEY: policy("read-only")})).is_error
    assert not (await client.call_tool(*WRITE)).is_error


@pytest.mark.parametrize("era", ERAS)
async def test_clients_learn_that_it_is_heeded(
    era: str, places: dict[str, Setup], shared: SharedServers
) -> None:
    client = await shared.client(places["read-only"], era=era)
    assert client.server_capabilities is not None
    assert client.server_capabilities.experimental == {KEY: {}}


async def test_a_server_that_is_to_ignore_it_asks_for_none_and_still_applies_one(
    tmp_path: Path, shared: SharedServers
) -> None:
    setup = Setup.below(tmp_path, "workspace-write", "--client-sandbox", "ignore")
    client = await shared.client(setup)
    assert client.server_capabilities is not None
    assert not client.server_capabilities.experimental
    assert (await client.call_tool(*WRITE, meta={KEY: policy("read-only")})).is_error
    assert not (await client.call_tool(*WRITE)).is_error


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_carries_it_from_the_protocol_to_the_dispatcher(era: str, tmp_path: Path) -> None:
    served = Handlers(dispatcher=dispatcher(machine(tmp_path)), ask_seconds=5)
    async with Client(build(served, "", [SandboxState()]), mode=era) as client:
        assert client.server_capabilities is not None
        assert client.server_capabilities.experimental == {KEY: {}}
        refused = await client.call_tool(*WRITE, meta={KEY: policy("read-only")})
        assert "(read-only)" in text(refused)
        assert not (await client.call_tool(*WRITE)).is_error
